"""Trials of our clients at a broker, ours or an official one: names, clients, and what came."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self, Unpack

from orbitmq.client.aio import LitePullConsumer, Producer, PullConsumer, PushConsumer
from orbitmq.client.aio.admin import Admin
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.keywords import (
    ClientKeywords,
    LitePullKeywords,
    ProducerKeywords,
    PullKeywords,
    PushKeywords,
)
from orbitmq.clock import SystemClock
from tests.interop import wire
from tests.interop.official import OfficialBroker
from tests.interop.ours import OrbitBroker
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import beside, until_reached

RECEIVE_TIMEOUT_S = CLIENT_TIMEOUT_S
# Long enough for what should not come to have come.
NOTHING_MORE_MS = 300
# Of our clients: a broker whose machine stands still for a while has not failed.
PATIENCE_MS = 60_000
_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Site:
    """A broker that our clients are tried at, and the name server that knows it."""

    line: str
    name_server: str
    broker: OfficialBroker | OrbitBroker


class Inbox:
    """A listener that keeps what it is given, and lets a test wait for it."""

    def __init__(self, verdict: Callable[[ReceivedMessage], object] | None = None) -> None:
        self.messages: list[ReceivedMessage] = []
        self.received_ms: list[int] = []
        # As each time of a message found it: one that is tried again in place is the same object.
        self.reconsume_times: list[int] = []
        self._verdict = verdict
        self._more = asyncio.Condition()

    async def take(self, message: ReceivedMessage) -> Any:
        """Keep a message, and say about it what the test wants said."""
        async with self._more:
            self.messages.append(message)
            self.received_ms.append(_CLOCK.now_ms())
            self.reconsume_times.append(message.reconsume_times)
            self._more.notify_all()
        return self._verdict(message) if self._verdict else None

    async def wait(
        self, count: int, *, timeout_s: float = RECEIVE_TIMEOUT_S
    ) -> list[ReceivedMessage]:
        """All messages, once there are `count`."""
        try:
            async with asyncio.timeout(timeout_s), self._more:
                await self._more.wait_for(lambda: len(self.messages) >= count)
        except TimeoutError:
            raise TimeoutError(
                f"{len(self.messages)} of {count} messages came within {timeout_s} s: "
                f"{self.bodies[:100]}"
            ) from None
        return list(self.messages)

    async def wait_exactly(self, count: int) -> list[ReceivedMessage]:
        """All messages, which shall be `count` and stay so for a while."""
        await self.wait(count)
        await _CLOCK.sleep_ms(NOTHING_MORE_MS)
        assert len(self.messages) == count, self.bodies
        return list(self.messages)

    @property
    def bodies(self) -> list[bytes]:
        """The bodies, in the order they came."""
        return [message.body for message in self.messages]


class Trial:
    """One test's use of our clients: named after a topic of its own, closed at the end."""

    def __init__(self, site: Site, topic: str) -> None:
        self.site = site
        self.topic = topic
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @property
    def group(self) -> str:
        """The consumer group of the test."""
        return f"group-{self.topic}"

    def _at_site(self, options: ClientKeywords) -> None:
        options.setdefault("namesrv", self.site.name_server)
        options.setdefault("call_timeout_ms", PATIENCE_MS)
        options.setdefault("connect_timeout_ms", PATIENCE_MS)

    async def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic on the broker."""
        await beside(self.site.broker.create_topic, topic, queues=queues)

    async def producer(self, **options: Unpack[ProducerKeywords]) -> Producer:
        """Start a producer."""
        self._at_site(options)
        options.setdefault("send_timeout_ms", PATIENCE_MS)
        producer = Producer(f"producers-{self.topic}", **options)
        return await self._open.enter_async_context(producer)

    async def push(
        self,
        expression: Any = "*",
        *,
        group: str = "",
        topic: str = "",
        verdict: Callable[[ReceivedMessage], object] | None = None,
        ordered: bool = False,
        **options: Unpack[PushKeywords],
    ) -> tuple[PushConsumer, Inbox]:
        """Start a push consumer that puts everything into an inbox."""
        self._at_site(options)
        options.setdefault("consume_from", "first")
        inbox = Inbox(verdict)
        consumer = PushConsumer(
            group or self.group, on_message=inbox.take, ordered=ordered, **options
        )
        consumer.subscribe(topic or self.topic, expression)
        return await self._open.enter_async_context(consumer), inbox

    def lite_pull(
        self, *, group: str = "", **options: Unpack[LitePullKeywords]
    ) -> LitePullConsumer:
        """Make a lite pull consumer, not yet started."""
        self._at_site(options)
        return LitePullConsumer(group or self.group, **options)

    async def pull(self, **options: Unpack[PullKeywords]) -> PullConsumer:
        """Start a pull consumer."""
        self._at_site(options)
        consumer = PullConsumer(self.group, **options)
        return await self._open.enter_async_context(consumer)

    async def opened(self, client: Any) -> Any:
        """Start a client; it is closed at the end."""
        return await self._open.enter_async_context(client)

    def at_end(self, close: Callable[[], Awaitable[object]]) -> None:
        """Close something else at the end."""
        self._open.push_async_callback(close)

    async def shown(self, count: int, *, topic: str = "") -> None:
        """Return once readers see so many messages of a topic of four queues."""
        await beside(wire.wait_shown, self.site.broker.address, topic or self.topic, count)

    async def committed(self, count: int) -> None:
        """Return once the group has committed so many messages of the topic of four queues."""
        address = self.site.broker.address
        await beside(wire.wait_committed, address, self.group, self.topic, count)

    async def found(self, key: str) -> None:
        """Return once a message is found by a key: brokers index it after they show it."""
        async with Admin(namesrv=self.site.name_server, call_timeout_ms=PATIENCE_MS) as admin:
            end_ms = _CLOCK.monotonic_ms() + CLIENT_TIMEOUT_S * 1000
            while not await admin.messages.by_key(self.topic, key):
                assert _CLOCK.monotonic_ms() < end_ms, f"{key} is not found"
                await _CLOCK.sleep_ms(50)

    async def members(
        self, count: int, *, group: str = "", timeout_s: float = CLIENT_TIMEOUT_S
    ) -> list[str]:
        """The clients of the group that the broker knows, once there are `count`."""
        found: list[str] = []

        def reached() -> bool:
            found[:] = wire.members(self.site.broker.address, group or self.group)
            return len(found) == count

        await until_reached(
            reached, timeout_s=timeout_s, what=f"{count} members of {group or self.group}"
        )
        return found


def digest(body: bytes) -> str:
    """What the official clients' drivers show of a body."""
    return hashlib.sha256(body).hexdigest()


def numbered(count: int, *, first: int = 0) -> list[bytes]:
    """Bodies that are told apart."""
    return [b"message %d" % number for number in range(first, first + count)]


def sorted_bodies(messages: Iterable[ReceivedMessage]) -> list[bytes]:
    """The bodies, sorted: messages of different queues come in any order."""
    return sorted(message.body for message in messages)
