"""Rows that Spark writes exactly once: staged, decided on, moved (docs/decisions/0004)."""
