"""Members of a consumer group: queues, locks and committed offsets."""
