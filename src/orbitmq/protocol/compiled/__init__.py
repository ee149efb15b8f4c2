"""Frames of sends, compiled: Cython sources that never run as Python."""
