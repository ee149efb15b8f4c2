"""Which messages a consumer gets: filters by tag, and SQL92 over properties."""
