"""Archives follow the master to its slaves, whose logs wait for the same, also once promoted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from orbitmq.model.archives import Archive
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.archives import (
    AdvanceArchive,
    ArchiveList,
    ListArchives,
    OpenArchive,
    ReleaseArchive,
)
from orbitmq.protocol.requests.topics import DeleteTopic
from tests.integration.replication.group import FILE_BYTES, Group
from tests.integration.replication.test_tables import NoIntervals
from tests.waiting import until

# Files are past their time as soon as they are written, and deleted on request only.
OPTIONS = {"fileReservedTime": "0", "cleanResourceInterval": "86400000"}
BODY = bytes(FILE_BYTES // 3)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    # What changes is copied at once, without the interval.
    async with Group(tmp_path, clock=NoIntervals()) as group:
        yield group


async def open_archive(group: Group, broker_id: int = 0) -> Archive:
    asked = OpenArchive(name="lake", topic="T", gates=True)
    reply = await group.rpc.call(group.address(broker_id), asked)
    return msgspec.json.decode(reply.body, type=Archive)


async def advance(
    group: Group, before: int, mark: int, broker_id: int = 0, *, life: int = 1
) -> None:
    asked = AdvanceArchive(name="lake", life=Long(life))
    body = msgspec.json.encode([(0, before, mark)])
    await group.rpc.call(group.address(broker_id), asked, body=body)


async def until_same_archives(group: Group, broker_id: int = 1) -> None:
    def is_same() -> bool:
        master, slave = group.brokers[0].tables.archives, group.brokers[broker_id].tables.archives
        return master.known == slave.known and bool(slave.known.archives)

    await until(is_same)


async def delete_expired(group: Group, broker_id: int) -> int:
    """Run a pass after all entries are on disk; returns where the log begins then."""
    store = group.brokers[broker_id].store

    def run() -> None:
        store.flush()
        store._upkeep.round()
        store.delete_expired()

    await asyncio.to_thread(run)
    return store.log_start


async def fill(group: Group, count: int, broker_id: int = 0) -> None:
    for _ in range(count):
        reply = await group.send(BODY, broker_id, topic="T")
        assert reply.code == ResponseCode.SUCCESS, reply.remark


async def test_a_slave_and_the_master_that_it_becomes_keep_what_is_not_archived(
    group: Group,
) -> None:
    await group.pair(options=OPTIONS)
    await group.create_topic()
    await open_archive(group)
    await fill(group, 8)
    await advance(group, 0, 4)
    await group.until_copied()
    await until_same_archives(group)
    await group.until_has_topic("T")
    place = group.brokers[0].store.entries("T", 0, 4, 1)[0][0]
    kept_from = place // FILE_BYTES * FILE_BYTES

    # A slave keeps what its master keeps, however far its archives are.
    before = await delete_expired(group, 1)
    at_master = await delete_expired(group, 0)
    await group.kill(0)
    await group.promote(1)
    promoted = await delete_expired(group, 1)
    await advance(group, 4, 8, 1)
    archived = await delete_expired(group, 1)

    assert (before, at_master, promoted) == (0, kept_from, kept_from)
    assert archived == group.brokers[1].store.log_end // FILE_BYTES * FILE_BYTES
    assert group.brokers[1].tables.archives.require("lake").marks == {0: 8}


async def test_an_archive_that_is_released_is_released_at_slaves(group: Group) -> None:
    await group.pair(options=OPTIONS)
    await group.create_topic()
    await open_archive(group)
    await until_same_archives(group)

    await group.rpc.call(group.address(), ReleaseArchive(name="lake"))

    slave = group.brokers[1].tables.archives
    await until(lambda: not slave.known.archives)


async def test_a_slave_lists_archives_and_changes_none(group: Group) -> None:
    await group.pair(options=OPTIONS)
    await group.create_topic()
    await open_archive(group)
    await until_same_archives(group)

    reply = await group.rpc.call(group.address(1), ListArchives(with_figures=True))

    assert list(msgspec.json.decode(reply.body, type=ArchiveList).figures) == ["lake"]
    for asked in (
        OpenArchive(name="lake", topic="T", gates=True),
        ReleaseArchive(name="lake"),
        AdvanceArchive(name="lake", life=Long(1)),
    ):
        refused = await group.rpc.invoke(group.address(1), request(asked))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_promoted_slave_without_the_newest_messages_does_not_count_them_as_archived(
    group: Group,
) -> None:
    await group.pair(options=OPTIONS)
    await group.create_topic()
    await open_archive(group)
    await fill(group, 2)
    await group.until_copied()
    await until_same_archives(group)
    await group.until_has_topic("T")
    slave = group.brokers[1]
    # The tables arrive, and the log does not.
    known = group.brokers[0].tables.archives.known
    ahead = msgspec.structs.replace(known.archives["lake"], marks={0: 5})
    await slave.tables.archives.follow(
        msgspec.structs.replace(known, archives={"lake": ahead}, revision=known.revision + 1)
    )
    await group.kill(0)

    await group.promote(1)
    await fill(group, 4, 1)

    archive = group.brokers[1].tables.archives.require("lake")
    assert (archive.marks, archive.life) == ({0: 2}, 1)
    place = group.brokers[1].store.entries("T", 0, 2, 1)[0][0]
    assert await delete_expired(group, 1) == place // FILE_BYTES * FILE_BYTES


async def test_a_promoted_slave_with_marks_of_a_deleted_topic_archives_the_new_one(
    group: Group,
) -> None:
    await group.pair(options=OPTIONS)
    await group.create_topic()
    await open_archive(group)
    await fill(group, 3)
    await advance(group, 0, 3)
    await group.until_copied()
    await until_same_archives(group)
    outdated = group.brokers[0].tables.archives.known
    await group.rpc.call(group.address(), DeleteTopic(topic="T"))
    await group.create_topic()
    await fill(group, 5)
    await group.until_copied()
    await until_same_archives(group)
    await until(lambda: group.brokers[1].store.end_of("T", 0) == 5)
    at_slave = group.brokers[1].tables.archives.require("lake")
    # As if the master had died before its table was copied.
    await group.brokers[1].tables.archives.follow(outdated)
    await group.kill(0)

    await group.promote(1)

    archive = group.brokers[1].tables.archives.require("lake")
    assert (at_slave.life, at_slave.marks) == (2, {})
    assert (archive.life, archive.marks) == (2, {})
    place = group.brokers[1].store.entries("T", 0, 0, 1)[0][0]
    assert await delete_expired(group, 1) == place // FILE_BYTES * FILE_BYTES


async def test_a_master_that_returns_as_a_slave_gets_the_marks_of_the_new_one(
    group: Group,
) -> None:
    await group.pair(options=OPTIONS)
    await group.create_topic()
    await open_archive(group)
    await fill(group, 4)
    await group.until_copied()
    await until_same_archives(group)
    await group.until_has_topic("T")
    await group.kill(0)
    await group.promote(1)
    await advance(group, 0, 4, 1)

    await group.start(0)
    await group.until_linked(master=1)

    await until(lambda: group.brokers[0].tables.archives.require("lake").marks == {0: 4})


async def test_a_slave_that_is_promoted_without_a_table_keeps_everything_until_told(
    group: Group,
) -> None:
    await group.pair(options=OPTIONS)
    await group.create_topic()
    await fill(group, 6)
    await group.until_copied()
    await group.until_has_topic("T")
    await group.stop(1)
    await group.kill(0)
    for path in (group.folder / "1" / "config").glob("archives.json*"):
        path.unlink()
    await group.start(1)

    await group.promote(1)

    assert "promoted before it had" in group.brokers[1].tables.archives.known.unknown
    await open_archive(group, 1)
    await advance(group, 0, 6, 1)
    assert await delete_expired(group, 1) == 0
    await group.rpc.call(group.address(1), ReleaseArchive())
    assert await delete_expired(group, 1) > 0


async def test_a_cut_of_the_log_lowers_the_marks_of_what_is_cut(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    await group.pair(options=OPTIONS)
    await group.create_topic()
    await open_archive(group)
    await fill(group, 2)
    await group.until_copied()
    await until_same_archives(group)
    await group.until_has_topic("T")
    await group.stop(1)
    # What only the old master has, and its archive.
    await fill(group, 3)
    await advance(group, 0, 5)
    await group.kill(0)
    await group.start(1)
    await group.promote(1)
    await fill(group, 1, 1)

    await group.start(0)
    await group.until_linked(master=1)
    await group.until_copied(0, master=1)

    assert "marks lowered archive=lake topic=T queues=[0]" in caplog.text
    archives = group.brokers[0].tables.archives
    await until(lambda: archives.require("lake").marks.get(0, 0) == 0)
    assert group.brokers[1].tables.archives.require("lake").mark(0) == 0


async def test_a_mark_that_was_answered_survives_a_kill_of_the_process(group: Group) -> None:
    await group.start_apart(**OPTIONS)
    await group.create_topic()
    await open_archive(group)
    for number in range(1, 21):
        await fill(group, 1)
        await advance(group, number - 1, number)
    await group.kill(0)

    await group.start(0, **OPTIONS)

    assert group.brokers[0].tables.archives.require("lake").marks == {0: 20}
    assert group.brokers[0].tables.archives.known.unknown == ""
    await advance(group, 20, 20)
