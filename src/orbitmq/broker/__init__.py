"""The broker: keeps the messages of topics, and the state of those who consume them."""
