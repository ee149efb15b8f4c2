"""The blocking face of the clients, on one event loop in the background."""
