"""A client instance against a name server and brokers: members, routes, heartbeats."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from orbitmq.client.aio.instance.client_instance import ClientInstance
from orbitmq.client.aio.instance.instances import acquire, release
from orbitmq.client.options import ClientOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import NameServersUnreachableError, RouteNotFoundError, StateError
from orbitmq.model.routes import MASTER_ID
from tests.integration.client.conftest import (
    HERE,
    WAIT_SECONDS,
    Cluster,
    pass_time,
    start_name_server,
)
from tests.integration.client.members import NotingConsumer, NotingProducer, instance_of
from tests.integration.conftest import PATIENCE_MS
from tests.waiting import until

ID = "127.0.0.1@test"


def known_to(cluster: Cluster, group: str, broker: str = "broker-a") -> list[str]:
    """The consumers of a group, as a broker knows them."""
    return cluster.brokers[broker].tables.members.client_ids(group)


def producers_of(cluster: Cluster, group: str, broker: str = "broker-a") -> list[str]:
    """The producers of a group, as a broker knows them."""
    clients = cluster.brokers[broker].tables.members.producers.get(group, {})
    return [client.client_id for client in clients.values()]


# --- members ----------------------------------------------------------------------------------


async def test_brokers_know_a_consumer_from_joining_to_leaving(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    consumer = NotingConsumer(group, [topic])
    async with instance_of(cluster.namesrv) as instance:
        await instance.add_consumer(consumer)
        assert known_to(cluster, group) == [ID]
        assert producers_of(cluster, "CLIENT_INNER_PRODUCER") == [ID]
        assert await instance.brokers.group_members(topic, group) == [ID]
        # The broker notifies all members of the group, the new one too.
        await until(lambda: consumer.rebalances > 0)

        await instance.remove_consumer(consumer)

        assert known_to(cluster, group) == []


async def test_a_consumer_may_wait_for_a_topic_that_is_created_later(
    cluster: Cluster, topic: str, group: str
) -> None:
    clock = ManualClock()
    consumer = NotingConsumer(group, [topic])
    async with instance_of(cluster.namesrv, clock=clock) as instance:
        await instance.add_consumer(consumer)
        assert known_to(cluster, group) == []
        await cluster.make_topic(topic)

        await pass_time(clock, lambda: consumer.changed == [topic])
        await pass_time(clock, lambda: known_to(cluster, group) == [ID])
        await instance.remove_consumer(consumer)


async def test_brokers_know_a_producer_after_its_first_call(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    producer = NotingProducer(group, [topic])
    async with instance_of(cluster.namesrv) as instance:
        await instance.add_producer(producer)
        assert producers_of(cluster, group) == []
        queue = (await instance.routes.publishing(topic, timeout_ms=PATIENCE_MS)).queues[0]

        await instance.brokers.max_offset(queue)

        await until(lambda: producers_of(cluster, group) == [ID])
        await instance.remove_producer(producer)
        assert producers_of(cluster, group) == []


async def test_a_second_member_of_a_group_is_refused_until_the_first_has_left(
    cluster: Cluster, group: str
) -> None:
    async with instance_of(cluster.namesrv) as instance:
        first, second = NotingProducer(group), NotingProducer(group)
        await instance.add_producer(first)

        with pytest.raises(StateError, match=f"already has a producer of the group '{group}'"):
            await instance.add_producer(second)

        await instance.remove_producer(second)  # it never joined
        with pytest.raises(StateError, match="already"):
            await instance.add_producer(second)
        await instance.remove_producer(first)
        await instance.add_producer(second)

        # A producer and a consumer may have the same group.
        await instance.add_consumer(NotingConsumer(group))
        with pytest.raises(StateError, match=f"already has a consumer of the group '{group}'"):
            await instance.add_consumer(NotingConsumer(group))


async def test_a_stopped_instance_takes_no_member(cluster: Cluster, group: str) -> None:
    async with instance_of(cluster.namesrv) as instance:
        pass

    with pytest.raises(StateError, match=r"client 127\.0\.0\.1@test is stopped.*make a new one"):
        await instance.add_producer(NotingProducer(group))


async def test_a_consumer_that_cannot_join_is_not_a_member(group: str, topic: str) -> None:
    async with instance_of(f"{HERE}:1") as instance:
        consumer = NotingConsumer(group, [topic])
        for _ in range(2):
            with pytest.raises(
                NameServersUnreachableError, match=r"answers: 127\.0\.0\.1:1: Connection refused"
            ):
                await instance.add_consumer(consumer)


async def test_offsets_of_consumers_are_committed_at_intervals(
    cluster: Cluster, group: str
) -> None:
    clock = ManualClock()
    consumer = NotingConsumer(group)
    async with instance_of(cluster.namesrv, clock=clock) as instance:
        await instance.add_consumer(consumer)

        await clock.advance(15_000)

        assert consumer.persisted == 3


@pytest.mark.parametrize("fault", [StateError("not now"), ValueError("a bug")])
async def test_a_consumer_that_cannot_commit_does_not_stop_others_from_committing(
    cluster: Cluster, group: str, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(NotingConsumer):
        async def persist_offsets(self) -> None:
            raise fault

    clock = ManualClock()
    consumer = NotingConsumer(group)
    async with instance_of(cluster.namesrv, clock=clock) as instance:
        await instance.add_consumer(Failing("failing"))
        await instance.add_consumer(consumer)

        await clock.advance(5_000)

        assert consumer.persisted == 1
        assert "offsets not committed group=failing" in caplog.text


async def test_the_inner_producer_is_made_once_and_stopped_with_the_instance(
    cluster: Cluster,
) -> None:
    class Inner:
        stopped = 0

        async def stop(self) -> None:
            self.stopped += 1

    async def make(_: ClientInstance) -> Inner:
        return Inner()

    async with instance_of(cluster.namesrv) as instance:
        first, second = await asyncio.gather(
            instance.inner_producer(make), instance.inner_producer(make)
        )
        assert first is second
        assert first.stopped == 0

    assert first.stopped == 1
    with pytest.raises(StateError, match="is stopped"):
        await instance.inner_producer(make)


# --- routes -----------------------------------------------------------------------------------


async def test_an_instance_looks_up_the_route_of_a_topic(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=3)
    async with instance_of(cluster.namesrv) as instance:
        found = await instance.routes.publishing(topic, timeout_ms=PATIENCE_MS)
        reading = await instance.routes.reading(topic)

        assert [queue.queue_id for queue in found.queues] == [0, 1, 2]
        assert reading == list(found.queues)
        assert instance.routes.cached_publishing(topic) is found
        assert instance.routes.cached_reading(topic) == reading
        assert instance.routes.master_of("broker-a") == cluster.address()
        assert instance.routes.address_of("broker-a", 1) == (cluster.address(), False)
        assert instance.routes.address_of("broker-b", MASTER_ID) is None


async def test_a_topic_that_does_not_exist_gets_queues_of_the_template(
    cluster: Cluster, topic: str
) -> None:
    async with instance_of(cluster.namesrv) as instance:
        found = await instance.routes.publishing(topic, timeout_ms=PATIENCE_MS, template_queues=2)

        assert found.is_template
        assert [queue.queue_id for queue in found.queues] == [0, 1]
        assert instance.routes.cached_publishing(topic) is found
        with pytest.raises(RouteNotFoundError, match=topic):
            await instance.routes.reading(topic)
        with pytest.raises(RouteNotFoundError, match="create the topic, or check its name"):
            await instance.routes.publishing("never", timeout_ms=PATIENCE_MS, template_queues=0)


async def test_concurrent_lookups_of_one_topic_share_a_request(
    cluster: Cluster, topic: str
) -> None:
    await cluster.make_topic(topic)
    async with instance_of(cluster.namesrv) as instance:
        asked = 0
        ask = instance.name_servers.route

        async def counting(*args: str, timeout_ms: float) -> object:
            nonlocal asked
            asked += 1
            return await ask(*args, timeout_ms=timeout_ms)

        instance.name_servers.route = counting  # type: ignore[method-assign,assignment]  # counts
        changed = await asyncio.gather(*(instance.routes.refresh(topic) for _ in range(50)))

        assert asked == 1
        assert all(changed)
        assert not await instance.routes.refresh(topic)


async def test_routes_of_topics_in_use_are_renewed_and_others_forgotten(
    cluster: Cluster, topic: str, group: str
) -> None:
    clock = ManualClock()
    await cluster.make_topic(topic, queues=1)
    await cluster.make_topic("passing", queues=1)
    async with instance_of(cluster.namesrv, clock=clock) as instance:
        consumer = NotingConsumer(group, [topic])
        await instance.add_consumer(consumer)
        await instance.routes.reading("passing")
        await cluster.make_topic(topic, queues=5)

        await pass_time(clock, lambda: len(instance.routes.cached_reading(topic) or []) == 5)
        assert consumer.changed == [topic, topic]
        assert instance.routes.cached_reading("passing") is not None
        await pass_time(clock, lambda: instance.routes.cached_reading("passing") is None)
        assert instance.routes.cached_reading(topic) is not None


# --- brokers that come and go -----------------------------------------------------------------


async def test_a_second_broker_is_found_and_dropped_again(
    cluster: Cluster, topic: str, group: str
) -> None:
    clock = ManualClock()
    await cluster.make_topic(topic, queues=1)
    consumer = NotingConsumer(group, [topic])
    async with instance_of(cluster.namesrv, clock=clock) as instance:
        await instance.add_consumer(consumer)
        await cluster.start_broker("broker-b")
        await cluster.make_topic(topic, queues=1, broker="broker-b")

        await pass_time(clock, lambda: known_to(cluster, group, "broker-b") == [ID])

        await cluster.kill_broker("broker-b")
        await pass_time(clock, lambda: len(instance.routes.cached_reading(topic) or []) == 1)
        assert instance.routes.master_of("broker-b") is None
        assert [broker.broker_name for broker in instance.routes.addresses()] == ["broker-a"]


async def test_a_broker_that_is_back_gets_a_heartbeat_with_the_first_connection(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    consumer = NotingConsumer(group, [topic])
    async with instance_of(cluster.namesrv) as instance:
        await instance.add_consumer(consumer)
        queue = (await instance.routes.reading(topic))[0]
        await cluster.kill_broker()
        with pytest.raises(RouteNotFoundError):
            await instance.routes.refresh(topic)
        # The cached route stays: the broker may be back before a newer route is known.
        assert instance.routes.master_of("broker-a") == cluster.address()

        await cluster.start_broker()
        rebalances = consumer.rebalances
        await instance.brokers.max_offset(queue)

        await until(lambda: known_to(cluster, group) == [ID])
        await until(lambda: consumer.rebalances > rebalances)
        assert not await instance.routes.refresh(topic)


async def test_a_reconnect_brings_a_heartbeat(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic)
    async with instance_of(cluster.namesrv) as instance:
        await instance.add_consumer(NotingConsumer(group, [topic]))
        queue = (await instance.routes.reading(topic))[0]
        await cluster.cut_connections()
        await until(lambda: known_to(cluster, group) == [])

        await instance.brokers.max_offset(queue)

        await until(lambda: known_to(cluster, group) == [ID])


# --- name servers -----------------------------------------------------------------------------


async def test_a_dead_name_server_is_skipped(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)
    for _ in range(4):  # the order is shuffled
        async with instance_of(f"{HERE}:1;{cluster.namesrv}") as instance:
            assert len(await instance.routes.reading(topic)) == 4
            assert instance.name_servers.chosen == cluster.namesrv


async def test_a_name_server_that_comes_back_is_asked_again(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)
    port = cluster.name_server.port
    async with instance_of(cluster.namesrv) as instance:
        await instance.routes.reading(topic)
        await cluster.name_server.stop()
        with pytest.raises(NameServersUnreachableError, match="check that one runs there"):
            await instance.routes.refresh(topic)

        cluster.name_server = await start_name_server(cluster.folder, port=port)

        with suppress(RouteNotFoundError):  # the broker may not have registered there yet
            await instance.routes.refresh(topic)
        assert len(await instance.routes.reading(topic)) == 4


async def test_name_servers_come_from_an_address_server_and_are_renewed(
    cluster: Cluster, topic: str
) -> None:
    await cluster.make_topic(topic)
    clock = ManualClock()
    listed = [f"{HERE}:1"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + ";".join(listed).encode() + b"\n")
        writer.close()

    server = await asyncio.start_server(serve, HERE, 0)
    async with server:
        domain = f"{HERE}:{server.sockets[0].getsockname()[1]}"
        async with instance_of("", clock=clock, namesrv_domain=domain) as instance:
            with pytest.raises(NameServersUnreachableError):
                await instance.routes.reading(topic)

            listed[:] = [cluster.namesrv]
            await pass_time(clock, lambda: instance.name_servers.addresses == (cluster.namesrv,))
            assert len(await instance.routes.reading(topic)) == 4

            # A failed request changes nothing.
            listed[:] = ["rubbish"]
            await clock.advance(120_000)
            assert instance.name_servers.addresses == (cluster.namesrv,)


@pytest.mark.parametrize("waits", [True, False])
async def test_a_name_server_that_does_not_reply_fails_in_time(topic: str, *, waits: bool) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if waits:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, HERE, 0)
    async with server:
        address = f"{HERE}:{server.sockets[0].getsockname()[1]}"
        async with instance_of(address) as instance, asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(NameServersUnreachableError, match=address):
                await instance.routes.publishing(topic, timeout_ms=200)


# --- threads and loops ------------------------------------------------------------------------


async def test_two_loops_in_two_threads_each_have_an_instance(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)
    options = ClientOptions(
        namesrv=cluster.namesrv,
        client_ip=HERE,
        instance_name="shared",
        call_timeout_ms=PATIENCE_MS,
        connect_timeout_ms=PATIENCE_MS,
    )
    both = threading.Barrier(2, timeout=WAIT_SECONDS)

    async def read() -> tuple[int, int]:
        instance = await acquire(options)
        await asyncio.to_thread(both.wait)
        queues = len(await instance.routes.reading(topic))
        await asyncio.to_thread(both.wait)
        await release(instance)
        return id(instance), queues

    ends = await asyncio.gather(*(asyncio.to_thread(asyncio.run, read()) for _ in range(2)))

    assert [queues for _, queues in ends] == [4, 4]
    assert len({made for made, _ in ends}) == 2
