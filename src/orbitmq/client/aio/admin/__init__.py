"""Administers a cluster: topics, groups, brokers, offsets, messages, key values."""

from orbitmq.client.aio.admin.admin import Admin

__all__ = ["Admin"]
