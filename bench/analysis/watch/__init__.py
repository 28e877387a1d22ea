"""Somebody else's requests, told apart by a server's counters."""
