"""Blocking clients, on one event loop in the background."""
