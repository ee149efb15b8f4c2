"""The tables of a slave follow those of a master of ours, over real sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from orbitmq import java_json
from orbitmq.broker.archives.archive_table import ArchiveTable
from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.broker.groups.committed_offsets import CommittedOffsets
from orbitmq.broker.groups.group_table import GroupTable
from orbitmq.broker.groups.lock_file import LockFile
from orbitmq.broker.groups.queue_locks import QueueLocks
from orbitmq.broker.replication.master_tables import MasterTables
from orbitmq.broker.replication.metadata import MetadataCopy
from orbitmq.broker.replication.table_changes import TOPICS
from orbitmq.broker.replication.timer_file import read_master_timers
from orbitmq.broker.topics.system_topics import system_topics
from orbitmq.broker.topics.topic_table import TopicTable
from orbitmq.clock import ManualClock
from orbitmq.errors import ConnectError, MetadataCopyError
from orbitmq.model.groups import GroupConfig
from orbitmq.model.names import HALF_TOPIC, TRANSACTION_GROUP
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.archives import OpenArchive
from orbitmq.protocol.requests.metadata import ListStoreTables, StoreTables, TimerCheckpoint
from orbitmq.protocol.requests.offsets import CommitOffset, ResetOffsets
from orbitmq.protocol.requests.topics import (
    DeleteTopic,
    ListTopicConfigs,
    ListTopicConfigsReply,
    TopicConfigTable,
)
from orbitmq.store.message_store import MessageStore
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.request_loop import Handler
from orbitmq.transport.rpc_client import RpcClient
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.broker.conftest import Peer, Site
from tests.waiting import until

EVERYTHING = 1 << 60


@dataclass
class Slave:
    """The tables of a slave, and how they are copied."""

    topics: TopicTable
    groups: GroupTable
    offsets: CommittedOffsets
    delays: DelayProgress
    archives: ArchiveTable
    copy: MetadataCopy
    folder: Path
    # The end of its log.
    log_end: int = EVERYTHING
    deleted: list[str] = field(default_factory=list)
    # The end of the log up to which they were deleted.
    deleted_until: list[int] = field(default_factory=list)

    async def copy_from(self, address: str) -> None:
        await self.copy.copy_from(address)

    def content(self) -> object:
        """All that a round may change."""
        return (
            dict(self.topics.topics),
            self.topics.data_version,
            dict(self.groups.groups),
            self.groups.data_version,
            self.offsets.table(),
            self.offsets.data_version,
            self.delays.document({}),
            self.archives.known,
            read_master_timers(self.folder / "orbitmq"),
        )


async def make_slave(folder: Path, rpc: RpcClient) -> Slave:
    """Load a slave's tables, as at its start."""
    clock = ManualClock()
    config = folder / "config"
    topics = TopicTable(
        config, clock=clock, system_topics=system_topics("DefaultCluster", "broker-a")
    )
    groups = GroupTable(config, clock=clock)
    offsets = CommittedOffsets(config, clock=clock)
    delays = DelayProgress(config, clock=clock)
    archives = ArchiveTable(config, folder / "orbitmq", clock=clock)
    for table in (topics, groups, offsets, delays):
        await table.load()
    await archives.load()
    offsets.note_commits(on=True)

    async def delete_topic(name: str, end: int) -> None:
        made.deleted.append(name)
        made.deleted_until.append(end)
        offsets.delete_topic(name)

    copy = MetadataCopy(
        topics=topics,
        groups=groups,
        offsets=offsets,
        delays=delays,
        archives=archives,
        delete_topic=delete_topic,
        log_end=lambda: made.log_end,
        keep_locks=LockFile(folder / "orbitmq", QueueLocks(clock=clock)).follow,
        deleted_topics=dict,
        keep_store_tables=lambda *_: None,
        rpc=rpc,
        folder=folder / "orbitmq",
        clock=clock,
    )
    made = Slave(topics, groups, offsets, delays, archives, copy, folder)
    return made


@pytest.fixture
async def rpc() -> AsyncIterator[RpcClient]:
    async with RpcClient() as client:
        yield client


