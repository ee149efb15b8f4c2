"""The message store: RocketMQ's files, written, recovered and read; no network."""
