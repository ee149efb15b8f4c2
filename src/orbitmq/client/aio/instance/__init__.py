"""What all clients of one loop share: connections, routes, heartbeats."""
