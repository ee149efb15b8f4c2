"""The broker: keeps the messages of topics, and knows who produces and consumes."""
