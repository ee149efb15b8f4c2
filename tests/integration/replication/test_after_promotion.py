"""What a promoted slave and the master that it replaced keep beside the log."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.topics import DeleteTopic
from orbitmq.record.decode import decode_record
from tests.integration.replication.group import Group
from tests.waiting import until


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path) as group:
        yield group


async def test_a_topic_that_a_promoted_slave_had_not_copied_keeps_its_messages(
    group: Group,
) -> None:
    await group.pair()
    await group.send()
    await group.until_copied()
    await group.kill(0)
    # It was created just before the master died.
    await group.brokers[1].topics.delete("T")

    await group.promote(1)
    await group.start(0)
    await group.until_linked(master=1)
    await group.until_copied(0, master=1)
    master, slave = group.brokers[1], group.brokers[0]
    await until(lambda: slave.topics.data_version == master.topics.data_version)

    topic = master.topics.get("T")
    assert slave.topics.get("T") == topic is not None
    # Only one queue had messages.
    assert (topic.read_queues, topic.write_queues) == (8, 8)
    assert [(await group.pull(number)).code for number in (1, 0)] == [ResponseCode.SUCCESS] * 2


async def test_what_is_kept_about_a_log_is_lowered_after_it_was_cut(group: Group) -> None:
    await group.pair()
    await group.send(b"both")
    await group.until_copied()
    await group.stop(1)
    await group.send(b"only the old master")
    await group.commit("T", 2)
    await group.stop(0)
    await group.start(1)
    await group.promote(1)
    await group.stop(1)

    # Nobody knows the new master but the name server's epoch: the log stays, until there is one.
    await group.start(0)
    assert group.brokers[0].offsets.queues("g", "T") == {0: 2}
    await group.start(1)
    await group.until_linked(master=1)
    await group.until_copied(0, master=1)

    broker = group.brokers[0]
    assert broker.store.was_cut is None
    assert broker.offsets.queues("g", "T").get(0, 0) <= 1


async def test_a_slave_forgets_how_far_the_old_master_had_shown_its_log(group: Group) -> None:
    await group.pair(slaves=2)
    await group.send()
    await group.until_copied(1)
    await group.until_copied(2)
    await group.kill(0)
    # The old master had shown another message, which only it had.
    store = group.brokers[2].store
    store.limit_visible(PhysicalOffset(store.log_end + 100))

    await group.promote(1)
    for _ in range(3):
        await group.send(broker_id=1)
    await group.until_copied(2, master=1)

    assert not store.is_fenced
    assert store.visible == group.brokers[1].store.log_end


async def test_a_topic_that_the_old_master_deleted_and_the_new_one_has_is_whole_at_both(
    group: Group,
) -> None:
    await group.pair()
    await group.create_topic(queues=2)
    for number in range(6):
        await group.send(b"%d" % number, queue_id=number % 2)
    await group.send(topic="other")
    await group.until_copied()
    await group.stop(1)
    # The slave does not hear of it any more.
    await group.rpc.call(group.address(), DeleteTopic(topic="T"))
    await group.kill(0)
    await group.start(1)
    await group.promote(1)

    await group.start(0)
    await group.until_linked(master=1)
    await group.send(b"6", broker_id=1)
    await group.until_copied(0, master=1)
    returned = group.brokers[0]
    await until(lambda: returned.topics.get("T") is not None)

    await until(lambda: bounds(group, 0) == bounds(group, 1) == [(0, 4), (0, 3)])
    assert [bodies(group, 0, queue_id) for queue_id in (0, 1)] == [
        [b"0", b"2", b"4", b"6"],
        [b"1", b"3", b"5"],
    ]
    await group.stop(0)
    await group.start(0)
    assert bounds(group, 0) == [(0, 4), (0, 3)]


def bounds(group: Group, broker_id: int) -> list[tuple[int, int]]:
    store = group.brokers[broker_id].store
    return [(store.start_of("T", number), store.end_of("T", number)) for number in (0, 1)]


def bodies(group: Group, broker_id: int, queue_id: int) -> list[bytes]:
    records = group.brokers[broker_id].store.read("T", queue_id, 0).records
    return [decode_record(record).body for record in records]


async def test_a_promoted_slave_shows_only_the_new_messages_of_a_topic_created_again(
    group: Group,
) -> None:
    await group.pair()
    await group.create_topic()
    await group.send(b"old")
    await group.rpc.call(group.address(), DeleteTopic(topic="T"))
    await group.create_topic()
    await group.send(b"new")
    await group.until_copied()
    await group.kill(0)
    await group.promote(1)
    await group.stop(1)
    # As on a slave that had yet to show what it has copied.
    folder = group.folder / "1"
    shutil.rmtree(folder / "consumequeue")
    for file in (folder / "orbitmq").glob("deleted_topics*"):
        file.unlink()

    promoted = await group.start(1)

    assert promoted.is_serving_as("ASYNC_MASTER")
    records = promoted.store.read("T", 0, 0).records
    assert [decode_record(record).body for record in records] == [b"new"]
    assert promoted.store.deleted_topics().keys() == {"T"}
