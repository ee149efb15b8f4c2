"""Metadata between masters and slaves: ours copies from official masters, theirs from ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq import java_json
from orbitmq.broker.archives.archive_table import ArchiveTable
from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.broker.groups.committed_offsets import CommittedOffsets
from orbitmq.broker.groups.group_table import GroupTable
from orbitmq.broker.groups.lock_file import LockFile
from orbitmq.broker.groups.queue_locks import QueueLocks
from orbitmq.broker.replication.metadata import MetadataCopy
from orbitmq.broker.replication.timer_file import read_master_timers
from orbitmq.broker.topics.system_topics import system_topics
from orbitmq.broker.topics.topic_table import TopicTable
from orbitmq.clock import SystemClock
from orbitmq.errors import ProtocolError
from orbitmq.transport.rpc_client import RpcClient
from tests.interop import wire
from tests.interop.drivers import JavaDriver, Listed
from tests.interop.official import CLUSTER, OfficialBroker
from tests.interop.ours import OrbitBroker
from tests.interop.peers import BROKERS, NameServer, Peer
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import beside, wait_until

pytestmark = pytest.mark.interop

MESSAGES = 8
QUEUES = 4
DELETE_TOPIC = 215
# A slave of RocketMQ 5 copies for the first time after a minute.
FIRST_COPY_TIMEOUT_S = 240


@pytest.fixture(params=BROKERS, ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line of the official broker."""
    value: Peer = request.param
    return value


class Slave:
    """The tables of a slave of ours, which has all of its master's log."""

    def __init__(self, folder: Path, broker_name: str, rpc: RpcClient) -> None:
        clock = SystemClock()
        config = folder / "config"
        self.folder = folder / "orbitmq"
        self.topics = TopicTable(
            config, clock=clock, system_topics=system_topics(CLUSTER, broker_name)
        )
        self.groups = GroupTable(config, clock=clock)
        self.offsets = CommittedOffsets(config, clock=clock)
        self.delays = DelayProgress(config, clock=clock)
        self.archives = ArchiveTable(config, self.folder, clock=clock)
        self.deleted: list[str] = []
        self.copy = MetadataCopy(
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            delays=self.delays,
            archives=self.archives,
            delete_topic=self._delete,
            log_end=lambda: 1 << 60,
            keep_locks=LockFile(self.folder, QueueLocks(clock=clock)).follow,
            deleted_topics=dict,
            keep_store_tables=lambda *_: None,
            rpc=rpc,
            folder=self.folder,
            clock=clock,
        )

    async def load(self) -> None:
        for table in (self.topics, self.groups, self.offsets, self.delays):
            await table.load()
        self.offsets.note_commits(on=True)

    async def _delete(self, topic: str, _: int) -> None:
        self.deleted.append(topic)


@pytest.mark.scenario("peer", "is the master whose topics, groups, offsets and delays we copy")
async def test_our_slave_copies_the_tables_of_an_official_master(
    peer: Peer,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    drivers: Callable[[str], JavaDriver],
    new_topic: str,
) -> None:
    name_server = name_servers["ours"].address
    name, group = f"master-{peer.line}", f"group-{new_topic}"
    # Compat: without its timer, a broker of RocketMQ 5.5 fails to delete topics.
    options = {"messageDelayLevel": "1s 2s", "timerWheelEnable": "true"}
    master = OfficialBroker(peer.line, name, new_folder(name), [name_server], options)
    driver = await beside(drivers, peer.line)

    def use() -> None:
        master.process.start()
        master.wait_ready()
        master.create_topic(new_topic)
        driver.mqadmin(
            "updateSubGroup", "-b", master.address, "-g", group, "-r", "3", "-n", name_server
        )
        driver.produce(name_server, new_topic, MESSAGES)
        driver.consume(name_server, new_topic, MESSAGES, group=group)
        for queue_id in range(QUEUES):
            end = wire.max_offset(master.address, new_topic, queue_id)
            wire.commit(master.address, group, new_topic, queue_id, end)
        driver.produce_listed(
            name_server, new_topic, [Listed(body="late", keys="k", delay_level=1)]
        )
        wire.wait_shown(master.address, new_topic, MESSAGES + 1, queues=QUEUES)

    try:
        await beside(use)
        async with RpcClient() as rpc:
            slave = Slave(new_folder("our slave"), name, rpc)
            await slave.load()
            await slave.copy.copy_from(master.address)
            theirs = (await beside(wire.ask, master.address, wire.GET_ALL_TOPIC_CONFIG)).body

            assert slave.topics.topics.keys() >= theirs["topicConfigTable"].keys()
            assert slave.topics.data_version.counter == theirs["dataVersion"]["counter"]
            assert slave.topics.require(new_topic).write_queues == QUEUES
            assert slave.groups.require(group).retries_max == 3
            assert sum(slave.offsets.queues(group, new_topic).values()) == MESSAGES
            assert slave.delays.offset(1) == 1
            # Brokers of RocketMQ 4 have no timers.
            assert (read_master_timers(slave.folder) is not None) == (peer.line == "v5")

            queue_id = next(
                each
                for each in range(QUEUES)
                if wire.max_offset(master.address, new_topic, each)
                > (slave.offsets.get(group, new_topic, each) or 0)
            )
            end = wire.max_offset(master.address, new_topic, queue_id)
            slave.offsets.commit(group, new_topic, queue_id, end)
            wire.ask(master.address, DELETE_TOPIC, {"topic": f"%RETRY%{group}"})
            await slave.copy.copy_from(master.address)

            assert wire.committed(master.address, group, new_topic, queue_id) == end
            assert slave.offsets.get(group, new_topic, queue_id) == end
            assert slave.offsets.commits_here == {}
            assert slave.deleted == [f"%RETRY%{group}"]
    finally:
        master.process.kill()


