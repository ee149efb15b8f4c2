"""Clients that block; `orbitmq.client.aio` has the same names for asyncio."""

from orbitmq.client.aio import PullResult, PullStatus
from orbitmq.client.core import allocation, queue_selectors
from orbitmq.client.core.consume_results import RETRY_LATER, SUCCESS, SUSPEND, RetryLater, Suspend
from orbitmq.client.core.received_message import ReceivedMessage
from orbitmq.client.core.send_results import Durability, SendResult, SendStatus
from orbitmq.client.core.subscriptions import by_sql
from orbitmq.client.sync.admin import Admin
from orbitmq.client.sync.lite_pull_consumer import LitePullConsumer
from orbitmq.client.sync.producer import Producer
from orbitmq.client.sync.pull_consumer import PullConsumer
from orbitmq.client.sync.push_consumer import PushConsumer
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue

__all__ = [
    "RETRY_LATER",
    "SUCCESS",
    "SUSPEND",
    "Admin",
    "Durability",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "RetryLater",
    "SendResult",
    "SendStatus",
    "Suspend",
    "allocation",
    "by_sql",
    "queue_selectors",
]
