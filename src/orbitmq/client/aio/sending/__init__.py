"""Producers: which queue, what is sent, and what if it fails."""