@pytest.mark.scenario("peer", "is a slave that copies topics, groups and offsets from our master")
def test_an_official_slave_copies_the_tables_of_our_master(
    peer: Peer,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    drivers: Callable[[str], JavaDriver],
    new_topic: str,
) -> None:
    addresses = [server.address for server in name_servers.values()]
    name, group = f"our-master-of-{peer.line}", f"group-{new_topic}"
    master = OrbitBroker(name, new_folder(name), addresses, {"messageDelayLevel": "1s 2s"})
    folder = new_folder(f"slave-{peer.line}")
    as_slave = {"brokerId": "1", "brokerRole": "SLAVE", "timerWheelEnable": "true"}
    slave = OfficialBroker(peer.line, name, folder, addresses, as_slave)
    driver = drivers(peer.line)

    try:
        master.process.start()
        master.wait_ready()
        master.create_topic(new_topic)
        driver.mqadmin(
            "updateSubGroup", "-b", master.address, "-g", group, "-r", "3", "-n", addresses[0]
        )
        driver.produce(addresses[0], new_topic, MESSAGES)
        driver.produce_listed(
            addresses[0], new_topic, [Listed(body="late", keys="k", delay_level=1)]
        )
        wire.wait_shown(master.address, new_topic, MESSAGES + 1, queues=QUEUES)
        wire.commit(master.address, group, new_topic, 0, 1)
        slave.process.start()
        slave.wait_ready()
        config = folder / "store" / "config"
        wait_until(
            lambda: offset_in(config, new_topic, group) == 1,
            timeout_s=FIRST_COPY_TIMEOUT_S,
            what="the committed offset of our master in the file of the slave",
        )
        topics = wire.ask(master.address, wire.GET_ALL_TOPIC_CONFIG).body["topicConfigTable"]

        copied = table_with(new_topic, config / "topics.json", "topicConfigTable")
        assert copied.keys() >= topics.keys()
        assert copied[new_topic]["writeQueueNums"] == QUEUES
        groups = table_with(group, config / "subscriptionGroup.json", "subscriptionGroupTable")
        assert groups[group]["retryMaxTimes"] == 3
        wait_until(
            lambda: content(config / "delayOffset.json", "offsetTable").get("1") == 1,
            timeout_s=CLIENT_TIMEOUT_S,
            what="the delay progress of our master in the file of the slave",
        )
        log = (folder / "rocketmq.log").read_text(errors="replace")
        assert re.findall(r"(?i)sync\w* exception.*", log) == []
    finally:
        slave.process.kill()
        master.process.stop()


def table_with(name: str, file: Path, table: str) -> Any:
    """A table in a file of the slave, once it has an entry of this name."""
    seen: dict[str, Any] = {}

    def has_name() -> bool:
        seen.update(content(file, table))
        return name in seen

    wait_until(has_name, timeout_s=FIRST_COPY_TIMEOUT_S, what=f"{name} in {file.name}")
    return seen


def content(file: Path, table: str) -> Any:
    """A table in a file that the slave may be replacing just now; empty if it is not there."""
    try:
        return json.loads(java_json.to_standard(file.read_bytes())).get(table, {})
    except (OSError, ProtocolError):
        return {}


def offset_in(config: Path, topic: str, group: str) -> int | None:
    """What a group committed in the first queue of a topic, as the slave's file has it."""
    queues = content(config / "consumerOffset.json", "offsetTable").get(f"{topic}@{group}", {})
    offset: int | None = queues.get("0")
    return offset
