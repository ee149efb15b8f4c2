"""Confirmations: which replies are released, when, and in how many writes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from orbitmq.broker.confirmations import Confirmations
from orbitmq.broker.durability import ON_DISK, Durability
from orbitmq.clock import ManualClock, settle
from orbitmq.errors import StoreFencedError
from orbitmq.model.queues import PhysicalOffset


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


def _reply(durability: Durability | None, name: str) -> bytes:
    if durability is None:
        return f"{name}:refused;".encode()
    copies = f":{durability.copies}" if durability.copies else ""
    return f"{name}:{durability.code.name}:{durability.place}{copies};".encode()


async def test_a_reply_below_the_flushed_end_is_written_at_once() -> None:
    waiting = _waiting(ManualClock())

    reply = waiting.reply_later(PhysicalOffset(100), FakeConnection(), _reply, "a")  # type: ignore[arg-type]

    assert reply == b"a:SUCCESS:DISK;"
    assert len(waiting) == 0


async def test_replies_of_one_round_leave_in_one_write_per_connection() -> None:
    waiting = _waiting(ManualClock())
    first, second = FakeConnection(), FakeConnection()
    for end, connection in ((110, first), (120, second), (130, first), (140, first)):
        assert waiting.reply_later(PhysicalOffset(end), connection, _reply, str(end)) == b""  # type: ignore[arg-type]

    waiting.flushed(PhysicalOffset(130))
    await settle()

    assert first.writes == [b"110:SUCCESS:DISK;130:SUCCESS:DISK;"]
    assert second.writes == [b"120:SUCCESS:DISK;"]
    assert len(waiting) == 1


async def test_a_round_that_ends_in_another_thread_releases_replies() -> None:
    waiting = _waiting(ManualClock())
    reached = asyncio.create_task(waiting.wait_until_safe(PhysicalOffset(150)))
    await settle()

    thread = threading.Thread(target=waiting.flushed, args=(PhysicalOffset(200),))
    thread.start()

    assert await reached is ON_DISK
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

    assert connection.writes == [b"old:FLUSH_DISK_TIMEOUT:MEMORY;"]
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
    reached = asyncio.create_task(waiting.wait_until_safe(PhysicalOffset(120)))
    await settle()

    waiting.expire()

    assert connection.writes == [b"a:refused;"]
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


# --- slaves ------------------------------------------------------------------------------------


class TwoSlaves:
    """Slaves that have what the test says; a send waits for one of them."""

    awaited = 1
    timeout_ms = 3000

    def __init__(self) -> None:
        self.copied = PhysicalOffset(100)
        self.having = 0

    def holding(self, _: PhysicalOffset) -> tuple[int, int]:
        return self.having, 0


def _synced(clock: ManualClock, slaves: TwoSlaves, *, is_sync: bool = True) -> Confirmations:
    return Confirmations(
        flushed=PhysicalOffset(100),
        is_fenced=lambda: False,
        timeout_ms=5000,
        clock=clock,
        is_sync=is_sync,
        slaves=slaves,
    )


async def test_a_reply_waits_for_disk_and_slaves() -> None:
    slaves, connection = TwoSlaves(), FakeConnection()
    waiting = _synced(ManualClock(), slaves)
    waiting.reply_later(PhysicalOffset(110), connection, _reply, "a")  # type: ignore[arg-type]

    waiting.flushed(PhysicalOffset(110))
    await settle()
    assert connection.writes == []
    slaves.copied, slaves.having = PhysicalOffset(110), 1
    waiting.copies_changed()
    await settle()

    assert connection.writes == [b"a:SUCCESS:DISK:2;"]


async def test_under_async_flush_a_reply_waits_for_slaves_alone() -> None:
    slaves, connection = TwoSlaves(), FakeConnection()
    waiting = _synced(ManualClock(), slaves, is_sync=False)
    waiting.reply_later(PhysicalOffset(110), connection, _reply, "a")  # type: ignore[arg-type]

    slaves.copied, slaves.having = PhysicalOffset(110), 2
    waiting.copies_changed()
    await settle()

    assert connection.writes == [b"a:SUCCESS:MEMORY:3;"]


async def test_a_reply_says_that_slaves_took_too_long() -> None:
    clock, connection = ManualClock(), FakeConnection()
    waiting = _synced(clock, TwoSlaves())
    waiting.reply_later(PhysicalOffset(110), connection, _reply, "a")  # type: ignore[arg-type]
    waiting.flushed(PhysicalOffset(110))
    await clock.advance(2999)
    waiting.expire()
    assert connection.writes == []

    await clock.advance(1)
    waiting.expire()

    assert connection.writes == [b"a:FLUSH_SLAVE_TIMEOUT:DISK:1;"]


async def test_a_reply_says_that_there_are_too_few_slaves() -> None:
    slaves, connection = TwoSlaves(), FakeConnection()
    waiting = _synced(ManualClock(), slaves)
    slaves.copied = PhysicalOffset(2**63 - 1)
    waiting.reply_later(PhysicalOffset(110), connection, _reply, "a")  # type: ignore[arg-type]

    waiting.flushed(PhysicalOffset(110))
    await settle()

    assert connection.writes == [b"a:SLAVE_NOT_AVAILABLE:DISK:1;"]
