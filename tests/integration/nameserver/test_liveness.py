"""Brokers that hang or vanish leave the routes, over real sockets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from orbitmq import java_json
from orbitmq.clock import settle
from orbitmq.model.routes import ClusterView, TopicRoute
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.registration import (
    RegisterBroker,
    UnregisterBroker,
    encode_register_body,
)
from orbitmq.protocol.requests.routing import GetClusterView, GetRoute, ListTopics, TopicList
from tests.integration.nameserver.conftest import Site


async def test_a_broker_is_gone_as_soon_as_its_connection_closes(site: Site) -> None:
    broker, client = await site.connect(), await site.connect()
    await broker.report("T", "U")
    assert (await client.ask(GetRoute(topic="T"))).code == ResponseCode.SUCCESS

    await broker.rpc.stop()
    async with asyncio.timeout(60):
        while site.server.routes.route("T") is not None:
            await settle()

    assert (await client.ask(GetRoute(topic="T"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_lost_broker_is_told_to_clients_that_ask_until_it_unregisters(site: Site) -> None:
    lost, stays, client = [await site.connect() for _ in range(3)]
    await stays.report("T", "U")
    await lost.report("T", "V", name="broker-b", address="10.0.0.2:10911")
    await lost.rpc.stop()
    async with asyncio.timeout(60):
        while not site.server.routes.missing_topics():
            await settle()
    asked = GetRoute(topic="T", with_missing_brokers=True)

    plain = await client.ask(GetRoute(topic="T"))
    full = java_json.decode((await client.ask(asked)).body, TopicRoute)
    view = java_json.decode(
        (await client.ask(GetClusterView(with_missing_brokers=True))).body, ClusterView
    )
    listed = java_json.decode(
        (await client.ask(ListTopics(with_missing_brokers=True))).body, TopicList
    )
    only_there = await client.ask(GetRoute(topic="V", with_missing_brokers=True))

    assert b"broker-b" not in plain.body
    assert b"issing" not in plain.body
    assert [part.broker_name for part in full.queues] == ["broker-a"]
    assert [part.broker_name for part in full.missing_queues or []] == ["broker-b"]
    assert full.missing_brokers == view.missing_brokers
    assert [one.since_ms for one in view.missing_brokers or []] == [site.clock.now_ms()]
    assert (sorted(listed.topics), listed.missing_topics) == (["T", "U"], ["V"])
    assert only_there.code == ResponseCode.SUCCESS
    assert (await client.ask(GetRoute(topic="V"))).code == ResponseCode.TOPIC_NOT_EXIST

    await client.ask(
        UnregisterBroker(
            broker_name="broker-b",
            broker_address="10.0.0.2:10911",
            cluster_name="C",
            broker_id=Long(0),
        )
    )
    assert java_json.decode((await client.ask(asked)).body, TopicRoute).missing_brokers == []


class TestRemembered:
    """A name server that remembers brokers that were stopped."""

    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {"rememberUnregisteredBrokers": "true"}

    async def test_a_broker_that_unregisters_is_missing_until_an_operator_forgets_it(
        self, site: Site
    ) -> None:
        broker = await site.connect()
        await broker.report("T", "U")
        leave = UnregisterBroker(
            broker_name="broker-a",
            broker_address="10.0.0.1:10911",
            cluster_name="C",
            broker_id=Long(0),
        )

        await broker.ask(leave)
        assert (await broker.ask(GetRoute(topic="T"))).code == ResponseCode.TOPIC_NOT_EXIST
        assert site.server.routes.missing_topics() == ["T", "U"]

        await broker.ask(leave)
        assert site.server.routes.missing_topics() == []


async def test_a_broker_that_reports_on_a_new_connection_survives_the_old_one(site: Site) -> None:
    old, new = await site.connect(), await site.connect()
    await old.report("T", "U")
    await new.report("T", "U")

    await old.rpc.stop()
    async with asyncio.timeout(60):
        while len(site.server.server.connections) > 1:
            await settle()

    assert (await new.ask(GetRoute(topic="T"))).code == ResponseCode.SUCCESS


async def test_a_broker_that_hangs_is_removed_after_120_seconds_and_its_socket_closed(
    site: Site,
) -> None:
    asked = request(
        RegisterBroker(
            broker_name="a", broker_address="10.0.0.1:1", cluster_name="C", broker_id=Long(0)
        ),
        encode_register_body({}, DataVersion()),
    )
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", site.server.port)) as hung:
        hung.setblocking(False)
        await loop.sock_sendall(hung, asked.encode())
        assert await loop.sock_recv(hung, 65536)
        client = await site.connect()
        assert b'"a"' in (await client.ask(GetClusterView())).body

        for _ in range(13):
            await client.ask(GetClusterView())  # a connection in use stays
            await site.clock.advance(10_000)

        assert await loop.sock_recv(hung, 65536) == b""
        assert (await client.ask(GetClusterView())).body == (
            b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
        )
