"""Heartbeats to masters and slaves, to brokers that fail, signed and over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from orbitmq import java_json
from orbitmq.clock import ManualClock
from orbitmq.errors import TransportError
from orbitmq.model.routes import BrokerGroup, QueueRoute, TopicRoute
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.clients import Heartbeat, HeartbeatBody, UnregisterClient
from orbitmq.protocol.requests.routing import GetRoute
from orbitmq.protocol.signing import verify
from orbitmq.transport.config import TlsMode, TlsServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.request_loop import Handler
from orbitmq.transport.rpc_server import RpcServer
from tests.integration.client.conftest import pass_time
from tests.integration.client.members import NotingConsumer, NotingProducer, instance_of
from tests.integration.transport.serving import LOCAL
from tests.waiting import until

MASTER, SLAVE = 0, 1


@dataclass
class PairServers:
    """A master and its slave, each a name server, too, that record heartbeats and requests."""

    addresses: dict[int, str] = field(default_factory=dict)
    heard: dict[int, list[HeartbeatBody]] = field(default_factory=lambda: {MASTER: [], SLAVE: []})
    requests: list[Command] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def handlers(self, broker_id: int) -> dict[int, Handler]:
        def route(_: Connection, request: Command) -> Command:
            found = TopicRoute(
                brokers=[BrokerGroup(addresses=self.addresses, name="pair", cluster="c")],
                queues=[
                    QueueRoute(broker_name="pair", permission=6, read_queues=1, write_queues=1)
                ],
            )
            self.requests.append(request)
            return request.reply(body=java_json.encode(found))

        async def heartbeat(_: Connection, request: Command) -> Command:
            self.requests.append(request)
            self.heard[broker_id].append(java_json.decode(request.body, HeartbeatBody))
            await self.gate.wait()
            return request.reply()

        def unregister(_: Connection, request: Command) -> Command:
            return request.reply()

        return {
            GetRoute.CODE: route,
            Heartbeat.CODE: heartbeat,
            UnregisterClient.CODE: unregister,
        }

    def counts(self) -> tuple[int, int]:
        return len(self.heard[MASTER]), len(self.heard[SLAVE])


@asynccontextmanager
async def pair(tls: TlsMode = TlsMode.DISABLED) -> AsyncIterator[PairServers]:
    servers = PairServers()
    servers.gate.set()
    async with AsyncExitStack() as running:
        for broker_id in (MASTER, SLAVE):
            server = RpcServer(
                servers.handlers(broker_id), config=LOCAL, tls=TlsServerConfig(mode=tls)
            )
            await server.start()
            running.push_async_callback(server.stop)
            servers.addresses[broker_id] = f"127.0.0.1:{server.port}"
        yield servers


async def test_producers_send_heartbeats_to_masters_and_consumers_to_slaves_too() -> None:
    clock = ManualClock()
    async with (
        pair() as servers,
        instance_of(servers.addresses[SLAVE], clock=clock) as instance,
    ):
        await instance.add_producer(NotingProducer("p", ["T"]))
        await instance.routes.refresh("T")
        await pass_time(clock, lambda: servers.counts() == (1, 0))

        consumer = NotingConsumer("g", ["T"])
        await instance.add_consumer(consumer)

        assert servers.counts() == (2, 1)
        heartbeat = servers.heard[SLAVE][0]
        assert heartbeat.client_id == "127.0.0.1@test"
        assert [group.group for group in heartbeat.consumers] == ["g"]
        assert [group.group for group in heartbeat.producers] == ["CLIENT_INNER_PRODUCER", "p"]
        assert instance.broker_version(servers.addresses[SLAVE]) > 0
        assert instance.broker_version("127.0.0.1:1") == 0
        await instance.remove_consumer(consumer)


async def test_a_client_without_members_sends_no_heartbeat() -> None:
    clock = ManualClock()
    async with (
        pair() as servers,
        instance_of(servers.addresses[MASTER], clock=clock) as instance,
    ):
        await instance.routes.refresh("T")
        await instance.heartbeat_now()
        await clock.advance(60_000)

        assert servers.counts() == (0, 0)


async def test_a_later_heartbeat_waits_for_the_one_in_flight() -> None:
    async with pair() as servers, instance_of(servers.addresses[MASTER]) as instance:
        await instance.routes.refresh("T")
        servers.gate.clear()
        joining = [
            asyncio.create_task(instance.add_producer(NotingProducer(group, ["T"])))
            for group in ("p1", "p2", "p3")
        ]
        await until(lambda: servers.counts() == (1, 0))
        servers.gate.set()
        await asyncio.gather(*joining)

        last = servers.heard[MASTER][-1]
        assert {group.group for group in last.producers} >= {"p1", "p2", "p3"}


async def test_a_broker_that_is_down_does_not_delay_the_other() -> None:
    async with pair() as servers, instance_of(servers.addresses[MASTER]) as instance:
        servers.addresses[SLAVE] = "127.0.0.1:1"

        await instance.add_consumer(NotingConsumer("g", ["T"]))

        assert servers.counts() == (1, 0)


async def test_every_request_is_signed_with_the_keys_of_the_client() -> None:
    async with (
        pair() as servers,
        instance_of(
            servers.addresses[MASTER], access_key="ak", secret_key="sk", security_token="token"
        ) as instance,
    ):
        await instance.add_consumer(NotingConsumer("g", ["T"]))

        assert len(servers.requests) >= 3
        for request in servers.requests:
            verify(request.fields, request.body, "sk")
            assert request.fields["AccessKey"] == "ak"
            assert request.fields["SecurityToken"] == "token"


async def test_a_client_without_keys_does_not_sign() -> None:
    async with pair() as servers, instance_of(servers.addresses[MASTER]) as instance:
        await instance.add_consumer(NotingConsumer("g", ["T"]))

        assert len(servers.requests) >= 3
        for request in servers.requests:
            assert not {"AccessKey", "SecurityToken", "Signature"} & request.fields.keys()


async def test_a_client_with_tls_connects_with_it() -> None:
    async with pair(TlsMode.ENFORCING) as servers:
        async with instance_of(servers.addresses[MASTER], tls=True) as instance:
            await instance.add_consumer(NotingConsumer("g", ["T"]))
            assert servers.counts() == (1, 1)

        async with instance_of(servers.addresses[MASTER]) as plain:
            with pytest.raises(TransportError, match=servers.addresses[MASTER]):
                await plain.routes.refresh("T")
        async with instance_of(
            servers.addresses[MASTER], tls=True, tls_verify_server=True
        ) as strict:
            with pytest.raises(TransportError, match="certificate"):
                await strict.routes.refresh("T")
