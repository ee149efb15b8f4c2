"""Delay delivery: when messages move, where to, and what progress is saved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.delay.delivery import DelayDelivery, DueTimes
from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.clock import ManualClock
from orbitmq.errors import StoreFencedError
from orbitmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from orbitmq.store.config import FlushMode
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from tests.unit.store.stores import message, open_store

LEVELS_MS = (1000, 5000)
WAIT_SECONDS = 60
DELAY_MS = 10_000


class Watched(DelayDelivery):
    """Tells when no round is under way."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.at_rest = asyncio.Event()
        self.at_rest.set()

    async def deliver_due(self) -> None:
        self.at_rest.clear()
        try:
            await super().deliver_due()
        finally:
            self.at_rest.set()


@asynccontextmanager
async def delivering(
    folder: Path, clock: ManualClock, store: MessageStore
) -> AsyncIterator[tuple[Watched, list[Draft]]]:
    progress = DelayProgress(folder / "config", clock=clock)
    await progress.load()
    delivered: list[Draft] = []
    delivery = Watched(
        store=store,
        progress=progress,
        levels_ms=LEVELS_MS,
        on_delivered=delivered.append,
        save_interval_ms=10_000,
        clock=clock,
    )
    delivery.start()
    try:
        yield delivery, delivered
    finally:
        await delivery.stop()


async def moved(clock: ManualClock, delivery: Watched, *offsets: int) -> None:
    """Advance the clock until the levels have reached their offsets."""
    async with asyncio.timeout(WAIT_SECONDS):
        while tuple(delivery.offsets.values()) != offsets:
            await clock.advance(100)
            # A round reads in a thread: time stands still until it is over.
            await delivery.at_rest.wait()


def delayed(level: int, body: bytes = b"body", topic: str = "orders", queue_id: str = "2") -> Draft:
    return message(
        body,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        flag=3,
        born_ms=77,
        reconsume_times=4,
        properties={"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": queue_id, "KEYS": "k"},
    )


async def test_a_message_moves_when_it_is_due_and_never_before(tmp_path: Path) -> None:
    clock = ManualClock()
    start_ms = clock.now_ms()
    with open_store(tmp_path, clock=clock) as store:
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            store.put(delayed(1, b"first"))
            store.put(delayed(2, b"second"))

            await moved(clock, delivery, 1, 0)
            assert [draft.body for draft in delivered] == [b"first"]
            await moved(clock, delivery, 1, 1)

            assert [draft.body for draft in delivered] == [b"first", b"second"]
            store.flush()
            first, second = store.find("orders", "k")
            assert (first.topic, first.queue_id, first.flag) == ("orders", 2, 3)
            assert (first.born_ms, first.reconsume_times) == (77, 4)
            assert first.properties["REAL_TOPIC"] == "orders"
            assert (first.properties["DELAY"], second.properties["DELAY"]) == ("1", "2")
            assert first.store_ms >= start_ms + 1000
            assert second.store_ms >= start_ms + 5000


async def test_more_messages_than_one_batch_are_moved_in_order(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock=clock, flush_mode=FlushMode.ASYNC) as store:
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            for number in range(300):
                store.append(delayed(1, b"%d" % number))
            store.flush()
            store.put(delayed(1, b"300"))
            await moved(clock, delivery, 301, 0)

            assert [int(draft.body) for draft in delivered] == list(range(301))


async def test_delivery_resumes_where_it_stopped(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock=clock) as store:
        async with delivering(tmp_path, clock, store) as (delivery, _):
            store.put(delayed(1, b"before"))
            await moved(clock, delivery, 1, 0)
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            store.put(delayed(1, b"after"))
            await moved(clock, delivery, 2, 0)

            assert [draft.body for draft in delivered] == [b"after"]


async def test_progress_beyond_the_queue_is_clamped_to_its_end(tmp_path: Path) -> None:
    clock = ManualClock()
    progress = DelayProgress(tmp_path / "config", clock=clock)
    await progress.load()
    await progress.save({1: 500})  # type: ignore[dict-item]
    with open_store(tmp_path, clock=clock) as store:
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            store.put(delayed(1))
            await moved(clock, delivery, 1, 0)

            assert len(delivered) == 1


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [("", "0"), ("orders", "x"), ("orders", "9" * 5000), (HALF_TOPIC, "0"), ("a/b", "0")],
)
async def test_a_message_without_a_valid_queue_is_skipped_and_logged(
    tmp_path: Path, topic: str, queue_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock=clock) as store:
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            store.put(delayed(1, topic=topic, queue_id=queue_id))
            store.put(delayed(1, b"next"))
            await moved(clock, delivery, 2, 0)

            assert [draft.body for draft in delivered] == [b"next"]
    assert caplog.text.count("delayed message skipped") == 1
    assert "-t SCHEDULE_TOPIC_XXXX -i 0 -o 0" in caplog.text


async def test_a_message_that_became_too_large_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock=clock) as store:
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            store.put(delayed(1, b"large" * 100))
            store.put(delayed(1, b"small"))
            store.appender.body_bytes_max = 100
            await moved(clock, delivery, 2, 0)

            assert [draft.body for draft in delivered] == [b"small"]
    assert caplog.text.count("a body of 500 bytes is above the limit of 100") == 1