@pytest.fixture
async def slave(tmp_path: Path, rpc: RpcClient) -> Slave:
    return await make_slave(tmp_path / "slave", rpc)


async def commit(peer: Peer, offset: int, *, group: str = "g", queue_id: int = 0) -> None:
    asked = CommitOffset(
        consumer_group=group, topic="T", queue_id=queue_id, commit_offset=Long(offset)
    )
    reply = await peer.ask(asked)
    assert reply.code == ResponseCode.SUCCESS, reply.remark


async def fill(peer: Peer, messages: int = 10) -> None:
    """Make a topic of one queue with messages."""
    await peer.make_topic("T", read=1, write=1)
    for _ in range(messages):
        await peer.send("T")


# --- topics and groups --------------------------------------------------------------------------


async def test_topics_and_groups_become_those_of_the_master(
    site: Site, peer: Peer, slave: Slave, rpc: RpcClient
) -> None:
    master = site.broker
    await peer.make_topic("T", read=3, write=2, attributes="+message.type=FIFO")
    await peer.make_memory_topic("M")
    await master.groups.put(GroupConfig(name="g", retries_max=3))
    await master.groups.forbid("g", "T", 4)

    await slave.copy_from(peer.address)

    again = await make_slave(slave.folder, rpc)
    for copy in (slave, again):
        assert copy.topics.topics == master.topics.topics
        assert copy.topics.data_version == master.topics.data_version
        assert copy.groups.groups == master.groups.groups
        assert copy.groups.forbidden == master.groups.forbidden
        assert copy.groups.data_version == master.groups.data_version


async def test_thousands_of_topics_come_in_pages(site: Site, peer: Peer, slave: Slave) -> None:
    topics = [TopicConfig(name=f"T{number}") for number in range(4321)]
    await site.broker.topics.put_all(topics)

    await slave.copy_from(peer.address)

    assert slave.topics.topics == site.broker.topics.topics


async def test_a_topic_that_the_master_deleted_is_deleted_once_the_log_is_there(
    site: Site, peer: Peer, slave: Slave, rpc: RpcClient
) -> None:
    await fill(peer)
    await commit(peer, 3)
    await slave.copy_from(peer.address)
    await peer.ask(DeleteTopic(topic="T"))
    master_end = site.broker.store.log_end

    slave.log_end = master_end - 1
    await slave.copy_from(peer.address)
    before = slave.topics.get("T"), list(slave.deleted)
    # The master stores more; only what it had at the deletion counts.
    await peer.send("U")
    slave.log_end = master_end
    await slave.copy_from(peer.address)

    assert before == (TopicConfig(name="T", read_queues=1, write_queues=1), [])
    assert slave.deleted == ["T"]
    assert (await make_slave(slave.folder, rpc)).topics.get("T") is None
    assert slave.topics.data_version == site.broker.topics.data_version
    assert slave.offsets.get("g", "T", 0) is None


