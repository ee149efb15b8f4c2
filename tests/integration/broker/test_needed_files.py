"""What timers and transactions need of the log: not before it is on disk, and kept while needed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock, SystemClock
from tests.integration.broker.conftest import WAIT_SECONDS, Disk, Peer, Site, make_broker, running
from tests.integration.broker.test_timers import bodies, send
from tests.integration.broker.test_transactions import ROLL_BACK, end, prepare

DAY_MS = 86_400_000
FILE_BYTES = 128 << 10
# Files are deleted on request, however old they are, since the disk always lacks room.
PRESSED = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "diskFreeBytesMin": str(1 << 60),
    "cleanResourceInterval": "86400000",
}


async def _fill(peer: Peer, files: int) -> None:
    for _ in range(files * 2):
        await send(peer, bytes(100_000), "filler")


async def _deleted_up_to(site: Site, physical_offset: int, *, step_ms: int = 1) -> None:
    """Delete files until those below an offset are gone."""
    async with asyncio.timeout(WAIT_SECONDS):
        while site.broker.store.log_start < physical_offset:
            await asyncio.to_thread(site.broker.store.delete_expired)
            await site.clock.advance(step_ms)


async def test_a_timer_that_is_not_on_disk_yet_is_not_delivered(
    site: Site, peer: Peer, disk: Disk
) -> None:
    await peer.make_topic("T", read=1, write=1)
    due_ms = site.clock.now_ms() + 1000
    disk.hold()
    sent = asyncio.create_task(send(peer, TIMER_DELIVER_MS=str(due_ms)))
    await disk.held()

    await site.clock.advance(3000)
    early = site.broker.store.end_of("T", 0, committed=False)
    disk.release()
    await sent
    await site.stored("T", 0, 1)

    assert early == 0
    assert await bodies(peer) == [b"body"]


@pytest.mark.parametrize("kind", ["timer", "half"])
async def test_a_disk_without_room_deletes_nothing_that_is_pending(
    tmp_path: Path, kind: str
) -> None:
    async with running(tmp_path, ManualClock(), **PRESSED) as site:
        peer = await site.connect()
        for topic in ("T", "filler"):
            await peer.make_topic(topic, read=1, write=1)
        await _fill(peer, 1)
        pending = site.broker.store.log_end
        half = None
        if kind == "half":
            half = await prepare(peer, b"pending")
        else:
            await send(peer, b"pending", TIMER_DELAY_MS="100000")
        await _fill(peer, 3)

        await _deleted_up_to(site, FILE_BYTES)
        for _ in range(3):
            await asyncio.to_thread(site.broker.store.delete_expired)
        held = site.broker.store.log_start
        if half is not None:
            await end(peer, half, ROLL_BACK)
        else:
            await site.stored("T", 0, 1)
        await _deleted_up_to(site, pending, step_ms=1000)

    assert FILE_BYTES <= held <= pending


async def test_messages_that_are_pending_are_kept_while_timers_are_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock, **PRESSED) as site:
        peer = await site.connect()
        for topic in ("T", "filler"):
            await peer.make_topic(topic, read=1, write=1)
        await _fill(peer, 1)
        pending = site.broker.store.log_end
        await send(peer, b"pending", TIMER_DELAY_MS="100000")

    async with running(tmp_path, clock, timerWheelEnable="false", **PRESSED) as site:
        peer = await site.connect()
        await _fill(peer, 3)
        await _deleted_up_to(site, FILE_BYTES)
        await site.clock.advance(200_000)
        for _ in range(3):
            await asyncio.to_thread(site.broker.store.delete_expired)
        held = site.broker.store.log_start
        early = await bodies(peer)
    assert "timers are off" in caplog.text
    async with running(tmp_path, clock, **PRESSED) as site:
        peer = await site.connect()
        await site.stored("T", 0, 1)
        late = await bodies(peer)

    assert FILE_BYTES <= held <= pending
    assert (early, late) == ([], [b"pending"])


async def test_timers_that_are_off_and_delivered_keep_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock, **PRESSED) as site:
        peer = await site.connect()
        for topic in ("T", "filler"):
            await peer.make_topic(topic, read=1, write=1)
        await send(peer, b"pending", TIMER_DELAY_MS="1000")
        await site.stored("T", 0, 1)

    async with running(tmp_path, clock, timerWheelEnable="false", **PRESSED) as site:
        peer = await site.connect()
        await _fill(peer, 3)
        await _deleted_up_to(site, 2 * FILE_BYTES)

    assert "timers are off" not in caplog.text


async def test_retention_waits_until_a_starting_broker_knows_what_it_needs(tmp_path: Path) -> None:
    clock = ManualClock(SystemClock().now_ms() + DAY_MS)
    async with running(tmp_path, clock, **PRESSED) as site:
        peer = await site.connect()
        await peer.make_topic("filler", read=1, write=1)
        await _fill(peer, 3)

    store = make_broker(tmp_path, clock, **PRESSED)._open_store()  # as it is before tables are read
    try:
        assert store.delete_expired() == ()
    finally:
        store.close()
    async with running(tmp_path, clock, **PRESSED) as site:
        await _deleted_up_to(site, FILE_BYTES)