async def test_messages_whose_records_are_damaged_are_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock=clock) as store:
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            store.put(delayed(1))
            store.put(delayed(1))
            for physical_offset, _, _ in store.entries(SCHEDULE_TOPIC, 0, 0, 2):
                store.parts.log.files[0].view[physical_offset + 4] ^= 0xFF
            await moved(clock, delivery, 2, 0)

            assert delivered == []
    assert "delayed messages lost level=1 count=2 first=0 last=1" in caplog.text


@pytest.mark.parametrize(
    ("field", "value"), [(0, 2**40), (1, -5), (2, 2**62), (2, 0), (2, -(2**62))]
)
async def test_a_damaged_entry_neither_loses_a_message_nor_changes_when_it_is_due(
    tmp_path: Path, field: int, value: int
) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock=clock) as store:
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            for number in range(3):
                store.put(delayed(1, b"%d" % number))
            (queue,) = store.parts.queues
            queue.write()
            entry = list(store.entries(SCHEDULE_TOPIC, 0, 1, 1)[0])
            entry[field] = value
            with (queue.folder / f"{0:020d}").open("r+b") as file:
                file.seek(ENTRY_BYTES)
                file.write(ENTRY.pack(*entry))

            await clock.advance(900)
            await delivery.at_rest.wait()
            assert delivered == []
            await moved(clock, delivery, 3, 0)

            assert [draft.body for draft in delivered] == [b"0", b"1", b"2"]


async def test_a_clock_set_back_delivers_no_message_early(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock=clock) as store:
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            store.put(delayed(2, b"before"))
            clock.adjust(-3_600_000)
            store.put(delayed(2, b"after"))
            set_back_ms = clock.monotonic_ms()

            await clock.advance(4900)
            assert delivered == []
            await moved(clock, delivery, 0, 2)

            assert [draft.body for draft in delivered] == [b"before", b"after"]
            assert clock.monotonic_ms() - set_back_ms >= 5000


async def test_a_level_that_fails_does_not_affect_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock=clock) as store:
        read = store.entries

        def fail_at_level_1(
            topic: str, queue_id: int, offset: int, count_max: int
        ) -> list[tuple[int, int, int]]:
            if queue_id == 0:
                raise RuntimeError("broken")
            return read(topic, queue_id, offset, count_max)

        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            store.put(delayed(1, b"first"))
            store.put(delayed(2, b"second"))
            with monkeypatch.context() as patch:
                patch.setattr(store, "entries", fail_at_level_1)
                await moved(clock, delivery, 0, 1)
            assert [draft.body for draft in delivered] == [b"second"]
            assert caplog.text.count("RuntimeError: broken") == 1

            await moved(clock, delivery, 1, 1)
            assert [draft.body for draft in delivered] == [b"second", b"first"]


async def test_a_message_waits_while_the_store_refuses_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    caplog.set_level(logging.WARNING)

    def refuse(_: Draft) -> None:
        raise StoreFencedError("the disk is full")

    with open_store(tmp_path, clock=clock) as store:
        async with delivering(tmp_path, clock, store) as (delivery, delivered):
            store.put(delayed(1))
            with monkeypatch.context() as patch:
                patch.setattr(store, "append", refuse)
                async with asyncio.timeout(WAIT_SECONDS):
                    while "delayed messages waiting level=1" not in caplog.text:
                        await clock.advance(100)
                        await delivery.at_rest.wait()
                await clock.advance(1000)
                assert (delivered, delivery.offsets[1]) == ([], 0)
            assert caplog.text.count("delayed messages waiting") == 1

            await moved(clock, delivery, 1, 0)
            assert len(delivered) == 1


def test_an_entry_is_due_at_its_time() -> None:
    times = DueTimes(DELAY_MS)

    times.note(1, 15_000, now_ms=5000, monotonic_ms=0)

    assert not times.is_due(0, 15_000, now_ms=14_999, monotonic_ms=9999)
    assert times.is_due(0, 15_000, now_ms=15_000, monotonic_ms=10_000)


def test_an_entry_too_far_ahead_waits_the_delay_from_when_it_was_seen() -> None:
    times = DueTimes(DELAY_MS)

    times.note(1, 999_000, now_ms=5000, monotonic_ms=70)

    assert not times.is_due(0, 999_000, now_ms=15_000, monotonic_ms=10_069)
    assert times.is_due(0, 999_000, now_ms=15_000, monotonic_ms=10_070)
    assert not times.is_due(1, 999_000, now_ms=15_000, monotonic_ms=10_070)


def test_each_entry_waits_from_when_it_was_seen_within_a_hundredth_of_the_delay() -> None:
    times = DueTimes(DELAY_MS)

    times.note(1, 999_000, now_ms=0, monotonic_ms=0)
    times.note(2, 999_000, now_ms=99, monotonic_ms=99)  # too soon to be noted apart
    times.note(3, 999_000, now_ms=100, monotonic_ms=100)

    assert times.is_due(0, 999_000, now_ms=10_099, monotonic_ms=10_099)
    assert not times.is_due(1, 999_000, now_ms=10_099, monotonic_ms=10_099)
    assert times.is_due(2, 999_000, now_ms=10_100, monotonic_ms=10_100)


def test_a_corrected_clock_is_used_again() -> None:
    times = DueTimes(DELAY_MS)

    times.note(1, 999_000, now_ms=0, monotonic_ms=0)

    assert times.is_due(0, 999_000, now_ms=999_000, monotonic_ms=1)
