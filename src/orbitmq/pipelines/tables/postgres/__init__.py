"""Tables of PostgreSQL, into which each batch goes in one transaction."""
