"""Opening a store directory: locked, recovered, put together."""
