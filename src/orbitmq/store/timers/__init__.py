"""Timers: messages with a due time, in RocketMQ's timer wheel and timer log."""
