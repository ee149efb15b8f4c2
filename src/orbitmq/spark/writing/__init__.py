"""Writing rows to topics: checks columns, encodes and sends messages."""
