"""Queries of SQL over topics and system tables, and the Spark that runs them."""