async def test_messages_of_a_topic_created_again_since_are_not_deleted(
    site: Site, peer: Peer, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_topics = MasterTables.topics

    async def topics_then_new_messages(
        master: MasterTables, known: DataVersion
    ) -> TopicConfigTable | None:
        listed = await list_topics(master, known)
        if listed is not None and "T" not in listed.topics:
            await fill(peer)
        return listed

    await fill(peer)
    await slave.copy_from(peer.address)
    end = site.broker.store.log_end
    await peer.ask(DeleteTopic(topic="T"))

    monkeypatch.setattr(MasterTables, "topics", topics_then_new_messages)
    await slave.copy.copy_from(peer.address, {TOPICS})

    assert slave.deleted_until == [end]
    assert site.broker.store.log_end > end


async def test_a_slave_waits_for_a_deletion_before_it_learns_where_it_was(
    site: Site, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    delete_topic = MessageStore.delete_topic

    def delete_late(store: MessageStore, topic: str) -> None:
        may_go_on.wait()
        delete_topic(store, topic)

    monkeypatch.setattr(MessageStore, "delete_topic", delete_late)
    await fill(peer)
    deleting = asyncio.create_task(peer.ask(DeleteTopic(topic="T")))
    await until(lambda: site.broker.topics.get("T") is None)
    asking = asyncio.create_task(peer.ask(ListStoreTables()))
    # It is answered in order, behind the request above.
    await peer.ask(ListTopicConfigs())
    was_held = not asking.done()
    may_go_on.set()
    reply = await asking

    await deleting
    assert was_held
    assert msgspec.json.decode(reply.body, type=StoreTables).deleted == {
        "T": site.broker.store.log_end
    }


async def test_system_topics_that_only_the_slave_has_are_not_deleted(
    site: Site, peer: Peer, slave: Slave
) -> None:
    await slave.topics.ensure(TopicConfig(name="rmq_sys_own"))

    await slave.copy_from(peer.address)

    assert slave.topics.topics.keys() == {*site.broker.topics.topics, "rmq_sys_own"}
    assert slave.deleted == []


# --- committed offsets --------------------------------------------------------------------------


async def test_what_is_handed_over_late_does_not_lower_what_the_master_has(
    site: Site, peer: Peer, slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_log_end = MasterTables.log_end

    async def log_end_then_commit(master: MasterTables) -> int:
        # It is asked for last, before commits are handed over.
        end = await read_log_end(master)
        await commit(peer, 9)
        return end

    await fill(peer)
    await commit(peer, 3)
    await slave.copy_from(peer.address)
    slave.offsets.commit("g", "T", 0, 5)

    monkeypatch.setattr(MasterTables, "log_end", log_end_then_commit)
    await slave.copy_from(peer.address)

    assert site.broker.offsets.get("g", "T", 0) == 9
    assert not slave.offsets.commits_here


async def test_offsets_follow_the_master_up_and_down(peer: Peer, slave: Slave) -> None:
    await fill(peer)
    await commit(peer, 7)
    await slave.copy_from(peer.address)
    first = slave.offsets.get("g", "T", 0)

    await commit(peer, 9)
    await slave.copy_from(peer.address)
    second = slave.offsets.get("g", "T", 0)
    await commit(peer, 2)
    await slave.copy_from(peer.address)

    assert (first, second, slave.offsets.get("g", "T", 0)) == (7, 9, 2)


async def test_what_a_client_committed_at_the_slave_reaches_the_master(
    site: Site, peer: Peer, slave: Slave, rpc: RpcClient
) -> None:
    await fill(peer)
    await commit(peer, 4)
    await slave.copy_from(peer.address)
    slave.offsets.commit("g", "T", 0, 6)
    slave.offsets.commit("new", "T", 0, 1)

    await slave.copy_from(peer.address)

    assert site.broker.offsets.get("g", "T", 0) == 6
    assert site.broker.offsets.get("new", "T", 0) == 1
    for copy in (slave, await make_slave(slave.folder, rpc)):
        assert copy.offsets.table() == site.broker.offsets.table()
        assert copy.offsets.commits_here == {}


async def test_a_commit_at_the_slave_below_the_master_s_does_not_lower_it(
    site: Site, peer: Peer, slave: Slave
) -> None:
    await fill(peer)
    slave.offsets.commit("g", "T", 0, 3)
    await commit(peer, 4)

    await slave.copy_from(peer.address)

    assert site.broker.offsets.get("g", "T", 0) == slave.offsets.get("g", "T", 0) == 4
    assert slave.offsets.commits_here == {}


async def test_a_reset_at_the_master_is_not_undone_by_an_older_commit_at_the_slave(
    site: Site, peer: Peer, slave: Slave, rpc: RpcClient
) -> None:
    await fill(peer)
    await peer.heartbeat("c")
    await commit(peer, 4)
    slave.offsets.commit("g", "T", 0, 6)
    busy = {RequestCode.UPDATE_CONSUMER_OFFSET: answering(ResponseCode.SYSTEM_BUSY)}
    async with in_front_of(peer.address, rpc, busy) as address:
        with pytest.raises(MetadataCopyError, match=r"commits of clients: .* code 2"):
            await slave.copy_from(address)
        kept = slave.offsets.get("g", "T", 0)
        await peer.ask(
            ResetOffsets(topic="T", group="g", timestamp_ms=Long(0), force=True, offset=Long(1))
        )

        await slave.copy_from(address)

    assert kept == 6
    assert site.broker.offsets.get("g", "T", 0) == slave.offsets.get("g", "T", 0) == 1
    assert slave.offsets.commits_here == {}


async def test_a_commit_that_the_master_refuses_is_forgotten(
    site: Site, peer: Peer, slave: Slave
) -> None:
    await fill(peer, messages=3)
    slave.offsets.commit("g", "T", 0, 100)
    slave.offsets.commit("g", "missing", 0, 1)

    await slave.copy_from(peer.address)

    assert slave.offsets.commits_here == {}
    assert slave.offsets.table() == site.broker.offsets.table() == {}


async def test_offsets_of_many_queues_are_handed_over_in_one_round(
    site: Site, peer: Peer, slave: Slave
) -> None:
    await peer.make_topic("T", read=500, write=500)
    for queue_id in range(500):
        slave.offsets.commit("g", "T", queue_id, 0)

    await slave.copy_from(peer.address)

    assert site.broker.offsets.queues("g", "T") == dict.fromkeys(range(500), 0)


# --- progress -----------------------------------------------------------------------------------


async def test_progress_is_taken_over_once_the_slave_has_what_was_delivered(
    site: Site, peer: Peer, slave: Slave, rpc: RpcClient
) -> None:
    master = site.broker
    await fill(peer, messages=0)
    await peer.send("T", DELAY="1")
    await site.stored("T", 0, 1)
    master.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, 5)
    first_end = master.store.log_end

    slave.log_end = first_end - 1
    await slave.copy_from(peer.address)
    early = slave.delays.offset(1), slave.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0)
    await peer.send("T", DELAY="1")
    await site.stored("T", 0, 2)
    master.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, 6)
    slave.log_end = first_end
    await slave.copy_from(peer.address)
    then = slave.delays.offset(1), slave.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0)
    slave.log_end = master.store.log_end
    await slave.copy_from(peer.address)

    assert (early, then) == ((0, None), (1, 5))
    for copy in (slave, await make_slave(slave.folder, rpc)):
        assert copy.delays.offset(1) == 2
        assert copy.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) == 6


