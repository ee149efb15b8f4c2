"""The nouns of the queue: brokers, topics, routes, versions and names."""
