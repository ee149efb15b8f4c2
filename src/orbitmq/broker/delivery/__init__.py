"""Delivery of messages to consumers: pulls, filters, long polls."""