async def test_timer_progress_is_kept_in_a_file(site: Site, peer: Peer, slave: Slave) -> None:
    await fill(peer, messages=0)
    await slave.copy_from(peer.address)
    unused = read_master_timers(slave.folder / "orbitmq")
    await peer.send("T", TIMER_DELAY_MS="2000")
    await site.stored("T", 0, 1)
    timers = site.broker.parts.timers.timers  # nothing outside shows it yet
    await site.advance_until(lambda: timers.saved()[0].queue_offset == 1)

    await slave.copy_from(peer.address)

    kept = read_master_timers(slave.folder / "orbitmq")
    assert unused is not None
    assert unused.checkpoint == TimerCheckpoint()
    assert kept is not None
    assert kept.checkpoint.queue_offset == 1
    assert kept.log_end == site.broker.store.log_end


# --- masters that fail --------------------------------------------------------------------------


def answering(code: ResponseCode) -> Handler:
    """A handler that refuses every request with a code."""

    def handle(_: Connection, asked: Command) -> Command:
        reply = asked.reply()
        reply.code, reply.remark = code, "as told"
        return reply

    return handle


def returning(body: bytes) -> Handler:
    """A handler whose replies have a body."""

    def handle(_: Connection, asked: Command) -> Command:
        return asked.reply(body=body)

    return handle


