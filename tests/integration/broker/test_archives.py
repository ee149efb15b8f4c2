"""Archives of a real broker: its log waits for their marks, and goes once they have advanced."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orbitmq.clock import ManualClock, SystemClock
from orbitmq.model.archives import Archive
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.archives import (
    AdvanceArchive,
    ArchiveList,
    ListArchives,
    OpenArchive,
    ReleaseArchive,
)
from orbitmq.protocol.requests.maintenance import CleanUnusedTopics
from orbitmq.protocol.requests.sending import SendBatch
from orbitmq.protocol.requests.topics import DeleteTopic
from orbitmq.record.batch import BatchedMessage, encode_batch
from tests.integration.broker.conftest import Peer, Site, crash_image, running, send_header

FILE_BYTES = 128 << 10
HOUR_MS = 3_600_000
OPTIONS = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "cleanResourceInterval": "86400000",
    "timerWheelEnable": "false",
}
# Files are deleted on request, however old they are, as far as no archive needs them.
PRESSED = OPTIONS | {"diskFreeBytesMin": str(1 << 60)}


def later() -> ManualClock:
    """A clock by which files that are written now are past their time."""
    return ManualClock(SystemClock().now_ms() + 100 * HOUR_MS)


async def send(peer: Peer, topic: str = "T", size: int = 40_000, **rest: Any) -> None:
    reply = await peer.send(topic, bytes(size), **rest)
    assert reply.code == ResponseCode.SUCCESS, reply.remark


async def open_archive(peer: Peer, name: str = "lake", topic: str = "T") -> Archive:
    reply = await peer.ask(OpenArchive(name=name, topic=topic, gates=True))
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return msgspec.json.decode(reply.body, type=Archive)


async def advance(
    peer: Peer, *moves: tuple[int, int, int], life: int = 1, name: str = "lake"
) -> Command:
    asked = AdvanceArchive(name=name, life=Long(life))
    return await peer.ask(asked, msgspec.json.encode(moves))


async def listed(peer: Peer) -> ArchiveList:
    reply = await peer.ask(ListArchives(with_figures=True))
    return msgspec.json.decode(reply.body, type=ArchiveList)


async def delete_expired(site: Site) -> int:
    """Run a pass after all entries are on disk; returns where the log begins then."""

    def run() -> None:
        site.broker.store.flush()
        site.broker.store._upkeep.round()
        site.broker.store.delete_expired()

    await asyncio.to_thread(run)
    return site.broker.store.log_start


def place(site: Site, queue_id: int, offset: int, topic: str = "T") -> int:
    ((physical_offset, _, _),) = site.broker.store.entries(topic, queue_id, offset, 1)
    return physical_offset


async def test_files_go_as_the_marks_advance_and_not_before(tmp_path: Path) -> None:
    async with running(tmp_path, later(), **OPTIONS) as site:
        peer = await site.connect()
        for topic in ("T", "other"):
            await peer.make_topic(topic, read=2, write=2)
        await open_archive(peer)
        for number in range(12):
            await send(peer, queue_id=number % 2)
            await send(peer, "other", queue_id=0)

        starts = [await delete_expired(site)]
        seen = [(await listed(peer)).figures["lake"]]
        for mark in range(1, 7):
            # The one that is behind counts.
            assert (await advance(peer, (0, mark - 1, mark))).code == 0
            behind = await delete_expired(site)
            assert behind <= place(site, 1, mark - 1)
            assert (await advance(peer, (1, mark - 1, mark))).code == 0
            starts.append(await delete_expired(site))
            seen.append((await listed(peer)).figures["lake"])
            if mark < 6:
                first = place(site, 0, mark)
                assert starts[-1] == first // FILE_BYTES * FILE_BYTES

        assert starts[0] == 0
        end = site.broker.store.log_end
        assert starts[-1] == end // FILE_BYTES * FILE_BYTES
        assert [one.unarchived_messages for one in seen] == [12, 10, 8, 6, 4, 2, 0]
        assert seen[0].held_files == end // FILE_BYTES
        assert (seen[-1].held_files, seen[-1].held_log_bytes, seen[-1].oldest_ms) == (0, 0, 0)
        assert all(one.missed_messages == 0 for one in seen)
        # Readers still find what the archive would have read.
        assert site.broker.store.end_of("T", 0) == 6


async def test_a_message_that_begins_in_the_next_file_lets_the_file_before_go(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, later(), **OPTIONS) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await open_archive(peer)
        count = 0
        while site.broker.store.log_end <= FILE_BYTES:
            await send(peer)
            count += 1
        assert place(site, 0, count - 1) == FILE_BYTES

        assert (await advance(peer, (0, 0, count - 2))).code == 0
        kept = await delete_expired(site)
        assert (await advance(peer, (0, count - 2, count - 1))).code == 0
        gone = await delete_expired(site)

    assert (kept, gone) == (0, FILE_BYTES)


async def test_every_message_of_a_batch_counts(tmp_path: Path) -> None:
    async with running(tmp_path, later(), **OPTIONS) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await open_archive(peer)
        batch = encode_batch([BatchedMessage(0, bytes(30_000), b"")] * 3)
        for _ in range(2):
            reply = await peer.ask(send_header("T", kind=SendBatch, batch=True), batch)
            assert reply.code == ResponseCode.SUCCESS, reply.remark
        await send(peer)
        assert site.broker.store.end_of("T", 0) == 7
        border = next(n for n in range(7) if place(site, 0, n) >= FILE_BYTES)

        assert (await advance(peer, (0, 0, border - 1))).code == 0
        kept = await delete_expired(site)
        assert (await advance(peer, (0, border - 1, border))).code == 0
        gone = await delete_expired(site)

    assert (kept, gone) == (0, FILE_BYTES)


async def test_marks_and_archives_are_there_after_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    clock = later()
    async with running(tmp_path, clock, **OPTIONS) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await open_archive(peer)
        for _ in range(4):
            await send(peer)
        assert (await advance(peer, (0, 0, 3))).code == 0
        crash_image(site, folder)

    async with running(folder, clock, **OPTIONS) as site:
        peer = await site.connect()
        again = await listed(peer)

        assert again.known.archives["lake"].marks == {0: 3}
        assert again.known.unknown == ""
        assert again.figures["lake"].unarchived_messages == 1
        for _ in range(8):
            await send(peer)
        assert await delete_expired(site) == place(site, 0, 3) // FILE_BYTES * FILE_BYTES


async def test_marks_above_the_end_of_a_log_that_lost_messages_are_lowered(tmp_path: Path) -> None:
    clock = later()
    image = tmp_path / "killed"
    async with running(tmp_path, clock, **OPTIONS) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        for _ in range(2):
            await send(peer)
        await open_archive(peer)
        crash_image(site, image)
        for _ in range(2):
            await send(peer)
        assert (await advance(peer, (0, 0, 4))).code == 0
        config = image / "store" / "config"
        for name in ("archives.json", "archives.json.bak"):
            (config / name).write_bytes((tmp_path / "store" / "config" / name).read_bytes())

    async with running(image, clock, **OPTIONS) as site:
        peer = await site.connect()
        assert site.broker.store.end_of("T", 0) == 2

        assert (await listed(peer)).known.archives["lake"].marks == {0: 2}
        refused = await advance(peer, (0, 4, 4))
        assert refused.code == ResponseCode.ILLEGAL_OPERATION
        assert "is at 2 in queue 0 of topic 'T', not at 4" in (refused.remark or "")


async def test_a_topic_that_was_created_again_is_archived_from_its_beginning(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, later(), **OPTIONS) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await open_archive(peer)
        for _ in range(4):
            await send(peer)
        assert (await advance(peer, (0, 0, 4))).code == 0
        assert (await peer.ask(DeleteTopic(topic="T"))).code == 0
        late = await advance(peer, (0, 4, 4))
        await peer.make_topic("T", read=1, write=1)
        outdated = await advance(peer, (0, 4, 4))
        for _ in range(8):
            await send(peer)

        first = place(site, 0, 0)
        assert await delete_expired(site) == first // FILE_BYTES * FILE_BYTES
        archive = (await listed(peer)).known.archives["lake"]
        assert (archive.life, archive.marks) == (2, {})
        assert 0 < archive.life_from <= first
        assert late.code == ResponseCode.TOPIC_NOT_EXIST
        assert outdated.code == ResponseCode.ILLEGAL_OPERATION
        assert (await advance(peer, (0, 0, 8), life=2)).code == 0

    async with running(tmp_path, later(), **OPTIONS) as site:
        peer = await site.connect()
        archive = (await listed(peer)).known.archives["lake"]
        assert (archive.life, archive.marks) == (2, {0: 8})


async def test_a_deletion_that_only_the_store_knows_ends_the_marks_before_they_move(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, later(), **OPTIONS) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await open_archive(peer)
        for _ in range(3):
            await send(peer)
        assert (await advance(peer, (0, 0, 2))).code == 0
        await asyncio.to_thread(site.broker.store.delete_topic, "T")
        for _ in range(3):
            await send(peer)

        refused = await advance(peer, (0, 2, 3))

        assert refused.code == ResponseCode.ILLEGAL_OPERATION
        assert "is about life 2" in (refused.remark or "")
        assert (await open_archive(peer)).marks == {}
        assert (await advance(peer, (0, 0, 3), life=2)).code == 0


async def test_queues_that_are_cleaned_up_end_their_marks(tmp_path: Path) -> None:
    async with running(tmp_path, later(), **OPTIONS) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await send(peer)
        await open_archive(peer)
        assert (await advance(peer, (0, 0, 1))).code == 0
        await site.broker.topics.delete("T")

        assert (await peer.ask(CleanUnusedTopics())).code == 0

        archive = (await listed(peer)).known.archives["lake"]
        assert (archive.life, archive.marks) == (2, {})


@pytest.mark.parametrize("on_full", ["refuseWrites", "delete"])
async def test_a_log_without_room_refuses_messages_or_costs_what_is_not_archived(
    tmp_path: Path, on_full: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, later(), gateMaxAge="99", gateOnFull=on_full, **PRESSED) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await open_archive(peer)
        for _ in range(8):
            await send(peer)
        end = site.broker.store.log_end

        start = await delete_expired(site)
        reply = await peer.send("T", b"more")

        figures = (await listed(peer)).figures["lake"]
        if on_full == "delete":
            assert start == end // FILE_BYTES * FILE_BYTES
            assert reply.code == ResponseCode.SUCCESS
            assert "log file deleted that is not archived" in caplog.text
            assert "archive=archive 'lake' of topic 'T'" in caplog.text
            assert figures.missed_messages == site.broker.store.start_of("T", 0) > 0
        else:
            assert start == 0
            assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "kept for archive 'lake' of topic 'T', which is at offset 0 of queue 0" in (
                reply.remark or ""
            )
            assert "orbitmq lake release lake" in (reply.remark or "")
            assert figures.missed_messages == 0
            assert (await peer.ask(ReleaseArchive(name="lake"))).code == 0
            assert await delete_expired(site) > 0
            await delete_expired(site)
            assert (await peer.send("T", b"more")).code == ResponseCode.SUCCESS


async def test_a_nearly_full_disk_waits_for_an_archive_that_is_not_too_old(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, later(), gateOnFull="delete", **PRESSED) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await open_archive(peer)
        for _ in range(8):
            await send(peer)
        for path in (tmp_path / "store" / "commitlog").iterdir():
            os.utime(path)

        assert await delete_expired(site) == 0
        assert (await peer.ask(ReleaseArchive(name="lake"))).code == 0
        assert await delete_expired(site) > 0


async def test_a_lost_table_keeps_everything_until_told(tmp_path: Path) -> None:
    clock = later()
    async with running(tmp_path, clock, **OPTIONS) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await open_archive(peer)
        for _ in range(8):
            await send(peer)
    for path in (tmp_path / "store" / "config").glob("archives.json*"):
        path.unlink()

    async with running(tmp_path, clock, **OPTIONS) as site:
        peer = await site.connect()

        assert await delete_expired(site) == 0
        assert "missing, and so is its copy" in (await listed(peer)).known.unknown
        assert (await peer.ask(ReleaseArchive())).code == 0
        assert await delete_expired(site) > 0


async def test_what_cannot_be_archived_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, later(), **OPTIONS) as site:
        peer = await site.connect()
        await peer.make_topic("T", read=1, write=1)
        await peer.make_memory_topic("M")
        await open_archive(peer)

        in_memory = await peer.ask(OpenArchive(name="m", topic="M", gates=True))
        unknown = await peer.ask(OpenArchive(name="u", topic="U", gates=True))
        system = await peer.ask(OpenArchive(name="s", topic="SCHEDULE_TOPIC_XXXX", gates=True))
        ahead = await advance(peer, (0, 0, 1))
        twice = await advance(peer, (0, 0, 0), (0, 0, 0))
        garbled = await peer.ask(AdvanceArchive(name="lake", life=Long(1)), b"[[0,0]]")
        nobody = await advance(peer, (0, 0, 0), name="nobody")

        assert "is kept in memory" in (in_memory.remark or "")
        assert (in_memory.code, system.code) == (ResponseCode.INVALID_PARAMETER,) * 2
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
        assert "which ends at 0" in (ahead.remark or "")
        assert twice.code == ResponseCode.INVALID_PARAMETER
        assert garbled.code == ResponseCode.SYSTEM_ERROR
        assert nobody.code == ResponseCode.QUERY_NOT_FOUND
        assert list((await listed(peer)).known.archives) == ["lake"]
        assert (await listed(peer)).known.archives["lake"].marks == {}
