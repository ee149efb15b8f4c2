"""Replays: stored messages are sent into a topic again, each once."""
