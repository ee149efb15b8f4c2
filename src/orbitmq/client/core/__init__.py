"""Decisions of clients, without I/O and without an event loop."""
