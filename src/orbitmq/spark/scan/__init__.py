"""Scanning store directories: planning on the driver, reading files in the tasks."""
