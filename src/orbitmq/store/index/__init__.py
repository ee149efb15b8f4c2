"""What is built from the log: consume queues and the key index."""
