"""Timers, compiled: Cython sources that never run as Python."""
