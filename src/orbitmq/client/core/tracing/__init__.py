"""Message traces: records that clients write about messages, and journeys."""