def server_in_front_of(
    address: str, rpc: RpcClient, changed: Mapping[RequestCode, Handler]
) -> RpcServer:
    """A server that passes requests on to a master, except some that it answers itself."""

    async def pass_on(_: Connection, asked: Command) -> Command:
        onward = Command(code=asked.code, fields=asked.fields, body=asked.body)
        answer = await rpc.invoke(address, onward)
        reply = asked.reply(body=answer.body)
        reply.code, reply.remark, reply.fields = answer.code, answer.remark, answer.fields
        return reply

    handlers: dict[int, Handler] = dict.fromkeys(
        (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.GET_TIMER_CHECK_POINT,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.UPDATE_CONSUMER_OFFSET,
        ),
        pass_on,
    )
    config = ServerConfig(listen_port=0, bind_address="127.0.0.1")
    handlers |= {int(code): handler for code, handler in changed.items()}
    return RpcServer(handlers, config=config, clock=ManualClock())


@asynccontextmanager
async def in_front_of(
    address: str, rpc: RpcClient, changed: Mapping[RequestCode, Handler]
) -> AsyncIterator[str]:
    """Run such a server."""
    server = server_in_front_of(address, rpc, changed)
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


def topics_body(topics: Iterable[TopicConfig]) -> bytes:
    return java_json.encode(TopicConfigTable(topics={topic.name: topic for topic in topics}))


@pytest.mark.parametrize(
    ("code", "body", "table", "reason"),
    [
        (RequestCode.GET_ALL_TOPIC_CONFIG, b"\xff\x00", "topics", "JSON is broken"),
        (RequestCode.GET_ALL_TOPIC_CONFIG, b"{}", "topics", "it is empty"),
        (RequestCode.GET_ALL_TOPIC_CONFIG, b"[]", "topics", "Expected `object`"),
        (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            topics_body([TopicConfig(name="../../etc")]),
            "topics",
            "cannot have this name",
        ),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, b"{}", "groups", "it is empty"),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, b"{}", "offsets", "offsetTable"),
        (
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            b'{"offsetTable":{"T@g":{-4:1}}}',
            "offsets",
            "-4 is not a valid queue id",
        ),
        (
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            b'{"offsetTable":{"T@g":{0:"many"}}}',
            "offsets",
            "Expected `int`",
        ),
        (RequestCode.GET_ALL_DELAY_OFFSET, b"{}", "delay progress", "offsetTable"),
        (
            RequestCode.GET_ALL_DELAY_OFFSET,
            b'{"offsetTable":{1:-5}}',
            "delay progress",
            r"cannot be \(1, -5\)",
        ),
        (RequestCode.GET_TIMER_CHECK_POINT, b"short", "timer progress", "56 bytes, not 5"),
        (
            RequestCode.LIST_STORE_TABLES,
            b'{"reserved":[["T",0,-1]],"deleted":{},"logStart":0}',
            "tables of the store",
            "no tables of a store",
        ),
        (RequestCode.LIST_ARCHIVES, b"{}", "archives", "missing required field `known`"),
        (
            RequestCode.LIST_ARCHIVES,
            b'{"known":{"archives":{"a":{"name":"a","topic":"T","gates":true,"marks":{"0":-1}}}}}',
            "archives",
            "Expected `int` >= 0",
        ),
        (RequestCode.GET_BROKER_RUNTIME_INFO, b'{"table":{}}', "log end", "commitLogMaxOffset"),
    ],
)
async def test_an_unreadable_table_is_named_and_leaves_the_slave_s_own(
    peer: Peer,
    slave: Slave,
    rpc: RpcClient,
    code: RequestCode,
    body: bytes,
    table: str,
    reason: str,
) -> None:
    await slave.copy_from(peer.address)
    before = slave.content()

    async with in_front_of(peer.address, rpc, {code: returning(body)}) as address:
        with pytest.raises(MetadataCopyError, match=f"{address}: {table}: .*({reason})") as raised:
            await slave.copy_from(address)

    assert raised.value.tables == (table,)
    assert slave.content() == before
    assert slave.deleted == []


@pytest.mark.parametrize(
    "code", [RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET]
)
async def test_other_tables_are_copied_if_one_is_refused(
    site: Site, peer: Peer, slave: Slave, rpc: RpcClient, code: RequestCode
) -> None:
    await site.broker.groups.ensure("g")
    refused = {code: answering(ResponseCode.SYSTEM_ERROR)}

    async with in_front_of(peer.address, rpc, refused) as address:
        with pytest.raises(MetadataCopyError, match="as told"):
            await slave.copy_from(address)

    assert slave.groups.groups == site.broker.groups.groups


