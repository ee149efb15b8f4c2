"""Counters and metrics of the broker."""
