"""The nouns of the system: messages, topics, groups, routes, versions and names."""
