"""The admin client against a name server and brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from orbitmq import java_json
from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.admin.groups import lag_of
from orbitmq.client.aio.admin.offsets import END_OF_QUEUE, OffsetMove
from orbitmq.errors import (
    ClusterMissingError,
    MessageNotFoundError,
    NameRuleError,
    NeedsOrbitError,
    NotSupportedError,
    RemoteError,
    RouteNotFoundError,
    StateError,
)
from orbitmq.model.groups import GroupConfig
from orbitmq.model.queues import MessageQueue
from orbitmq.model.routes import BrokerGroup, ClusterView
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.clients import Heartbeat
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.broker.conftest import heartbeat_body, send_header
from tests.integration.client.conftest import Cluster
from tests.integration.transport.serving import LOCAL


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    async with Admin(namesrv=cluster.namesrv) as admin:
        yield admin


async def send(cluster: Cluster, topic: str, body: bytes, **rest: str) -> None:
    unique_id = rest.pop("unique_id", "0A0000010000")
    header = send_header(topic, unique_id=unique_id, **rest)  # type: ignore[arg-type]  # properties
    await cluster.rpc.call(cluster.address(), header, body)


def queue_of(topic: str, number: int = 0) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=number)


async def test_topics_are_created_on_every_master_described_and_deleted(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    await cluster.start_broker("broker-b")

    made = await admin.topics.create(topic, queues=4, write_queues=3, ordered=True)

    assert list(made) == ["broker-a", "broker-b"]
    assert topic in await admin.topics.names()
    assert topic in await admin.topics.names(cluster="DefaultCluster")
    configs = await admin.topics.config(topic)
    assert {(one.read_queues, one.write_queues) for one in configs.values()} == {(4, 3)}
    assert {part.broker_name for part in (await admin.topics.route(topic)).queues} == set(made)
    assert await admin.key_values.get("ORDER_TOPIC_CONFIG", topic) == "broker-a:3;broker-b:3"
    assert topic in await admin.topics.configs("broker-b")

    await admin.topics.delete(topic, cluster="DefaultCluster")

    assert topic not in await admin.topics.names()
    with pytest.raises(RouteNotFoundError):
        await admin.topics.route(topic)


async def test_an_existing_topic_keeps_omitted_options(admin: Admin, topic: str) -> None:
    await admin.topics.create(
        topic, queues=16, write_queues=12, permission=4, attributes="+message.type=FIFO"
    )

    await admin.topics.create(topic, ordered=True)

    config = (await admin.topics.config(topic))["broker-a"]
    assert (config.read_queues, config.write_queues) == (16, 12)
    assert (config.permission, config.order) == (4, True)
    assert config.attributes == {"message.type": "FIFO"}
    await admin.topics.create(topic, queues=20)
    config = (await admin.topics.config(topic))["broker-a"]
    assert (config.read_queues, config.write_queues, config.permission) == (20, 20, 4)
    assert await admin.key_values.get("ORDER_TOPIC_CONFIG", topic) == "broker-a:20"


async def test_order_entries_of_brokers_added_later_join_the_earlier_ones(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    await cluster.start_broker("broker-b")

    await admin.topics.create(topic, queues=4, ordered=True, broker="broker-b")
    await admin.topics.create(topic, queues=2, ordered=True, broker=cluster.address())

    assert await admin.key_values.get("ORDER_TOPIC_CONFIG", topic) == "broker-a:2;broker-b:4"


async def test_an_existing_group_keeps_omitted_options(admin: Admin, group: str) -> None:
    await admin.groups.change(group, {"retries_max": 3})
    await admin.groups.change(group, {"allows_consuming": False})

    assert (await admin.groups.configs())[group] == GroupConfig(
        name=group, retries_max=3, allows_consuming=False
    )


async def test_bounds_of_queues_grow_with_messages(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    await admin.topics.create(topic, queues=2)
    await send(cluster, topic, b"one")
    await send(cluster, topic, b"two")

    bounds = await admin.topics.bounds(topic)

    assert [(queue.queue_id, one.max_offset) for queue, one in bounds.items()] == [(0, 2), (1, 0)]
    assert await admin.offsets.first(queue_of(topic)) == 0
    assert await admin.offsets.end(queue_of(topic)) == 2
    assert await admin.offsets.at_time(queue_of(topic), END_OF_QUEUE) == 2
    assert await admin.offsets.at_time(queue_of(topic), 0) == 0


async def test_of_copies_with_the_same_id_the_original_is_found(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    await admin.topics.create(topic, queues=1)
    for body in (b"original", b"copy"):
        await send(cluster, topic, body, unique_id=f"0A{7:030X}")

    found = await admin.messages.by_id(f"0A{7:030X}", topic=topic)

    assert found.body == b"original"


async def test_messages_are_found_by_id_key_offset_and_time(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    await admin.topics.create(topic, queues=1)
    for number in range(40):
        await send(
            cluster,
            topic,
            b"body %d" % number,
            unique_id=f"0A{number:030X}",
            KEYS=f"key{number} all",
        )

    by_key = await admin.messages.by_key(topic, "key7")
    (message,) = by_key
    by_place = await admin.messages.by_id(message.offset_message_id)
    by_unique_id = await admin.messages.by_id(message.message_id, topic=topic)
    at_offset = await admin.messages.at(queue_of(topic), 7)
    of_all_time = [found async for found in admin.messages.between(topic, 0, 2**62)]

    assert {one.body for one in (message, by_place, by_unique_id, at_offset)} == {b"body 7"}
    assert [found.queue_offset for found in of_all_time] == list(range(40))
    newest = await admin.messages.by_key(topic, "all", count_max=5)
    assert [found.queue_offset for found in newest] == [35, 36, 37, 38, 39]
    assert await admin.messages.by_key(topic, "none") == []
    with pytest.raises(MessageNotFoundError, match="pass its topic, too"):
        await admin.messages.by_id("0" * 32)
    with pytest.raises(MessageNotFoundError, match="has the id"):
        await admin.messages.by_id(f"0B{0:030X}", topic=topic)
    with pytest.raises(MessageNotFoundError, match="no message at offset 40"):
        await admin.messages.at(queue_of(topic), 40)


async def test_groups_are_created_described_and_deleted(admin: Admin, group: str) -> None:
    await admin.groups.create(GroupConfig(name=group, retries_max=3))
    configs = await admin.groups.configs()
    nobody = await admin.groups.connections(group)

    await admin.groups.delete(group)

    assert configs[group].retries_max == 3
    assert nobody.connections == []
    assert group not in await admin.groups.configs()
    with pytest.raises(NameRuleError, match="contains"):
        await admin.groups.create(GroupConfig(name="not a name"))


async def test_progress_and_members_of_a_group_are_shown(
    cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    await admin.topics.create(topic, queues=1)
    for _ in range(5):
        await send(cluster, topic, b"x")
    async with RpcClient() as rpc:
        await rpc.call(
            cluster.address(), Heartbeat(), heartbeat_body("me", group=group, topic=topic)
        )
        await admin.offsets.set(group, {queue_of(topic): 2})

        progress = await admin.groups.progress(group, topic=topic)
        members = await admin.groups.connections(group)

        assert progress.lag == 3
        assert [lag_of(one) for one in progress.queues.values()] == [3]
        assert [client.client_id for client in members.connections] == ["me"]
        assert await admin.topics.consumers(topic) == [group]
        with pytest.raises(RemoteError, match="other"):
            await admin.groups.running(group, "other")


async def test_a_reset_is_previewed_and_done_for_a_group_without_members(
    cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    await admin.topics.create(topic, queues=1)
    for _ in range(5):
        await send(cluster, topic, b"x")
    await admin.groups.create(GroupConfig(name=group))
    await admin.offsets.set(group, {queue_of(topic): 3})

    back = await admin.offsets.preview(group, topic, 0)
    ahead = await admin.offsets.preview(group, topic, END_OF_QUEUE)
    kept = await admin.offsets.reset(group, topic, END_OF_QUEUE, forward=False)
    moved = await admin.offsets.reset(group, topic, 0)

    assert back == [OffsetMove(queue=queue_of(topic), first=0, committed=3, target=0)]
    assert (back[0].consumed_again, back[0].skipped) == (3, 0)
    assert (ahead[0].consumed_again, ahead[0].skipped) == (0, 2)
    assert kept == {}
    assert moved == {queue_of(topic): 0}
    assert await admin.offsets.committed(group, queue_of(topic)) == 0
    assert await admin.offsets.committed("nobody", queue_of(topic)) is None


async def test_a_reset_back_leaves_queues_without_a_commit_alone(
    cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    await admin.topics.create(topic, queues=1)
    await send(cluster, topic, b"x")
    await admin.groups.create(GroupConfig(name=group))

    for timestamp_ms in (0, END_OF_QUEUE):
        assert await admin.offsets.reset(group, topic, timestamp_ms, forward=False) == {}

    (ahead,) = await admin.offsets.preview(group, topic, END_OF_QUEUE)
    assert (ahead.committed, ahead.skipped, ahead.goes_back) == (None, 1, False)


def test_messages_that_have_expired_do_not_count_as_skipped() -> None:
    move = OffsetMove(queue=queue_of("orders"), first=90, committed=10, target=100)

    assert move.skipped == 10


async def test_offsets_of_a_group_are_cloned(
    cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    await admin.topics.create(topic, queues=1)
    await send(cluster, topic, b"x")
    for name in (group, f"{group}-copy"):
        await admin.groups.create(GroupConfig(name=name))
    await admin.offsets.set(group, {queue_of(topic): 1})

    await admin.offsets.clone(group, f"{group}-copy", topic)

    assert await admin.offsets.committed(f"{group}-copy", queue_of(topic)) == 1


async def test_brokers_are_described_changed_and_cleaned(cluster: Cluster, admin: Admin) -> None:
    view = await admin.brokers.clusters()
    runtime = await admin.brokers.runtime("broker-a")
    await admin.brokers.set_options("broker-a", {"maxMessageSize": "65536"})
    options = await admin.brokers.options(cluster.address())
    await admin.brokers.clean_expired_queues("broker-a")
    await admin.brokers.clean_unused_topics("broker-a")
    await admin.brokers.delete_expired_logs("broker-a")
    forbidden = await admin.brokers.forbid_writing("broker-a")
    allowed = await admin.brokers.allow_writing("broker-a")

    assert view.clusters == {"DefaultCluster": ["broker-a"]}
    assert "brokerVersionDesc" in runtime
    assert options["maxMessageSize"] == "65536"
    assert forbidden == allowed > 0
    with pytest.raises(ClusterMissingError, match="did you mean broker-a"):
        await admin.brokers.runtime("broker-aa")
    with pytest.raises(ClusterMissingError, match="did you mean DefaultCluster"):
        await admin.topics.create("t", cluster="DefaultClustr")


async def test_key_values_are_kept_at_every_name_server(admin: Admin) -> None:
    await admin.key_values.put("ns", "a", "1")
    await admin.key_values.put("ns", "b", "2")
    await admin.key_values.delete("ns", "a")

    assert await admin.key_values.all("ns") == {"b": "2"}
    assert await admin.key_values.get("ns", "b") == "2"


async def test_reading_is_forbidden_to_a_group_and_allowed_again(
    admin: Admin, topic: str, group: str
) -> None:
    await admin.topics.create(topic)
    await admin.groups.create(GroupConfig(name=group))

    forbidden = await admin.groups.forbid_reading(group, topic)
    could_read = await admin.groups.may_read(group, topic)
    allowed = await admin.groups.allow_reading(group, topic)

    assert forbidden == allowed == ["broker-a"]
    assert not could_read
    assert await admin.groups.may_read(group, topic)
    with pytest.raises(NotSupportedError):
        await admin.groups.set_consume_mode(group, topic, "POP")


async def test_the_permission_of_a_topic_is_changed_alone(admin: Admin, topic: str) -> None:
    await admin.topics.create(topic, queues=3, write_queues=2)

    changed = await admin.topics.set_permission(topic, 4, cluster="DefaultCluster")
    with pytest.raises(ClusterMissingError, match=r"there is no broker '127\.0\.0\.1:1'"):
        await admin.topics.set_permission(topic, 2, broker="127.0.0.1:1")

    assert list(changed) == ["broker-a"]
    config = (await admin.topics.config(topic))["broker-a"]
    assert (config.permission, config.read_queues, config.write_queues) == (4, 3, 2)


async def test_entries_of_a_queue_and_traffic_of_a_topic_are_shown(
    cluster: Cluster, admin: Admin, topic: str, group: str
) -> None:
    await admin.topics.create(topic, queues=1)
    for _ in range(3):
        await send(cluster, topic, b"x")
    await admin.groups.create(GroupConfig(name=group))
    await admin.offsets.set(group, {queue_of(topic): 1})

    entries = await admin.messages.entries(queue_of(topic), 1)
    (traffic,) = await admin.traffic.of(topic)
    progress = await admin.brokers.progress("broker-a")

    assert (entries.min_offset, entries.max_offset, len(entries.entries)) == (0, 3, 2)
    assert (traffic.group, traffic.lag) == (group, 2)
    assert progress.lag >= 2


async def test_options_of_name_servers_are_read_and_changed(admin: Admin) -> None:
    await admin.name_servers.set_options({"orderMessageEnable": "true"})

    (options,) = (await admin.name_servers.options()).values()

    assert options["orderMessageEnable"] == "true"


async def test_a_group_is_deleted_on_one_broker(cluster: Cluster, admin: Admin, group: str) -> None:
    await cluster.start_broker("broker-b")
    await admin.groups.create(GroupConfig(name=group))

    deleted = await admin.groups.delete(group, broker="broker-b")

    assert list(deleted) == ["broker-b"]
    assert group in await admin.groups.configs()
    assert await admin.brokers.name(cluster.address("broker-b")) == "broker-b"
    assert await admin.brokers.name("broker-a") == "broker-a"


async def test_a_change_that_would_reach_no_broker_is_refused(
    cluster: Cluster, admin: Admin
) -> None:
    await cluster.stop_broker()

    for change in (
        admin.topics.create("orders"),
        admin.topics.delete("orders"),
        admin.groups.create(GroupConfig(name="billing")),
        admin.brokers.addresses(),
    ):
        with pytest.raises(ClusterMissingError, match="no broker has registered"):
            await change


async def test_an_admin_client_is_started_once(cluster: Cluster) -> None:
    admin = Admin(namesrv=cluster.namesrv)
    await admin.start()
    with pytest.raises(StateError, match="already started"):
        await admin.start()
    await admin.stop()
    await admin.stop()


async def test_transactions_of_brokers_that_cannot_tell_are_not_said_to_be_none() -> None:
    def view(_: Connection, request: Command) -> Command:
        address = f"127.0.0.1:{server.port}"
        group = BrokerGroup(addresses={0: address}, name="broker-j", cluster="c")
        found = ClusterView(brokers={"broker-j": group}, clusters={"c": ["broker-j"]})
        return request.reply(body=java_json.encode(found))

    # A name server, and a broker that knows no request of ours.
    server = RpcServer({RequestCode.GET_BROKER_CLUSTER_INFO: view}, config=LOCAL)
    await server.start()
    try:
        async with Admin(namesrv=f"127.0.0.1:{server.port}") as admin:
            with pytest.raises(NeedsOrbitError, match="needs an OrbitMQ broker"):
                await admin.transactions.open()
            with pytest.raises(NeedsOrbitError, match="needs an OrbitMQ broker"):
                await admin.transactions.find("0A")
            with pytest.raises(NeedsOrbitError, match="needs an OrbitMQ broker"):
                await admin.transactions.check()
    finally:
        await server.stop()
