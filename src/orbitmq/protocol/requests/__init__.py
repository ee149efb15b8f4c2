"""Typed request and response headers, one file a family."""
