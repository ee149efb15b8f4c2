"""Decisions about sending: checks, queue choice, retries, results."""
