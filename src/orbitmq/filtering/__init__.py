"""Filters on the messages a consumer gets: by tag, and SQL92 over properties."""
