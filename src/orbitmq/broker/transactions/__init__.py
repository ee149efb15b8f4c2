"""Transactions: half messages that wait for a commit or rollback."""
