"""Rows and messages, compiled: Cython sources that never run as Python."""
