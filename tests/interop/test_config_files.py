"""A config folder handed from one broker to the other and back: topics, groups, offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.groups.committed_offsets import CommittedOffsets
from orbitmq.broker.groups.group_table import GroupTable
from orbitmq.broker.topics.system_topics import system_topics
from orbitmq.broker.topics.topic_table import TopicTable
from orbitmq.clock import ManualClock
from orbitmq.model.groups import GroupConfig
from orbitmq.model.topics import TopicConfig
from tests.interop import wire
from tests.interop.drivers import JavaDriver
from tests.interop.official import CLUSTER, OfficialBroker
from tests.interop.peers import BROKERS, NameServer, Peer

pytestmark = pytest.mark.interop

MESSAGES = 40
QUEUES = 4


@pytest.fixture(params=BROKERS, ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line of official brokers that shares the folder."""
    value: Peer = request.param
    return value


@dataclass
class Tables:
    """What we read from a config folder."""

    topics: TopicTable
    groups: GroupTable
    offsets: CommittedOffsets


async def loaded(folder: Path, broker_name: str) -> Tables:
    config = folder / "store" / "config"
    clock = ManualClock()
    tables = Tables(
        TopicTable(config, clock=clock, system_topics=system_topics(CLUSTER, broker_name)),
        GroupTable(config, clock=clock),
        CommittedOffsets(config, clock=clock),
    )
    await tables.topics.load()
    await tables.groups.load()
    await tables.offsets.load()
    return tables


async def leave_our_changes(tables: Tables, topic: str, group: str) -> None:
    """Change all three files the way a broker of ours does."""
    await tables.topics.put(
        TopicConfig(name=f"{topic}-ours", read_queues=3, write_queues=2),
        "+message.type=FIFO,+orbitmq.storage=memory",
    )
    await tables.groups.put(msgspec.structs.replace(tables.groups.require(group), retries_max=5))
    await tables.groups.put(GroupConfig(name=f"{group}-ours", allows_consuming=False))
    tables.offsets.commit(group, topic, 0, 1)
    tables.offsets.commit(f"{group}-ours", f"{topic}-ours", 2, 7)
    await tables.offsets.save()


def serve_once(broker: OfficialBroker, work: Callable[[], None]) -> None:
    """Let an official broker run while `work` is done, and stop it as an operator does."""
    broker.process.start()
    try:
        broker.wait_ready()
        work()
        broker.process.stop()
    finally:
        broker.process.kill()


@pytest.mark.scenario("peer", "hands its config folder to us and takes it back")
def test_topics_groups_and_offsets_survive_the_way_to_us_and_back(
    peer: Peer,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    drivers: Callable[[str], JavaDriver],
    new_topic: str,
) -> None:
    name_server = name_servers["ours"].address
    name = f"config-{peer.line}"
    group = f"group-{new_topic}"
    folder = new_folder(name)
    driver = drivers(peer.line)
    first = OfficialBroker(peer.line, name, folder, [name_server])

    def update_group(broker: OfficialBroker, changed: str, retries: int) -> None:
        driver.mqadmin(
            "updateSubGroup", "-b", broker.address, "-g", changed, "-r", str(retries),
            "-n", name_server,
        )  # fmt: skip

    def consume_all() -> None:
        first.create_topic(new_topic)
        update_group(first, group, 3)
        driver.produce(name_server, new_topic, MESSAGES)
        driver.consume(name_server, new_topic, MESSAGES, group=group)
        # A consumer that stops right after its last message may leave that one uncommitted.
        for queue_id in range(QUEUES):
            offset = wire.max_offset(first.address, new_topic, queue_id)
            wire.commit(first.address, group, new_topic, queue_id, offset)

    serve_once(first, consume_all)
    taken = asyncio.run(loaded(folder, name))

    assert taken.topics.require(new_topic).write_queues == QUEUES
    assert taken.topics.require(f"%RETRY%{group}").read_queues == 1
    assert taken.groups.require(group).retries_max == 3
    assert sum(taken.offsets.queues(group, new_topic).values()) == MESSAGES

    asyncio.run(leave_our_changes(taken, new_topic, group))
    # A folder of its own, where nothing of the first broker's output is mistaken for its own.
    new_home = new_folder(f"{name}-back")
    (folder / "store").rename(new_home / "store")
    second = OfficialBroker(peer.line, name, new_home, [name_server])

    def make_it_write() -> None:
        # Official brokers write topics and groups only when one changes.
        second.create_topic(f"{new_topic}-theirs")
        update_group(second, f"{group}-theirs", 9)

    serve_once(second, make_it_write)
    back = asyncio.run(loaded(new_home, name))

    ours = back.topics.require(f"{new_topic}-ours")
    assert (ours.read_queues, ours.write_queues) == (3, 2)
    # The 4.9 line has no attributes, and drops those that it reads.
    attributes = {"message.type": "FIFO", "orbitmq.storage": "memory"}
    assert ours.attributes == (attributes if peer.line == "v5" else {})
    assert back.topics.get(f"{new_topic}-theirs") is not None
    assert back.groups.require(group).retries_max == 5
    assert not back.groups.require(f"{group}-ours").allows_consuming
    assert back.groups.require(f"{group}-theirs").retries_max == 9
    assert back.offsets.get(group, new_topic, 0) == 1
    assert back.offsets.get(f"{group}-ours", f"{new_topic}-ours", 2) == 7
