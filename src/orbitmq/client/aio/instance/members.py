"""The interfaces through which an instance calls its producers and consumers."""

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

    @property
    def answers_checks(self) -> bool:
        """Whether brokers may ask it about transactions, so that all of them have to know it."""

    def topics(self) -> Iterable[str]:
        """The topics it sends to, whose routes are kept fresh."""

    async def check_transaction(self, address: str, check: CheckTransaction, record: bytes) -> None:
        """Report to the broker at an address how the transaction of a half message ended."""


class ConsumerMember(Protocol):
    """A consumer, as its instance sees it."""

    @property
    def group(self) -> str:
        """Its group, as brokers know it."""

    def heartbeat(self) -> ConsumerGroup:
        """Describe what it consumes, and how."""

    def topics(self) -> Iterable[str]:
        """The topics it reads, whose routes are kept fresh."""

    def rebalance_soon(self) -> None:
        """Rebalance soon: members joined or left, or a broker is back."""

    def route_changed(self, topic: str) -> None:
        """Handle a change of a topic's queues or brokers."""

    async def persist_offsets(self) -> None:
        """Commit its progress."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Resume at the offsets that an operator set."""

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Its progress in the queues of a topic."""

    def running(self, *, with_stacks: bool) -> RunningConsumer:
        """Describe what it is doing."""

    async def consume_directly(self, record: bytes, broker_name: str) -> DirectResult | None:
        """Pass a message to the listener at once; None if there is no listener."""
