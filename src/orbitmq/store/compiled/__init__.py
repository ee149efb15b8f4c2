"""Parts of the store, compiled: Cython sources that never run as Python."""
