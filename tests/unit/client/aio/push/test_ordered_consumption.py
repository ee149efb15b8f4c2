"""Ordered consumption: one at a time, never without the lock, failed batches first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from orbitmq.client.aio.push.listeners import listener_of
from orbitmq.client.aio.push.ordered_consumption import OrderedConsumption
from orbitmq.client.aio.push.push_member import listener_pool
from orbitmq.client.core.consuming.consume_results import DEAD_LETTER, SUSPEND, Reject, Suspend
from orbitmq.client.core.consuming.consume_speeds import ConsumeSpeeds
from orbitmq.client.core.consuming.inflight_window import LOCK_TRUST_MS, InflightWindow
from orbitmq.client.core.consuming.offset_ledger import OffsetLedger
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import ManualClock, settle
from orbitmq.model.queues import MessageQueue
from tests.unit.client.aio.received import QUEUE, Window, call_of, several

SUSPEND_MS = 1000


class Post:
    """Takes copies, or not."""

    def __init__(self) -> None:
        self.takes = True
        # How often messages are not taken, by offset.
        self.refuses: dict[int, int] = {}
        self.taken: list[int] = []
        self.reasons: list[str] = []
        self.rejected: list[tuple[int, str]] = []

    async def send_back(self, message: ReceivedMessage, delay_level: int, reason: str = "") -> bool:
        # Anything but a dead letter would lose its place.
        assert delay_level == DEAD_LETTER
        if self.takes:
            self.rejected.append((message.queue_offset, reason))
        return self.takes

    async def send_copy(self, message: ReceivedMessage, reason: str = "") -> bool:
        refusals = self.refuses.get(message.queue_offset, 0)
        if refusals:
            self.refuses[message.queue_offset] = refusals - 1
        takes = self.takes and not refusals
        if takes:
            self.taken.append(message.queue_offset)
            self.reasons.append(reason)
        return takes


class Consumer:
    """One queue of an ordered consumer, with everything but a broker."""

    def __init__(
        self,
        on_messages: Callable[[list[ReceivedMessage]], Any],
        *,
        batch_size: int = 1,
        retries_max: int | None = None,
        needs_lock: bool = True,
    ) -> None:
        self.clock = ManualClock()
        self.post = Post()
        self.ledger = OffsetLedger()
        self.lock_given = True
        self.locks_asked = 0
        self.idle: list[MessageQueue] = []
        self.room: list[MessageQueue] = []
        self.window = self.new_window()
        self.consumption = OrderedConsumption(
            partial(
                listener_pool,
                call_of(listener_of(None, on_messages), clock=self.clock, ordered=True),
                concurrency=4,
                name="billing",
            ),
            batch_size=batch_size,
            suspend_ms=SUSPEND_MS,
            retries_max=retries_max,
            offsets=self.ledger,
            speeds=ConsumeSpeeds(self.clock),
            send_backs=self.post,
            lock=self.lock if needs_lock else None,
            on_room=self.room.append,
            on_idle=self.idle.append,
            clock=self.clock,
        )
        self.consumption.start()

    def new_window(self, offset: int = 0) -> Window:
        window: Window = InflightWindow(offset, self.clock)
        window.note_lock()
        return window

    async def lock(self, _queue: MessageQueue) -> bool:
        self.locks_asked += 1
        if self.lock_given:
            self.window.note_lock()
        return self.lock_given

    def take(self, first: int, count: int) -> None:
        messages = several(first, count)
        self.window.add(messages)
        self.consumption.take(QUEUE, self.window, messages)

    @property
    def committable(self) -> int | None:
        return self.ledger.read(QUEUE)


class Listener:
    """Records its messages, waits or fails on request, and checks that calls do not overlap."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.tried: list[int] = []
        self.fails: dict[int, int] = {}
        self.waits: dict[int, asyncio.Event] = {}
        self.pause_ms: int | None = None
        self._inside = False

    async def __call__(self, messages: list[ReceivedMessage]) -> Suspend | None:
        assert not self._inside
        self._inside = True
        try:
            offset = messages[0].queue_offset
            self.seen += [message.queue_offset for message in messages]
            self.tried.append(messages[0].reconsume_times)
            if offset in self.waits:
                await self.waits[offset].wait()
            await settle(1)
            if self.fails.get(offset, 0):
                self.fails[offset] -= 1
                return SUSPEND if self.pause_ms is None else Suspend(pause_ms=self.pause_ms)
            return None
        finally:
            self._inside = False


