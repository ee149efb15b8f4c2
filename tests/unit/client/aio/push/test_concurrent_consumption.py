"""Concurrent consumption: what is committed, sent back, dropped, or consumed again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from orbitmq.client.aio.push.concurrent_consumption import RETRY_MS, ConcurrentConsumption
from orbitmq.client.aio.push.listeners import listener_of
from orbitmq.client.aio.push.push_member import listener_pool
from orbitmq.client.core.consuming.consume_results import RetryLater
from orbitmq.client.core.consuming.consume_speeds import ConsumeSpeeds
from orbitmq.client.core.consuming.inflight_window import InflightWindow
from orbitmq.client.core.consuming.offset_ledger import OffsetLedger
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import ManualClock, settle
from orbitmq.model.queues import MessageQueue
from tests.unit.client.aio.received import QUEUE, Window, call_of, several

TIMEOUT_MS = 900_000.0


class Post:
    """Takes messages back, or not."""

    def __init__(self) -> None:
        self.takes = True
        self.error: Exception | None = None
        self.taken: list[tuple[int, int]] = []
        self.reasons: list[str] = []

    async def send_back(self, message: ReceivedMessage, delay_level: int, reason: str = "") -> bool:
        if self.error is not None:
            raise self.error
        if self.takes:
            self.taken.append((message.queue_offset, delay_level))
            self.reasons.append(reason)
        return self.takes

    async def send_copy(self, message: ReceivedMessage, reason: str = "") -> bool:
        raise AssertionError(f"nobody asks for a copy of {message!r} {reason}")


class Consumer:
    """One queue of a concurrent consumer, with everything but a broker."""

    def __init__(
        self,
        on_messages: Callable[[list[ReceivedMessage]], Any],
        *,
        batch_size: int = 1,
        broadcasting: bool = False,
    ) -> None:
        self.clock = ManualClock()
        self.post = Post()
        self.ledger = OffsetLedger()
        self.speeds = ConsumeSpeeds(self.clock)
        self.room: list[MessageQueue] = []
        self.window: Window = InflightWindow(0, self.clock)
        self.consumption = ConcurrentConsumption(
            partial(
                listener_pool,
                call_of(listener_of(None, on_messages), clock=self.clock),
                concurrency=4,
                name="billing",
            ),
            batch_size=batch_size,
            timeout_ms=TIMEOUT_MS,
            offsets=self.ledger,
            speeds=self.speeds,
            send_backs=None if broadcasting else self.post,
            on_room=self.room.append,
            clock=self.clock,
        )
        self.consumption.start()

    def take(self, first: int, count: int) -> None:
        messages = several(first, count)
        self.window.add(messages)
        self.consumption.take(QUEUE, self.window, messages)

    @property
    def committable(self) -> int | None:
        return self.ledger.read(QUEUE)


Make = Callable[..., Consumer]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Consumer] = []

    def _make(*arguments: Any, **options: Any) -> Consumer:
        made.append(Consumer(*arguments, **options))
        return made[-1]

    yield _make
    for consumer in made:
        await consumer.consumption.stop(0)


async def test_what_is_done_may_be_committed(make: Make) -> None:
    async def done(_messages: list[ReceivedMessage]) -> None:
        """Do nothing."""

    consumer = make(done)
    consumer.take(0, 5)
    await settle()

    assert (consumer.committable, consumer.window.count) == (5, 0)
    assert set(consumer.room) == {QUEUE}
    assert consumer.speeds.of("orders").consumed_per_second == 5


async def test_messages_come_in_lists_of_the_configured_size(make: Make) -> None:
    sizes: list[int] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    consumer = make(listener, batch_size=4)
    consumer.take(0, 10)
    await settle()

    assert sizes == [4, 4, 2]


async def test_an_offset_never_passes_a_message_whose_listener_hangs(make: Make) -> None:
    go_on = asyncio.Event()

    async def listener(messages: list[ReceivedMessage]) -> None:
        if messages[0].queue_offset == 3:
            await go_on.wait()

    consumer = make(listener)
    consumer.take(0, 10)
    await settle()
    assert (consumer.committable, consumer.window.count) == (3, 1)

    go_on.set()
    await settle()
    assert consumer.committable == 10


async def test_a_failed_message_is_sent_back_with_its_delay(make: Make) -> None:
    async def listener(messages: list[ReceivedMessage]) -> RetryLater | None:
        if messages[0].queue_offset == 1:
            raise ValueError
        return RetryLater(delay_level=5) if messages[0].queue_offset == 2 else None

    consumer = make(listener)
    consumer.take(0, 4)
    await settle()

    assert sorted(consumer.post.taken) == [(1, 0), (2, 5)]
    assert consumer.committable == 4
    assert consumer.speeds.of("orders").failed_messages == 2


async def test_only_the_failed_rest_of_a_batch_is_sent_back(make: Make) -> None:
    async def listener(_messages: list[ReceivedMessage]) -> RetryLater:
        return RetryLater(succeeded=2)

    consumer = make(listener, batch_size=4)
    consumer.take(0, 4)
    await settle()

    assert consumer.post.taken == [(2, 0), (3, 0)]
    assert consumer.committable == 4


@pytest.mark.parametrize("error", [None, RuntimeError("a bug")])
async def test_a_message_that_cannot_be_sent_back_is_consumed_again(
    make: Make, error: Exception | None
) -> None:
    seen: list[tuple[int, int]] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        seen.append((messages[0].queue_offset, messages[0].reconsume_times))
        if messages[0].queue_offset == 1 and len(seen) < 5:
            raise ValueError

    consumer = make(listener)
    consumer.post.takes = False
    consumer.post.error = error
    consumer.take(0, 3)
    await settle()
    assert (consumer.committable, consumer.window.count) == (1, 1)

    await consumer.clock.advance(RETRY_MS - 1)
    assert len(seen) == 3
    await consumer.clock.advance(1)
    assert seen[3:] == [(1, 1)]
    await consumer.clock.advance(RETRY_MS)
    assert seen[4:] == [(1, 2)]
    assert (consumer.committable, consumer.window.count) == (3, 0)


async def test_broadcasting_drops_and_logs_failed_messages(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def listener(_messages: list[ReceivedMessage]) -> RetryLater:
        return RetryLater()

    consumer = make(listener, broadcasting=True)
    consumer.take(0, 2)
    await settle()

    assert consumer.committable == 2
    assert caplog.text.count("message failed and is dropped") == 2


async def test_a_queue_that_was_given_up_is_neither_started_nor_committed(make: Make) -> None:
    go_on = asyncio.Event()
    seen: list[int] = []

    async def listener(messages: list[ReceivedMessage]) -> None:
        seen.append(messages[0].queue_offset)
        await go_on.wait()
        if messages[0].queue_offset == 1:
            raise ValueError

    consumer = make(listener)
    consumer.take(0, 10)
    await settle()
    assert consumer.consumption.release(QUEUE, consumer.window)
    go_on.set()
    await settle()

    assert seen == [0, 1, 2, 3]
    assert (consumer.committable, consumer.post.taken) == (None, [])


async def test_a_message_whose_listener_takes_too_long_is_sent_back(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()

    async def listener(messages: list[ReceivedMessage]) -> None:
        if messages[0].queue_offset == 0:
            await go_on.wait()
            raise ValueError("too late to count")

    consumer = make(listener)
    consumer.take(0, 3)
    await settle()
    await consumer.clock.advance(TIMEOUT_MS - 1)
    assert consumer.post.taken == []

    await consumer.clock.advance(60_000)
    assert consumer.post.taken == [(0, 3)]
    assert consumer.committable == 3
    assert "listener takes too long, message sent back" in caplog.text

    go_on.set()
    await settle()
    assert consumer.post.taken == [(0, 3)]


async def test_stopping_commits_what_ends_in_time(make: Make) -> None:
    go_on = asyncio.Event()

    async def listener(_messages: list[ReceivedMessage]) -> None:
        await go_on.wait()

    consumer = make(listener)
    consumer.take(0, 10)
    await settle()
    stopping = asyncio.create_task(consumer.consumption.stop(60_000))
    await settle()
    go_on.set()
    await stopping

    # Four were running; the others are left to the next owner.
    assert (consumer.committable, consumer.window.count) == (4, 6)


async def test_stopping_does_not_commit_what_does_not_end(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def listener(_messages: list[ReceivedMessage]) -> None:
        await asyncio.Event().wait()

    consumer = make(listener)
    consumer.take(0, 1)
    await settle()
    await consumer.consumption.stop(1)

    assert consumer.committable is None
    assert "stopped while a listener was running" in caplog.text
