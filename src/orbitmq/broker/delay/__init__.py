"""Delayed messages: a queue per level, emptied when messages are due."""
