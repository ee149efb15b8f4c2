"""Membership in a consumer group: queues, locks and committed offsets."""
