"""The appender, compiled: C types of a source that runs as plain Python, too."""
