"""Confirmations: which replies are released, when, and in how many writes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from orbitmq.broker.confirmations import Confirmations
from orbitmq.clock import ManualClock, settle
from orbitmq.errors import StoreFencedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.log.draft import StoreDurability


class FakeConnection:
    """Records what is written to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, frames: bytes) -> None:
        self.writes.append(frames)


def _waiting(clock: ManualClock, *, fenced: bool = False) -> Confirmations:
    return Confirmations(
        flushed=PhysicalOffset(100), is_fenced=lambda: fenced, timeout_ms=5000, clock=clock
    )


def _reply(durability: StoreDurability | None, name: str) -> bytes:
    return f"{name}:{durability.name if durability else None};".encode()


async def test_a_reply_below_the_flushed_end_is_written_at_once() -> None:
    waiting = _waiting(ManualClock())

    reply = waiting.reply_later(PhysicalOffset(100), FakeConnection(), _reply, "a")  # type: ignore[arg-type]

    assert reply == b"a:DISK;"
    assert len(waiting) == 0


async def test_replies_of_one_round_leave_in_one_write_per_connection() -> None:
    waiting = _waiting(ManualClock())
    first, second = FakeConnection(), FakeConnection()
    for end, connection in ((110, first), (120, second), (130, first), (140, first)):
        assert waiting.reply_later(PhysicalOffset(end), connection, _reply, str(end)) == b""  # type: ignore[arg-type]

    waiting.flushed(PhysicalOffset(130))
    await settle()

    assert first.writes == [b"110:DISK;130:DISK;"]
    assert second.writes == [b"120:DISK;"]
    assert len(waiting) == 1


async def test_a_round_that_ends_in_another_thread_releases_replies() -> None:
    waiting = _waiting(ManualClock())
    reached = asyncio.create_task(waiting.wait_for_disk(PhysicalOffset(150)))
    await settle()

    thread = threading.Thread(target=waiting.flushed, args=(PhysicalOffset(200),))
    thread.start()

    assert await reached is StoreDurability.DISK
    thread.join()


async def test_a_wait_that_times_out_reports_memory_only() -> None:
    clock = ManualClock()
    waiting = _waiting(clock)
    connection = FakeConnection()
    waiting.reply_later(PhysicalOffset(110), connection, _reply, "old")  # type: ignore[arg-type]
    await clock.advance(3000)
    waiting.reply_later(PhysicalOffset(120), connection, _reply, "new")  # type: ignore[arg-type]
    assert waiting.oldest_wait_ms == 3000

    await clock.advance(2000)
    waiting.expire()

    assert connection.writes == [b"old:DISK_TIMEOUT;"]
    assert len(waiting) == 1


async def test_all_done_waits_for_the_last() -> None:
    waiting = _waiting(ManualClock())
    waiting.reply_later(PhysicalOffset(110), FakeConnection(), _reply, "a")  # type: ignore[arg-type]
    done = asyncio.create_task(waiting.all_done())
    await settle()
    assert not done.done()

    waiting.flushed(PhysicalOffset(110))

    await done


async def test_all_waiting_replies_are_refused_when_a_sync_fails() -> None:
    waiting = _waiting(ManualClock(), fenced=True)
    connection = FakeConnection()
    waiting.reply_later(
        PhysicalOffset(110),
        connection,  # type: ignore[arg-type]
        _reply,
        "a",
    )
    reached = asyncio.create_task(waiting.wait_for_disk(PhysicalOffset(120)))
    await settle()

    waiting.expire()

    assert connection.writes == [b"a:None;"]
    with pytest.raises(StoreFencedError):
        await reached


async def test_the_waits_of_a_round_are_reported_once() -> None:
    clock = ManualClock()
    waiting = _waiting(clock)
    told: list[tuple[float, float, int]] = []
    waiting.on_released = lambda longest_ms, shortest_ms, count: told.append(
        (longest_ms, shortest_ms, count)
    )
    connection = FakeConnection()
    for end in (110, 120, 130):
        waiting.reply_later(PhysicalOffset(end), connection, _reply, "a")  # type: ignore[arg-type]
        await clock.advance(4)

    waiting.flushed(PhysicalOffset(130))
    await settle()

    assert told == [(12, 4, 3)]
