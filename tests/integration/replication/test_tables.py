"""A slave's tables are its master's within moments, not only at the next interval."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.clock import SystemClock
from orbitmq.model.groups import GroupConfig
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.groups import UpdateGroup
from orbitmq.protocol.requests.locking import LockQueues, QueuesToLock
from orbitmq.protocol.requests.replication import FollowMaster, FollowReply
from orbitmq.protocol.requests.topics import DeleteTopic
from tests.integration.broker.conftest import Peer
from tests.integration.replication.group import Group
from tests.waiting import until

_INTERVAL_MS = 3000


class NoIntervals(SystemClock):
    """A clock by which the interval of the tables is never over."""

    async def sleep_ms(self, delay_ms: float) -> None:
        if delay_ms == _INTERVAL_MS:
            await asyncio.Event().wait()
        await super().sleep_ms(delay_ms)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path, clock=NoIntervals()) as group:
        await group.pair()
        # The tables of a new link are copied.
        await until(lambda: has_tables_of_master(group))
        yield group


def has_tables_of_master(group: Group) -> bool:
    master, slave = group.brokers[0], group.brokers[1]
    return (
        slave.topics.data_version == master.topics.data_version
        and slave.groups.data_version == master.groups.data_version
    )


async def test_topics_groups_and_locks_survive_a_master_that_dies_at_once(group: Group) -> None:
    old = Peer(group.address(), group.rpc)
    slave = group.brokers[1]
    await group.create_topic("doomed")
    await group.send(topic="doomed")
    await until(lambda: slave.topics.get("doomed") is not None)

    await group.create_topic("T")
    await group.rpc.call(
        group.address(), UpdateGroup(), body=java_json.encode(GroupConfig(name="billing"))
    )
    await old.heartbeat("c1", group="g", topic="T")
    queues = [MessageQueue(topic="T", broker_name="group-a", queue_id=0)]
    asked = QueuesToLock(consumer_group="g", client_id="c1", queues=queues)
    await old.ask(LockQueues(), java_json.encode(asked))
    await group.rpc.call(group.address(), DeleteTopic(topic="doomed"))
    copied = group.folder / "1" / "orbitmq" / "queue_locks"
    await until(lambda: copied.exists() and b"c1" in copied.read_bytes())
    await until(lambda: has_tables_of_master(group))
    await group.kill(0)
    await group.promote(1)

    new = group.brokers[1]
    assert new.topics.get("T") is not None
    assert new.topics.get("doomed") is None
    assert new.groups.get("billing") is not None
    assert list(new.tables.locks.owners()) == [("g", queues[0], "c1")]


async def test_many_changes_in_a_row_are_copied_together(group: Group) -> None:
    rounds: list[frozenset[str]] = []
    group.brokers[1].topics.listen(rounds.append)

    for number in range(100):
        await group.create_topic(f"T{number}")
    await until(lambda: has_tables_of_master(group))

    assert len(frozenset().union(*rounds)) == 100
    assert len(rounds) < 50


async def test_a_change_that_cannot_be_copied_does_not_stop_later_ones(group: Group) -> None:
    slave = group.brokers[1]
    await group.create_topic("doomed")
    await group.send(topic="doomed")
    await group.until_copied()
    await group.until_has_topic("doomed")
    slave.store.parts.queues.sync()
    (file,) = (group.folder / "1" / "consumequeue" / "doomed" / "0").iterdir()
    file.unlink()
    file.mkdir()

    await group.rpc.call(group.address(), DeleteTopic(topic="doomed"))
    await until(lambda: not slave.store.has_queues("doomed"))
    await group.create_topic("T")

    await until(lambda: slave.topics.get("T") is not None)
    assert slave.topics.get("doomed") is None


async def test_changes_are_copied_again_after_a_restart_of_the_master(group: Group) -> None:
    await group.stop(0)
    await group.start(0)
    await group.until_linked()

    await group.create_topic("T")

    await until(lambda: group.brokers[1].topics.get("T") is not None)


async def test_a_slave_that_does_not_ask_about_tables_is_answered_by_the_log_only(
    group: Group,
) -> None:
    visible = group.brokers[0].store.visible
    asked = FollowMaster(
        broker_name=group.name,
        broker_id=Long(7),
        broker_address="127.0.0.1:1",
        visible=Long(visible),
        wait_ms=5000,
    )
    waiting = asyncio.create_task(group.rpc.call(group.address(), asked))
    await group.create_topic("T")
    await until(lambda: has_tables_of_master(group))
    held = not waiting.done()

    await group.send()

    assert held
    assert FollowReply.decode((await waiting).fields).visible > visible
