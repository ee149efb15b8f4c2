"""Tools for stores: inspect, verify, rebuild, and accept a loss."""
