"""What the clients of one event loop share: connections, routes, heartbeats."""
