"""Clients of the queue."""
