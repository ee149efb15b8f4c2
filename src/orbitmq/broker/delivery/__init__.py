"""Handing messages to consumers: filters, long polls, reads."""
