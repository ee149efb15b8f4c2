"""Clients that block; `orbitmq.client.aio` has the same names for asyncio."""

from orbitmq.client.core import queue_selectors
from orbitmq.client.core.received_message import ReceivedMessage
from orbitmq.client.core.send_results import Durability, SendResult, SendStatus
from orbitmq.client.sync.producer import Producer
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue

__all__ = [
    "Durability",
    "Message",
    "MessageQueue",
    "Producer",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "queue_selectors",
]
