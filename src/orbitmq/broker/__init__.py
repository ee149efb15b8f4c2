"""The broker: stores messages, delivers them, and tracks producers and consumers."""
