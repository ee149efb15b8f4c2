"""Request handlers of the broker: one file per family of requests."""
