"""What a client instance asks of the producers and consumers that share it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orbitmq.model.queues import MessageQueue
    from orbitmq.protocol.requests.clients import ConsumerGroup
    from orbitmq.protocol.requests.relays import DirectResult, RunningConsumer
    from orbitmq.protocol.requests.transactions import CheckTransaction


class ProducerMember(Protocol):
    """A producer, as its instance sees it."""

    @property
    def group(self) -> str:
        """Its group, as brokers know it."""

    def topics(self) -> Iterable[str]:
        """Name the topics it sends to, whose routes are kept fresh."""

    async def check_transaction(self, address: str, check: CheckTransaction, record: bytes) -> None:
        """Tell the broker at an address what became of the transaction of a half message."""


class ConsumerMember(Protocol):
    """A consumer, as its instance sees it."""

    @property
    def group(self) -> str:
        """Its group, as brokers know it."""

    def heartbeat(self) -> ConsumerGroup:
        """Say what it consumes, and how."""

    def topics(self) -> Iterable[str]:
        """Name the topics it reads, whose routes are kept fresh."""

    def rebalance_soon(self) -> None:
        """Look again at which queues are its own: members came or left, or a broker is back."""

    def route_changed(self, topic: str) -> None:
        """Take note that a topic has other queues, or lies elsewhere."""

    async def persist_offsets(self) -> None:
        """Commit how far it has come."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Go on at other offsets, as an operator wants it."""

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Say how far it has come in the queues of a topic."""

    def running(self, *, with_stacks: bool) -> RunningConsumer | None:
        """Say what it is doing."""

    async def consume_directly(self, record: bytes, broker_name: str) -> DirectResult | None:
        """Let the listener have a message at once; None when there is no listener."""
