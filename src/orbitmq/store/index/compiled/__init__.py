"""The key index, compiled: Cython sources that never run as Python."""
