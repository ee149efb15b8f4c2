"""A stored message as bytes: one codec for disk, wire and Spark."""
