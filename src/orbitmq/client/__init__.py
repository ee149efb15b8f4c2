"""Blocking clients; `orbitmq.client.aio` has the same names for asyncio."""

from typing import TYPE_CHECKING

from orbitmq.lazy_names import LazyNames

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.broker_calls import PullStatus
    from orbitmq.client.aio.pull.queue_reads import PullResult
    from orbitmq.client.core.consuming import allocation
    from orbitmq.client.core.consuming.consume_results import (
        REJECT,
        RETRY_LATER,
        SUCCESS,
        SUSPEND,
        Reject,
        Reply,
        RetryLater,
        Suspend,
    )
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.client.core.sending import queue_selectors
    from orbitmq.client.core.sending.send_results import Durability, SendResult, SendStatus
    from orbitmq.client.core.sending.transaction_states import TransactionResult, TransactionState
    from orbitmq.client.core.subscriptions import by_sql
    from orbitmq.client.sync.admin import Admin
    from orbitmq.client.sync.lite_pull_consumer import LitePullConsumer
    from orbitmq.client.sync.producer import Producer
    from orbitmq.client.sync.pull_consumer import PullConsumer
    from orbitmq.client.sync.push_consumer import PushConsumer
    from orbitmq.client.sync.transactions import Transaction, TransactionProducer
    from orbitmq.model.messages import Message
    from orbitmq.model.queues import MessageQueue

__all__ = [
    "REJECT",
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
    "Reject",
    "Reply",
    "RetryLater",
    "SendResult",
    "SendStatus",
    "Suspend",
    "Transaction",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "allocation",
    "by_sql",
    "queue_selectors",
]

# Lazy: a program imports only the clients that it uses.
_names = LazyNames(
    __name__,
    {
        "Admin": "orbitmq.client.sync.admin",
        "Durability": "orbitmq.client.core.sending.send_results",
        "LitePullConsumer": "orbitmq.client.sync.lite_pull_consumer",
        "Message": "orbitmq.model.messages",
        "MessageQueue": "orbitmq.model.queues",
        "Producer": "orbitmq.client.sync.producer",
        "PullConsumer": "orbitmq.client.sync.pull_consumer",
        "PullResult": "orbitmq.client.aio.pull.queue_reads",
        "PullStatus": "orbitmq.client.aio.instance.broker_calls",
        "PushConsumer": "orbitmq.client.sync.push_consumer",
        "REJECT": "orbitmq.client.core.consuming.consume_results",
        "RETRY_LATER": "orbitmq.client.core.consuming.consume_results",
        "ReceivedMessage": "orbitmq.client.core.consuming.received_message",
        "Reject": "orbitmq.client.core.consuming.consume_results",
        "Reply": "orbitmq.client.core.consuming.consume_results",
        "RetryLater": "orbitmq.client.core.consuming.consume_results",
        "SUCCESS": "orbitmq.client.core.consuming.consume_results",
        "SUSPEND": "orbitmq.client.core.consuming.consume_results",
        "SendResult": "orbitmq.client.core.sending.send_results",
        "SendStatus": "orbitmq.client.core.sending.send_results",
        "Suspend": "orbitmq.client.core.consuming.consume_results",
        "Transaction": "orbitmq.client.sync.transactions",
        "TransactionProducer": "orbitmq.client.sync.transactions",
        "TransactionResult": "orbitmq.client.core.sending.transaction_states",
        "TransactionState": "orbitmq.client.core.sending.transaction_states",
        "aio": "orbitmq.client.aio",
        "allocation": "orbitmq.client.core.consuming.allocation",
        "by_sql": "orbitmq.client.core.subscriptions",
        "queue_selectors": "orbitmq.client.core.sending.queue_selectors",
    },
)

if not TYPE_CHECKING:
    # Hidden from type checkers, which would accept any name.
    __getattr__, __dir__ = _names.find, _names.all
