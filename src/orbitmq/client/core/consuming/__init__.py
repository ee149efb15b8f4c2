"""Decisions about consuming: allocation, windows, offsets, flow control."""