Make = Callable[..., Consumer]


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Consumer] = []

    def _make(*arguments: Any, **options: Any) -> Consumer:
        made.append(Consumer(*arguments, **options))
        return made[-1]

    yield _make
    for consumer in made:
        await consumer.consumption.stop(0)


async def test_messages_of_a_queue_come_one_at_a_time(make: Make, listener: Listener) -> None:
    consumer = make(listener)
    consumer.take(0, 100)
    consumer.take(100, 100)
    await settle(2000)

    assert listener.seen == list(range(200))
    assert (consumer.committable, consumer.window.count) == (200, 0)
    assert set(consumer.room) == {QUEUE}


async def test_each_message_may_be_committed_as_soon_as_it_is_done(
    make: Make, listener: Listener
) -> None:
    listener.waits[3] = asyncio.Event()
    consumer = make(listener)
    consumer.take(0, 10)
    await settle(100)

    assert (listener.seen, consumer.committable) == ([0, 1, 2, 3], 3)
    listener.waits[3].set()
    await settle(100)
    assert consumer.committable == 10


async def test_a_batch_that_fails_is_retried_before_all_others(
    make: Make, listener: Listener
) -> None:
    listener.fails[4] = 3
    consumer = make(listener, batch_size=2)
    consumer.take(0, 8)
    await settle(100)
    assert (listener.seen, consumer.committable) == ([0, 1, 2, 3, 4, 5], 4)

    await consumer.clock.advance(SUSPEND_MS - 1)
    assert listener.seen[6:] == []
    await consumer.clock.advance(1)
    await consumer.clock.advance(2 * SUSPEND_MS)
    await settle(100)

    assert listener.seen[6:] == [4, 5, 4, 5, 4, 5, 6, 7]
    assert listener.tried == [0, 0, 0, 1, 2, 3, 0]
    assert consumer.committable == 8


async def test_an_exception_suspends_as_well(make: Make) -> None:
    calls: list[int] = []

    async def failing_once(messages: list[ReceivedMessage]) -> None:
        calls.append(messages[0].queue_offset)
        if len(calls) == 1:
            raise ValueError

    consumer = make(failing_once)
    consumer.take(0, 2)
    await settle(50)
    assert calls == [0]
    await consumer.clock.advance(SUSPEND_MS)
    await settle(50)
    assert calls == [0, 0, 1]


async def test_a_listener_may_choose_the_pause(make: Make, listener: Listener) -> None:
    listener.fails[0] = 1
    listener.pause_ms = 20
    consumer = make(listener)
    consumer.take(0, 1)
    await settle(50)

    await consumer.clock.advance(20)
    await settle(50)

    assert listener.seen == [0, 0]
    assert consumer.committable == 1


async def test_a_message_without_retries_left_is_sent_away(make: Make, listener: Listener) -> None:
    listener.fails[1] = 100
    consumer = make(listener, retries_max=2)
    consumer.take(0, 3)
    await settle(50)
    await consumer.clock.advance(SUSPEND_MS)
    await settle(50)
    consumer.post.takes = False
    await consumer.clock.advance(SUSPEND_MS)
    await settle(50)
    assert (listener.seen, consumer.committable) == ([0, 1, 1, 1], 1)

    consumer.post.takes = True
    await consumer.clock.advance(SUSPEND_MS)
    await settle(50)

    assert consumer.post.taken == [1]
    assert listener.seen == [0, 1, 1, 1, 1, 2]
    assert consumer.committable == 3


async def test_of_a_failed_batch_each_message_is_sent_away_once(
    make: Make, listener: Listener
) -> None:
    # Two are taken at once, the third at the third attempt.
    listener.fails = dict.fromkeys(range(3), 100)
    consumer = make(listener, batch_size=3, retries_max=0)
    consumer.post.refuses = {1: 2}
    consumer.take(0, 3)
    for _ in range(3):
        await settle(50)
        await consumer.clock.advance(SUSPEND_MS)
    await settle(50)

    assert consumer.post.taken == [0, 2, 1]
    assert listener.seen == [0, 1, 2, 1, 1]
    assert consumer.committable == 3


