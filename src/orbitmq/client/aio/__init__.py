"""Clients on asyncio."""

from orbitmq.client.aio.producer import Producer

__all__ = ["Producer"]
