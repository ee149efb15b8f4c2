"""Archives of topics: how far each is, and what of the log waits for it."""
