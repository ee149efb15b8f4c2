"""Scanning store directories: planning on the driver, reading files in tasks."""
