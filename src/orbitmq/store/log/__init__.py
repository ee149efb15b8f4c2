"""The commit log: messages are appended and flushed here."""
