"""Consumers that filter by a class: through filter servers, and never around them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.client import PushConsumer as BlockingPushConsumer
from orbitmq.client.core.subscriptions import by_sql
from orbitmq.errors import FilterError
from orbitmq.filterserver.app import FilterServer
from orbitmq.protocol.requests.clients import ConsumerConnections, ListConsumerConnections
from tests.integration.client.conftest import Cluster
from tests.integration.client.consuming import (
    QUICK,
    Seen,
    committed,
    consumer_of,
    ends,
    send,
    until_committed,
)
from tests.integration.filterserver import plugins
from tests.integration.filterserver.conftest import start_filter_server
from tests.waiting import beside, until

NAME = "shop.EveryThird"


def numbers(start: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(start, end)]


def wanted(start: int, end: int) -> list[bytes]:
    return [body for body in numbers(start, end) if int(body) % 3 == 0]


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins.install(tmp_path / "plugins", monkeypatch)


@pytest.fixture
async def filter_server(cluster: Cluster) -> AsyncIterator[FilterServer]:
    server = await start_filter_server(cluster.address())
    yield server
    await server.stop()


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_a_consumer_gets_what_its_class_accepts_and_commits_the_rest(
    cluster: Cluster, filter_server: FilterServer, topic: str, group: str, *, ordered: bool
) -> None:
    await cluster.make_topic(topic)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited, ordered=ordered)
    consumer.subscribe(topic, filter_class=NAME)
    await send(cluster, topic, *numbers(0, 30))

    async with consumer:
        await seen.all_of(set(wanted(0, 30)))
        await send(cluster, topic, *numbers(30, 60))
        await seen.all_of(set(wanted(30, 60)))
        await until_committed(cluster, group, topic, await ends(cluster, topic))
        reply = await cluster.rpc.call(
            cluster.address(), ListConsumerConnections(consumer_group=group)
        )

    assert sorted(seen.bodies, key=int) == wanted(0, 60)
    assert await committed(cluster, group, topic) == await ends(cluster, topic)
    heard = java_json.decode(reply.body, ConsumerConnections).subscriptions[topic]
    # As Java's 4.9.8 reports it.
    assert (heard.class_filter, heard.expression, heard.expression_type) == (True, NAME, "TAG")
    assert (heard.tags, heard.tag_codes) == ([], [])
    assert len(filter_server.classes) == 0


async def test_a_blocking_consumer_gets_what_its_class_accepts(
    cluster: Cluster,
    filter_server: FilterServer,  # noqa: ARG001  # runs
    topic: str,
    group: str,
) -> None:
    await cluster.make_topic(topic)
    await send(cluster, topic, *numbers(0, 30))
    seen = Seen()
    consumer = BlockingPushConsumer(
        group, on_message=seen.plain, namesrv=cluster.namesrv, consume_from="first", **QUICK
    )
    consumer.subscribe(topic, filter_class=NAME)

    await beside(consumer.start)
    await seen.all_of(set(wanted(0, 30)))
    await beside(consumer.stop)

    assert sorted(seen.bodies, key=int) == wanted(0, 30)


async def test_without_a_filter_server_nothing_is_delivered_until_there_is_one(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbers(0, 9))
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic, filter_class=NAME)

    async with consumer:
        await until(lambda: "has no filter server" in caplog.text)
        assert "orbitmq filterserver --broker HOST:PORT" in caplog.text
        assert seen.bodies == []
        server = await start_filter_server(cluster.address())
        await seen.count(3)
    await server.stop()

    assert seen.bodies == wanted(0, 9)


async def test_a_consumer_goes_on_when_its_filter_server_restarts_elsewhere(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=2)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic, filter_class=NAME)
    server = await start_filter_server(cluster.address())

    async with consumer:
        for start in range(0, 90, 30):
            await send(cluster, topic, *numbers(start, start + 30))
            await seen.all_of(set(wanted(start, start + 30)))
            await server.server.abort()
            await server.stop()
            server = await start_filter_server(cluster.address())
    await server.stop()

    assert sorted(seen.bodies, key=int) == wanted(0, 90)


async def test_a_dead_filter_server_that_is_still_in_the_route_is_avoided(
    cluster: Cluster, filter_server: FilterServer, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=4)
    other = await start_filter_server(cluster.address())
    # It registers, but serves nobody any more.
    await other.server.abort()
    await send(cluster, topic, *numbers(0, 30))
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic, filter_class=NAME)

    async with consumer:
        await seen.all_of(set(wanted(0, 30)))
        assert len(cluster.brokers["broker-a"].parts.filter_servers.addresses) == 2
    await other.stop()

    assert filter_server.workers[NAME].process_ids


async def test_a_function_that_fails_holds_its_queue_up_and_delivers_nothing_of_it(
    cluster: Cluster,
    filter_server: FilterServer,  # noqa: ARG001  # runs
    topic: str,
    group: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, b"0", b"poison", b"2")
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic, filter_class="shop.Poison")

    async with consumer:
        await until(lambda: "filter shop.Poison: ValueError: cannot read this order" in caplog.text)

    assert seen.bodies == [b"0"]


async def test_a_consumer_can_change_to_a_class_and_back(
    cluster: Cluster,
    filter_server: FilterServer,  # noqa: ARG001  # runs
    topic: str,
    group: str,
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)

    async with consumer:
        await send(cluster, topic, *numbers(0, 3))
        await seen.count(3)
        consumer.subscribe(topic, filter_class=NAME)
        await consumer._changes.all_done()
        await send(cluster, topic, *numbers(3, 9))
        await seen.count(5)
        consumer.subscribe(topic)
        await consumer._changes.all_done()
        await send(cluster, topic, b"10")
        await seen.count(6)

    assert seen.bodies == [*numbers(0, 3), b"3", b"6", b"10"]


@pytest.mark.parametrize(
    "wrong",
    ["", 3, "x" * 300, b"shop.EveryThird", "not a class !", "shop..Third", "shop.3rd", "shop.A\n"],
)
async def test_a_wrong_class_is_refused(cluster: Cluster, topic: str, wrong: str) -> None:
    consumer = consumer_of(cluster, "g", on_message=lambda _: None)

    with pytest.raises(FilterError, match="filter_class is"):
        consumer.subscribe(topic, filter_class=wrong)


@pytest.mark.parametrize("name", ["Heavy", "org.example.Heavy", "org.example.Größe$Inner"])
async def test_a_name_of_a_java_class_is_accepted(cluster: Cluster, topic: str, name: str) -> None:
    consumer = consumer_of(cluster, "g", on_message=lambda _: None)

    consumer.subscribe(topic, filter_class=name)

    assert consumer._subscriptions.of(topic).expression == name


@pytest.mark.parametrize("expression", ["paid", by_sql("a > 3")])
async def test_a_class_beside_an_expression_is_refused(
    cluster: Cluster, topic: str, expression: str
) -> None:
    consumer = consumer_of(cluster, "g", on_message=lambda _: None)

    with pytest.raises(FilterError, match="give either an expression or filter_class"):
        consumer.subscribe(topic, expression, filter_class=NAME)
