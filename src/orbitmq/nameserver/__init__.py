"""The name server: which brokers hold which topics."""
