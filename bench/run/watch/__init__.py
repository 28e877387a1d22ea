"""Somebody else's requests, seen from a server's metrics alone."""
