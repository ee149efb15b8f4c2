"""What the broker answers: a file per family of requests."""
