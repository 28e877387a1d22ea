"""Servers that ctxbench starts itself: a real engine and a simulator."""