async def test_nothing_starts_without_the_lock(make: Make, listener: Listener) -> None:
    consumer = make(listener)
    consumer.lock_given = False
    await consumer.clock.advance(LOCK_TRUST_MS + 1)
    consumer.take(0, 3)
    await consumer.clock.advance(10_000)
    assert listener.seen == []
    assert consumer.locks_asked >= 2

    consumer.lock_given = True
    await consumer.clock.advance(3_100)
    await settle(50)
    assert listener.seen == [0, 1, 2]


async def test_a_lock_that_expires_ends_a_run_before_its_next_message(
    make: Make, listener: Listener
) -> None:
    listener.waits[1] = asyncio.Event()
    consumer = make(listener)
    consumer.lock_given = False
    consumer.take(0, 5)
    await settle(50)
    await consumer.clock.advance(LOCK_TRUST_MS + 1)
    listener.waits[1].set()
    await consumer.clock.advance(1000)

    assert listener.seen == [0, 1]
    assert consumer.committable == 2
    consumer.lock_given = True
    await consumer.clock.advance(3_100)
    await settle(50)
    assert listener.seen == [0, 1, 2, 3, 4]


async def test_broadcasting_needs_no_lock(make: Make, listener: Listener) -> None:
    consumer = make(listener, needs_lock=False)
    await consumer.clock.advance(LOCK_TRUST_MS + 1)
    consumer.take(0, 3)
    await settle(50)

    assert (listener.seen, consumer.locks_asked) == ([0, 1, 2], 0)


async def test_a_queue_is_released_only_after_its_listener_whose_result_counts(
    make: Make, listener: Listener
) -> None:
    listener.waits[1] = asyncio.Event()
    consumer = make(listener)
    consumer.take(0, 5)
    await settle(50)

    assert not consumer.consumption.release(QUEUE, consumer.window)
    assert not consumer.consumption.release(QUEUE, consumer.window)
    listener.waits[1].set()
    await settle(50)

    assert consumer.idle == [QUEUE]
    assert (listener.seen, consumer.committable) == ([0, 1], 2)
    assert consumer.consumption.release(QUEUE, consumer.window)
    assert consumer.window.dropped


async def test_a_suspended_queue_is_released_at_once(make: Make, listener: Listener) -> None:
    listener.fails[0] = 1
    consumer = make(listener)
    consumer.take(0, 2)
    await settle(50)

    assert consumer.consumption.release(QUEUE, consumer.window)
    await consumer.clock.advance(10 * SUSPEND_MS)
    assert listener.seen == [0]


async def test_a_queue_that_comes_back_waits_for_its_old_listener(
    make: Make, listener: Listener
) -> None:
    listener.waits[0] = asyncio.Event()
    consumer = make(listener)
    consumer.take(0, 2)
    await settle(50)
    consumer.window.drop()
    consumer.window = consumer.new_window()
    consumer.take(0, 2)
    await settle(50)
    assert listener.seen == [0]

    listener.waits[0].set()
    await settle(50)

    assert listener.seen == [0, 0, 1]
    assert consumer.committable == 2


async def test_stopping_commits_what_ends_in_time_and_starts_no_more(
    make: Make, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    listener.waits[2] = asyncio.Event()
    consumer = make(listener)
    consumer.take(0, 5)
    await settle(50)
    stopping = asyncio.create_task(consumer.consumption.stop(60_000))
    await settle()
    listener.waits[2].set()
    await stopping

    assert (listener.seen, consumer.committable) == ([0, 1, 2], 3)
    assert caplog.text == ""


async def test_rejected_messages_leave_the_queue_and_others_follow() -> None:
    seen: list[int] = []

    async def listen(messages: list[ReceivedMessage]) -> Reject | None:
        seen.append(messages[0].queue_offset)
        return Reject("bad") if messages[0].queue_offset == 1 else None

    consumer = Consumer(listen)
    consumer.post.takes = False
    consumer.take(0, 3)
    await settle()

    # No broker took it: it keeps its place, and is tried again after a pause.
    assert (seen, consumer.committable) == ([0, 1], 1)
    consumer.post.takes = True
    await consumer.clock.advance(SUSPEND_MS)
    await settle()

    assert (seen, consumer.committable) == ([0, 1, 1, 2], 3)
    assert consumer.post.rejected == [(1, "bad")]
    await consumer.consumption.stop(0)
