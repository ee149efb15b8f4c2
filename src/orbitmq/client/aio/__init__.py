"""Clients on asyncio."""
