"""What every client decides, without I/O and without an event loop."""
