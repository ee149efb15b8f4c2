"""The pulls that fill the buffer of a consumer, against a scripted broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq.client.aio.pull.prefetching import Prefetching, PullPace
from orbitmq.client.aio.pull.queue_reads import QueueReads
from orbitmq.client.core.consuming.poll_buffer import PollBuffer
from orbitmq.client.core.subscriptions import subscription_of
from orbitmq.clock import ManualClock, settle
from orbitmq.errors import StateError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from tests.unit.client.aio.scripted_broker import QUEUE, ScriptedBroker, scripted_broker
from tests.waiting import until

START = 3
RETRY_MS = 1000
WAIT_SECONDS = 60


class Running:
    """A broker, and what is pulled from it."""

    def __init__(self, broker: ScriptedBroker, reads: QueueReads, *, queue_count_max: int) -> None:
        self.broker = broker
        self.clock = ManualClock()
        self.buffer = PollBuffer(
            queue_count_max=queue_count_max, queue_bytes_max=1 << 20, count_max=1000
        )
        self.starts_asked = 0
        self.start_failures: list[Exception] = []
        self.prefetching = Prefetching(
            self.buffer,
            reads,
            PullPace(batch_max=10, hold_ms=1000, timeout_ms=20_000, retry_ms=RETRY_MS),
            subscription_of=lambda topic: subscription_of(topic, "*", version_ms=0),
            start_offset=self._start_offset,
            clock=self.clock,
        )

    async def _start_offset(self, _: MessageQueue) -> int:
        self.starts_asked += 1
        if self.start_failures:
            raise self.start_failures.pop(0)
        return START

    @property
    def offsets_asked(self) -> list[int]:
        return [pull.queue_offset for _, pull in self.broker.pulls]

    def taken(self) -> list[int]:
        return [message.queue_offset for message in self.buffer.take(100)]

    async def asked(self, count: int) -> None:
        await until(lambda: len(self.broker.pulls) >= count)


@asynccontextmanager
async def running(*, queue_count_max: int = 100) -> AsyncIterator[Running]:
    async with scripted_broker() as (broker, instance):
        made = Running(broker, QueueReads(instance, "group"), queue_count_max=queue_count_max)
        try:
            yield made
        finally:
            await made.prefetching.stop_all()


async def test_a_queue_is_pulled_from_where_the_group_starts() -> None:
    async with running() as pulls:
        pulls.broker.found(3, 4)

        pulls.prefetching.start(QUEUE)
        await pulls.prefetching.wait_for_arrival()
        await pulls.asked(2)

        assert pulls.taken() == [3, 4]
        assert pulls.offsets_asked == [3, 5]
        assert pulls.starts_asked == 1


async def test_starting_a_queue_again_changes_nothing() -> None:
    async with running() as pulls:
        pulls.prefetching.start(QUEUE)
        pulls.prefetching.start(QUEUE)
        await pulls.asked(1)
        await settle()

        assert pulls.offsets_asked == [3]


async def test_a_full_buffer_stops_pulls_until_there_is_room() -> None:
    async with running(queue_count_max=2) as pulls:
        pulls.broker.found(3, 4)
        pulls.prefetching.start(QUEUE)
        await pulls.prefetching.wait_for_arrival()
        await settle()
        assert pulls.offsets_asked == [3]

        pulls.taken()
        pulls.prefetching.notify_room()
        await pulls.asked(2)

        assert pulls.offsets_asked == [3, 5]


async def test_a_seek_cancels_the_held_pull() -> None:
    async with running() as pulls:
        pulls.prefetching.start(QUEUE)
        await pulls.asked(1)

        pulls.buffer.seek(QUEUE, 40)
        await pulls.prefetching.restart(QUEUE)
        await pulls.asked(2)
        # The broker answers the first pull only now.
        pulls.broker.found(3, 4)
        pulls.broker.found(40)
        await pulls.prefetching.wait_for_arrival()

        assert pulls.taken() == [40]


async def test_a_queue_is_pulled_on_when_the_caller_of_a_seek_is_cancelled() -> None:
    async with running() as pulls:
        pulls.prefetching.start(QUEUE, START)
        await pulls.asked(1)
        pulls.buffer.seek(QUEUE, 50)
        restart = asyncio.create_task(pulls.prefetching.restart(QUEUE))
        await settle(1)
        restart.cancel()

        await until(lambda: 50 in pulls.offsets_asked)


async def test_a_dropped_queue_is_no_longer_pulled() -> None:
    async with running() as pulls:
        pulls.broker.found(3)
        pulls.prefetching.start(QUEUE)
        await pulls.asked(2)

        pulls.prefetching.drop(QUEUE)
        pulls.prefetching.drop(QUEUE)
        await pulls.prefetching.restart(QUEUE)
        await settle()

        assert pulls.offsets_asked == [3, 4]
        assert pulls.taken() == []


async def test_nothing_starts_again_once_all_is_stopped() -> None:
    async with running() as pulls:
        pulls.prefetching.start(QUEUE)
        await pulls.asked(1)

        await asyncio.gather(pulls.prefetching.restart(QUEUE), pulls.prefetching.stop_all())
        await settle()

        assert pulls.offsets_asked == [3]


async def test_a_failed_pull_is_retried_after_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as pulls:
        pulls.broker.fail(ResponseCode.NO_PERMISSION, "not now")
        pulls.broker.fail(ResponseCode.NO_PERMISSION, "not now")
        pulls.broker.found(3)
        with caplog.at_level(logging.WARNING):
            pulls.prefetching.start(QUEUE)
            await until(lambda: "not now" in caplog.text)
            await settle()
            assert pulls.offsets_asked == [3]

            await pulls.clock.advance(RETRY_MS)
            await pulls.asked(2)
            arrival = asyncio.ensure_future(pulls.prefetching.wait_for_arrival())
            while not arrival.done():
                await pulls.clock.advance(RETRY_MS)

        assert pulls.taken() == [3]
        # Logged once, not at each attempt.
        assert caplog.text.count("not now") == 1


async def test_a_busy_broker_is_asked_again_soon() -> None:
    async with running() as pulls:
        pulls.broker.fail(ResponseCode.SYSTEM_BUSY, "too much")
        pulls.broker.found(3)
        pulls.prefetching.start(QUEUE)
        await pulls.asked(1)
        arrival = asyncio.ensure_future(pulls.prefetching.wait_for_arrival())

        async with asyncio.timeout(WAIT_SECONDS):
            while not arrival.done():
                await pulls.clock.advance(1)

        assert pulls.taken() == [3]


async def test_the_start_of_a_queue_is_requested_until_it_is_known() -> None:
    async with running() as pulls:
        # An error of any kind: reading must never end silently.
        pulls.start_failures = [StateError("no broker"), ValueError("a mistake")]
        pulls.prefetching.start(QUEUE)
        async with asyncio.timeout(WAIT_SECONDS):
            while not pulls.broker.pulls:
                await pulls.clock.advance(RETRY_MS)

        assert pulls.offsets_asked == [3]
        assert pulls.starts_asked == 3


async def test_an_offset_outside_the_queue_moves_to_the_one_of_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as pulls:
        pulls.broker.nothing(ResponseCode.PULL_OFFSET_MOVED, next_offset=50)
        with caplog.at_level(logging.WARNING):
            pulls.prefetching.start(QUEUE)
            await pulls.asked(2)

        assert pulls.offsets_asked == [3, 50]
        assert "offset=3 min=0 max=100 next=50" in caplog.text


async def test_a_broker_that_returns_the_same_offset_is_asked_only_after_a_pause() -> None:
    async with running() as pulls:
        pulls.broker.nothing(ResponseCode.PULL_OFFSET_MOVED, next_offset=START)
        pulls.prefetching.start(QUEUE)
        await pulls.asked(1)
        await until(pulls.broker.answers.empty)
        await settle()
        assert pulls.offsets_asked == [3]

        async with asyncio.timeout(WAIT_SECONDS):
            while len(pulls.broker.pulls) < 2:
                await pulls.clock.advance(RETRY_MS)

        assert pulls.offsets_asked == [3, 3]


async def test_waiters_can_be_woken() -> None:
    async with running() as pulls:
        arrival = asyncio.ensure_future(pulls.prefetching.wait_for_arrival())
        await settle()

        pulls.prefetching.wake()

        await arrival


async def test_a_queue_can_be_dropped_and_started_at_once() -> None:
    async with running() as pulls:
        pulls.prefetching.start(QUEUE)
        await pulls.asked(1)

        pulls.prefetching.drop(QUEUE)
        pulls.prefetching.start(QUEUE, 70)
        await pulls.asked(2)

        assert pulls.offsets_asked == [3, 70]


async def test_a_reset_inside_the_queue_drops_what_is_buffered() -> None:
    async with running() as pulls:
        pulls.broker.found(3, 4)
        pulls.broker.nothing(ResponseCode.PULL_OFFSET_MOVED, next_offset=1)
        pulls.prefetching.start(QUEUE)
        await pulls.asked(3)

        assert pulls.taken() == []
        assert pulls.offsets_asked == [3, 5, 1]
        assert pulls.buffer.committable() == {QUEUE: 1}


async def test_what_is_buffered_stays_when_older_messages_were_deleted() -> None:
    async with running() as pulls:
        pulls.broker.found(3, 4)
        pulls.broker.nothing(ResponseCode.PULL_OFFSET_MOVED, next_offset=50, min_offset=50)
        pulls.prefetching.start(QUEUE)
        await pulls.asked(3)

        assert pulls.taken() == [3, 4]
        assert pulls.offsets_asked == [3, 5, 50]
