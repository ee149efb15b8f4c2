"""Clients on asyncio."""

from typing import TYPE_CHECKING

from orbitmq.lazy_names import LazyNames

if TYPE_CHECKING:
    from orbitmq.client.aio.admin.admin import Admin
    from orbitmq.client.aio.instance.broker_calls import PullStatus
    from orbitmq.client.aio.pull.lite_pull_consumer import LitePullConsumer
    from orbitmq.client.aio.pull.pull_consumer import PullConsumer
    from orbitmq.client.aio.pull.queue_reads import PullResult
    from orbitmq.client.aio.push.push_consumer import PushConsumer
    from orbitmq.client.aio.sending.producer import Producer
    from orbitmq.client.aio.sending.transactions import Transaction, TransactionProducer

__all__ = [
    "Admin",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "Transaction",
    "TransactionProducer",
]

# Programs load only the clients that they use.
_names = LazyNames(
    __name__,
    {
        "Admin": "orbitmq.client.aio.admin.admin",
        "LitePullConsumer": "orbitmq.client.aio.pull.lite_pull_consumer",
        "Producer": "orbitmq.client.aio.sending.producer",
        "PullConsumer": "orbitmq.client.aio.pull.pull_consumer",
        "PullResult": "orbitmq.client.aio.pull.queue_reads",
        "PullStatus": "orbitmq.client.aio.instance.broker_calls",
        "PushConsumer": "orbitmq.client.aio.push.push_consumer",
        "Transaction": "orbitmq.client.aio.sending.transactions",
        "TransactionProducer": "orbitmq.client.aio.sending.transactions",
    },
)

if not TYPE_CHECKING:
    # Hidden from type checkers, which would then accept any name.
    __getattr__, __dir__ = _names.find, _names.all
