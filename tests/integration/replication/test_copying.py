"""Slaves copy their master's log, and show what it shows."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.topics import DeleteTopic
from orbitmq.record.decode import decode_record, decode_records
from tests.integration.replication.group import FILE_BYTES, Group
from tests.waiting import until


async def test_an_empty_slave_copies_the_whole_log(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.start(0)
        await group.create_topic()
        body = b"x" * 100_000
        for number in range(3 * FILE_BYTES // len(body)):
            await group.send(body + b"%d" % number)

        await group.start(1)
        await group.until_copied()

        assert len(group.brokers[0].store.file_starts()) > 2
        assert group.log_of(1) == group.log_of(0)


async def test_a_slave_shows_messages_as_they_are_sent(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic()
        for number in range(20):
            await group.send(b"%d" % number)
        await group.until_copied()

        store = group.brokers[1].store
        assert store.end_of("T", 0) == 20
        assert group.log_of(1) == group.log_of(0)


async def test_a_slave_resumes_after_a_restart(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic()
        await group.send(b"one")
        await group.until_copied()
        await group.stop(1)
        await group.send(b"two")

        await group.start(1)
        await group.until_copied()

        assert group.log_of(1) == group.log_of(0)


async def test_a_slave_resumes_after_the_restart_of_its_master(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic()
        await group.send(b"one")
        await group.until_copied()
        await group.stop(0)

        await group.start(0)
        await group.send(b"two")
        await group.until_linked()
        await group.until_copied()

        assert group.log_of(1) == group.log_of(0)


async def test_a_slave_refuses_messages_and_names_its_master(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic()

        reply = await group.send(broker_id=1)

        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert group.address(0) in reply.remark


async def test_a_slave_is_read_like_its_master(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.start(0)
        await group.create_topic()
        await group.send(b"one")
        slave = await group.start(1)
        await group.until_copied()
        await until(lambda: slave.topics.get("T"))

        reply = await group.pull(1)

        assert [message.body for message in decode_records(reply.body)] == [b"one"]


async def test_a_slave_keeps_what_its_master_knows(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        master, slave = await group.pair()
        await group.create_topic("orders", queues=3)
        await group.send(topic="orders")
        await group.commit("orders", 1)
        await until(lambda: slave.offsets.get("g", "orders", 0) == 1)

        assert slave.topics.get("orders") == master.topics.get("orders")


async def test_offsets_that_were_committed_at_a_slave_find_their_way_back(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic()
        for _ in range(3):
            await group.send()
        await group.commit("T", 1)
        slave = group.brokers[1]
        await until(lambda: slave.offsets.get("g", "T", 0) == 1)
        await group.until_copied()
        await group.stop(0)

        await group.commit("T", 3, broker_id=1)
        master = await group.start(0)

        await until(lambda: master.offsets.get("g", "T", 0) == 3)


async def test_a_topic_that_was_deleted_and_created_again_begins_anew(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        _, slave = await group.pair()
        await group.create_topic(queues=2)
        for number in range(6):
            await group.send(b"old %d" % number, queue_id=number % 2)
        await group.until_copied()

        await group.rpc.call(group.address(), DeleteTopic(topic="T"))
        await group.create_topic(queues=2)
        for number in range(3):
            await group.send(b"new %d" % number, queue_id=number % 2)
        await group.until_copied()

        assert [slave.store.end_of("T", queue_id) for queue_id in (0, 1)] == [2, 1]
        records = slave.store.read("T", 0, 0).records
        assert [decode_record(record).body for record in records] == [b"new 0", b"new 2"]
        await group.stop(1)
        slave = await group.start(1)
        assert [slave.store.end_of("T", queue_id) for queue_id in (0, 1)] == [2, 1]


async def test_a_slave_deletes_log_files_once_its_master_has_deleted_them(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        options = {"fileReservedTime": "0"}
        master, slave = await group.pair(options=options)
        await group.create_topic()
        for _ in range(3 * FILE_BYTES // 100_000):
            await group.send(b"x" * 100_000)
        await group.until_copied()
        await until(lambda: slave.store.parts.progress_file.saved.dispatched >= 2 * FILE_BYTES)
        await asyncio.to_thread(slave.store.delete_expired)
        assert slave.store.log_start == 0

        await until(lambda: master.store.parts.progress_file.saved.dispatched >= 2 * FILE_BYTES)
        await asyncio.to_thread(master.store.delete_expired)
        assert master.store.log_start > 0

        async def deleted() -> None:
            while slave.store.log_start < master.store.log_start:
                await asyncio.to_thread(slave.store.delete_expired)

        await asyncio.wait_for(deleted(), 60)
