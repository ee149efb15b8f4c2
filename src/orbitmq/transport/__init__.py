"""The only sockets of the remoting protocol: server, client, limits and TLS."""
