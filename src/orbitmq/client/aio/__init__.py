"""Clients on asyncio."""

from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.brokers import PullStatus
from orbitmq.client.aio.lite_pull_consumer import LitePullConsumer
from orbitmq.client.aio.producer import Producer
from orbitmq.client.aio.pull_consumer import PullConsumer
from orbitmq.client.aio.push_consumer import PushConsumer
from orbitmq.client.aio.queue_reads import PullResult

__all__ = [
    "Admin",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
]
