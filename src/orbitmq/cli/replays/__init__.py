"""Replays on the command line: one run of one, and what it shows."""
