"""Exactly-once writes: rows are staged, decided on, then moved."""
