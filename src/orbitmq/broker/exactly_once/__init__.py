"""Rows that are written exactly once: staged, decided on, moved."""
