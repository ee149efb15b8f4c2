"""Members of a client instance that record the calls they get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from orbitmq.client.aio.instance.client_instance import ClientInstance
from orbitmq.client.aio.instance.instances import acquire, release
from orbitmq.client.options import ClientOptions
from orbitmq.clock import Clock, ManualClock
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.requests.clients import ConsumerGroup
from orbitmq.protocol.requests.relays import DirectOutcome, DirectResult, RunningConsumer
from orbitmq.protocol.requests.transactions import CheckTransaction
from tests.integration.conftest import PATIENCE_MS


@dataclass(eq=False)
class NotingProducer:
    group: str
    sends_to: list[str] = field(default_factory=list)
    checks: list[tuple[str, CheckTransaction, bytes]] = field(default_factory=list)
    answers_checks: bool = False

    def topics(self) -> Iterable[str]:
        return self.sends_to

    async def check_transaction(self, address: str, check: CheckTransaction, record: bytes) -> None:
        self.checks.append((address, check, record))


@dataclass(eq=False)
class NotingConsumer:
    group: str
    reads: list[str] = field(default_factory=list)
    rebalances: int = 0
    changed: list[str] = field(default_factory=list)
    persisted: int = 0
    resets: list[tuple[str, dict[MessageQueue, int]]] = field(default_factory=list)
    records: list[tuple[bytes, str]] = field(default_factory=list)
    held: dict[MessageQueue, int] = field(default_factory=dict)
    has_listener: bool = True

    def topics(self) -> Iterable[str]:
        return self.reads

    def heartbeat(self) -> ConsumerGroup:
        return ConsumerGroup(
            group=self.group,
            subscriptions=[
                Subscription(topic=topic, expression="*", version=1) for topic in self.reads
            ],
        )

    def rebalance_soon(self) -> None:
        self.rebalances += 1

    def route_changed(self, topic: str) -> None:
        self.changed.append(topic)

    async def persist_offsets(self) -> None:
        self.persisted += 1

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.resets.append((topic, offsets))

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self.held.items() if queue.topic == topic}

    def running(self, *, with_stacks: bool) -> RunningConsumer:
        return RunningConsumer(
            stacks="here" if with_stacks else None, subscriptions=self.heartbeat().subscriptions
        )

    async def consume_directly(self, record: bytes, broker_name: str) -> DirectResult | None:
        if not self.has_listener:
            return None
        self.records.append((record, broker_name))
        return DirectResult(outcome=DirectOutcome("CR_SUCCESS"), spent_ms=1)


@asynccontextmanager
async def instance_of(
    namesrv: str, *, clock: Clock | None = None, **options: Any
) -> AsyncIterator[ClientInstance]:
    """Run an instance until the block ends."""
    # Long timeouts: a machine may stall, and a manual clock may outrun the sockets.
    patience_ms = 600_000 if isinstance(clock, ManualClock) else PATIENCE_MS
    named: dict[str, Any] = {
        "instance_name": "test",
        "client_ip": "127.0.0.1",
        "call_timeout_ms": patience_ms,
        "connect_timeout_ms": patience_ms,
        **options,
    }
    instance = await acquire(ClientOptions(namesrv=namesrv, **named), clock=clock)
    try:
        yield instance
    finally:
        await release(instance)