async def test_archives_stay_under_a_master_that_has_no_such_table(
    site: Site, peer: Peer, slave: Slave, rpc: RpcClient
) -> None:
    await peer.make_topic("T", read=1, write=1)
    await peer.ask(OpenArchive(name="lake", topic="T", gates=True))
    await slave.copy_from(peer.address)
    before = slave.archives.known
    without = {RequestCode.LIST_ARCHIVES: answering(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)}

    async with in_front_of(peer.address, rpc, without) as address:
        await slave.copy_from(address)

    assert list(before.archives) == ["lake"]
    assert before == slave.archives.known == site.broker.tables.archives.known


@pytest.mark.parametrize(
    "code", [ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR]
)
async def test_a_master_without_timers_is_no_problem(
    peer: Peer, slave: Slave, rpc: RpcClient, code: ResponseCode
) -> None:
    without = {RequestCode.GET_TIMER_CHECK_POINT: answering(code)}
    async with in_front_of(peer.address, rpc, without) as address:
        await slave.copy_from(address)

    assert read_master_timers(slave.folder / "orbitmq") is None


def pages(total: int, page: Callable[[int], list[str]]) -> Handler:
    """A handler of topics that announces a total, and returns pages by their first number."""

    def handle(_: Connection, asked: Command) -> Command:
        names = page(int(asked.fields["topicSeq"]))
        body = topics_body(TopicConfig(name=name) for name in names)
        return asked.reply(ListTopicConfigsReply(topic_count=total), body=body)

    return handle


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (pages(5, lambda _: ["a", "b"]), "nothing new after 2 of 5 entries"),
        (pages(200_000, lambda first: [f"T{first}"]), "200000 entries, of at most 100000"),
    ],
)
async def test_pages_that_cannot_become_a_table_are_refused(
    peer: Peer, slave: Slave, rpc: RpcClient, handler: Handler, reason: str
) -> None:
    before = dict(slave.topics.topics)
    changed = {RequestCode.GET_ALL_TOPIC_CONFIG: handler}
    async with in_front_of(peer.address, rpc, changed) as address:
        with pytest.raises(MetadataCopyError, match=f"topics: .*{reason}"):
            await slave.copy_from(address)

    assert slave.topics.topics == before


async def test_a_table_above_the_size_of_a_frame_is_named(
    peer: Peer, slave: Slave, rpc: RpcClient
) -> None:
    before = slave.offsets.table()
    huge = {RequestCode.GET_ALL_CONSUMER_OFFSET: returning(b" " * (17 << 20))}
    async with in_front_of(peer.address, rpc, huge) as address:
        with pytest.raises(MetadataCopyError, match="offsets: "):
            await slave.copy_from(address)

    assert slave.offsets.table() == before


async def test_a_master_that_dies_halfway_leaves_everything_as_it_was(
    site: Site, peer: Peer, slave: Slave, rpc: RpcClient
) -> None:
    await slave.copy_from(peer.address)
    before = slave.content()
    await peer.make_topic("T")
    await site.broker.groups.ensure("g")

    async def die(_: Connection, asked: Command) -> Command:
        await server.abort()
        return asked.reply()

    server = server_in_front_of(peer.address, rpc, {RequestCode.GET_ALL_CONSUMER_OFFSET: die})
    await server.start()
    with pytest.raises(MetadataCopyError, match=r"offsets: the connection") as raised:
        await slave.copy_from(f"127.0.0.1:{server.port}")
    await server.stop()

    assert raised.value.tables == ("offsets",)
    assert slave.content() == before


async def test_a_master_that_is_gone_is_one_problem(peer: Peer, slave: Slave, site: Site) -> None:
    address = peer.address
    await site.broker.stop()

    with pytest.raises(MetadataCopyError, match=f"{address}: topics: ") as raised:
        await slave.copy_from(address)

    assert isinstance(raised.value.__cause__, ConnectError)
    assert raised.value.retryable
