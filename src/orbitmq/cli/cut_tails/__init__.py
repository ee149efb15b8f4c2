"""Tails of logs that were cut: what is in them, and sending it again."""
