"""Routes: looked up once, cached, renewed, dropped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from orbitmq import java_json
from orbitmq.client.aio.instance.name_servers import NameServers
from orbitmq.client.aio.instance.routes import BrokerAddress, Routes
from orbitmq.clock import SystemClock, settle
from orbitmq.errors import (
    NameServersUnreachableError,
    NoQueueError,
    OrbitError,
    ProtocolError,
    RouteNotFoundError,
)
from orbitmq.model.routes import BrokerGroup, QueueRoute, TopicRoute
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.routing import GetRoute
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from orbitmq.transport.rpc_server import RpcServer

# Only a stalled machine would take this long.
CALL_MS = 60_000


def route(
    *names: str, queues: int = 1, permission: int = 6, order: str | None = None
) -> TopicRoute:
    return TopicRoute(
        brokers=[
            BrokerGroup(addresses={0: f"{name}:1", 2: f"{name}:3"}, name=name, cluster="c")
            for name in names
        ],
        queues=[
            QueueRoute(
                broker_name=name, permission=permission, read_queues=queues, write_queues=queues
            )
            for name in names
        ],
        order_config=order,
    )


@dataclass
class Scene:
    """A name server with scripted routes, and the routes of a client that asks it."""

    known: dict[str, TopicRoute] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    routes: Routes = field(init=False)
    name_servers: NameServers = field(init=False)

    async def answer(self, _: Connection, request: Command) -> Command:
        topic = GetRoute.decode(request.fields).topic
        self.asked.append(topic)
        await self.open.wait()
        if topic not in self.known:
            return request.reply(code=ResponseCode.TOPIC_NOT_EXIST, remark=f"no {topic}")
        return request.reply(body=java_json.encode(self.known[topic]))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    scene.open.set()
    server = RpcServer(
        {GetRoute.CODE: scene.answer},
        config=ServerConfig(bind_address="127.0.0.1", shutdown_grace_seconds=0),
    )
    await server.start()
    async with RpcClient() as rpc:
        scene.name_servers = NameServers([f"127.0.0.1:{server.port}"], rpc)
        scene.routes = Routes(
            scene.name_servers,
            clock=SystemClock(),
            call_timeout_ms=CALL_MS,
            on_change=scene.changed.append,
        )
        yield scene
        await scene.routes.stop()
        scene.open.set()
    await server.stop()


# --- publishing -------------------------------------------------------------------------------


async def test_a_topic_without_write_permission_has_no_queue_to_send_to(scene: Scene) -> None:
    scene.known["T"] = route("a", permission=4)

    with pytest.raises(NoQueueError, match="'T' has no queue that takes messages"):
        await scene.routes.publishing("T", timeout_ms=CALL_MS)

    assert scene.routes.cached_publishing("T") is None
    assert len(await scene.routes.reading("T")) == 1


@pytest.mark.parametrize("template", [None, route("a", permission=4)])
async def test_a_topic_that_no_broker_would_create_is_not_found(
    scene: Scene, template: TopicRoute | None
) -> None:
    if template is not None:
        scene.known["TBW102"] = template

    with pytest.raises(RouteNotFoundError, match="no T"):
        await scene.routes.publishing("T", timeout_ms=CALL_MS)

    assert scene.asked == ["T", "TBW102"]


async def test_a_template_is_used_until_it_changes_or_the_topic_exists(scene: Scene) -> None:
    scene.known["TBW102"] = route("a", queues=8)
    first = await scene.routes.publishing("T", timeout_ms=CALL_MS)
    assert (len(first.queues), first.is_template) == (4, True)
    assert await scene.routes.publishing("T", timeout_ms=CALL_MS) is first
    other = await scene.routes.publishing("T2", timeout_ms=CALL_MS, template_queues=1)
    assert len(other.queues) == 1
    assert scene.asked == ["T", "TBW102", "T2"]

    # Renewed with the topics that rely on it.
    scene.known["TBW102"] = route("b", queues=8)
    await scene.routes.renew(["T", "T2"])
    assert scene.routes.cached_publishing("T") is None
    again = await scene.routes.publishing("T", timeout_ms=CALL_MS)
    assert again.queues[0].broker_name == "b"

    scene.known["T"] = route("b", queues=2)
    assert await scene.routes.refresh("T")
    found = scene.routes.cached_publishing("T")
    assert found is not None
    assert (len(found.queues), found.is_template) == (2, False)


# --- looking up -------------------------------------------------------------------------------


async def test_a_route_in_another_order_is_not_a_change(scene: Scene) -> None:
    scene.known["T"] = route("a", "b")
    assert await scene.routes.refresh("T")

    scene.known["T"] = route("b", "a")

    assert not await scene.routes.refresh("T")
    assert scene.changed == ["T"]


async def test_a_cancelled_caller_does_not_cancel_the_lookup_of_others(scene: Scene) -> None:
    scene.known["T"] = route("a")
    scene.open.clear()
    patient = asyncio.create_task(scene.routes.refresh("T"))
    while not scene.asked:
        await settle()

    with pytest.raises(NameServersUnreachableError, match=r"no answer from .* within 20 ms"):
        await scene.routes.refresh("T", timeout_ms=20)
    scene.open.set()

    assert await patient
    assert scene.asked == ["T"]


async def test_a_caller_with_more_time_looks_up_again(scene: Scene) -> None:
    scene.known["T"] = route("a")
    scene.open.clear()
    hasty = asyncio.create_task(scene.routes.refresh("T", timeout_ms=50))
    await settle(1)
    patient = asyncio.create_task(scene.routes.refresh("T"))

    with pytest.raises(NameServersUnreachableError):
        await hasty
    scene.open.set()

    assert await patient


async def test_a_lookup_that_nobody_waits_for_is_harmless(scene: Scene) -> None:
    scene.open.clear()
    asking = asyncio.create_task(scene.routes.refresh("T"))
    while not scene.asked:
        await settle()

    asking.cancel()
    await asyncio.wait({asking})
    await scene.routes.stop()

    assert asking.cancelled()


async def test_a_stop_ends_waiting_lookups_with_an_error(scene: Scene) -> None:
    scene.open.clear()
    asking = asyncio.create_task(scene.routes.refresh("T"))
    while not scene.asked:
        await settle()

    await scene.routes.stop()

    with pytest.raises(NameServersUnreachableError, match="the client is stopping"):
        await asking


async def test_a_malformed_route_is_an_error_and_not_stored(scene: Scene) -> None:
    scene.known["T"] = route("a", order="rubbish")

    with pytest.raises(ProtocolError, match="order config"):
        await scene.routes.refresh("T")

    assert scene.routes.cached_reading("T") is None
    await scene.routes.renew(["T"])


async def test_a_bug_in_storing_a_route_is_raised_to_the_caller(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.known["T"] = route("a")

    def fail(topic: str) -> None:
        raise ValueError(topic)

    routes = Routes(
        scene.name_servers,
        clock=SystemClock(),
        call_timeout_ms=CALL_MS,
        on_change=fail,
    )

    with pytest.raises(OrbitError, match="route of topic 'T' cannot be used: ValueError"):
        await routes.refresh("T")

    await routes.stop()
    assert "task failed task=route of T" in caplog.text


# --- renewing ---------------------------------------------------------------------------------


async def test_a_round_looks_up_every_topic_and_logs_a_missing_one_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    topics = [f"T{number}" for number in range(40)]
    scene.known = {topic: route("a") for topic in topics}

    for _ in range(2):
        await scene.routes.renew([*topics, "missing"])

    assert sorted(set(scene.asked)) == sorted([*topics, "missing"])
    assert caplog.text.count("topic has no route topic=missing") == 1


async def test_a_round_ends_if_no_name_server_replies(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.name_servers.update(["127.0.0.1:1"])

    await scene.routes.renew([f"T{number}" for number in range(40)])

    # The first concurrent lookups, not all topics.
    assert caplog.text.count("routes not renewed") == 16


async def test_routes_that_are_no_longer_used_are_dropped(scene: Scene) -> None:
    scene.known = {"T": route("a"), "asked": route("b"), "TBW102": route("c")}
    await scene.routes.reading("T")
    await scene.routes.reading("asked")
    await scene.routes.publishing("made", timeout_ms=CALL_MS)

    await scene.routes.renew(["T"])
    assert scene.routes.master_of("b") == "b:1"
    assert scene.routes.cached_publishing("made") is not None
    await scene.routes.renew(["T"])

    assert scene.routes.master_of("b") is None
    assert scene.routes.cached_reading("asked") is None
    assert scene.routes.cached_publishing("made") is None
    assert scene.routes.master_of("a") == "a:1"


# --- brokers ----------------------------------------------------------------------------------


async def test_brokers_are_found_by_name_and_number(scene: Scene) -> None:
    scene.known["T"] = route("a")
    await scene.routes.refresh("T")
    routes = scene.routes

    assert routes.address_of("a", 0) == ("a:1", False)
    assert routes.address_of("a", 2) == ("a:3", True)
    # Falls back to the next slave, then to any broker.
    assert routes.address_of("a", 1) == ("a:3", True)
    assert routes.address_of("a", 7) == ("a:1", False)
    assert routes.address_of("nobody", 0) is None
    assert routes.addresses() == [BrokerAddress("a", 0, "a:1"), BrokerAddress("a", 2, "a:3")]
    assert routes.is_broker("a:3")
    assert not routes.is_broker("a:2")


async def test_a_broker_that_does_not_answer_is_avoided_for_a_while(scene: Scene) -> None:
    scene.known["T"] = route("a")
    await scene.routes.refresh("T")
    routes = scene.routes

    routes.silent.note("a:1")
    assert routes.address_of("a", 0) == ("a:3", True)
    assert routes.broker_of_topic("T") == "a:3"
    assert routes.address_of("a", 0, avoids_silent=False) == ("a:1", False)
    assert routes.master_of("a") == "a:1"

    # The one that is wanted, if none answers.
    routes.silent.note("a:3")
    assert routes.address_of("a", 0) == ("a:1", False)
    routes.silent.heard("a:1")
    assert routes.address_of("a", 2) == ("a:1", False)


async def test_any_broker_of_a_topic_is_preferably_a_master(scene: Scene) -> None:
    scene.known["T"] = route("a")
    scene.known["slaves"] = TopicRoute(
        brokers=[BrokerGroup(addresses={1: "s:1"}, name="s", cluster="c")], queues=[]
    )
    scene.known["gone"] = TopicRoute(
        brokers=[BrokerGroup(addresses={}, name="g", cluster="c")], queues=[]
    )
    for topic in scene.known:
        await scene.routes.refresh(topic)

    assert scene.routes.broker_of_topic("T") == "a:1"
    assert scene.routes.broker_of_topic("slaves") == "s:1"
    assert scene.routes.broker_of_topic("gone") is None
    assert scene.routes.broker_of_topic("unknown") is None


async def test_the_last_changed_route_gives_the_address_of_a_broker(scene: Scene) -> None:
    scene.known["T1"] = scene.known["T2"] = route("a")
    await scene.routes.refresh("T1")
    await scene.routes.refresh("T2")

    scene.known["T1"] = TopicRoute(
        brokers=[BrokerGroup(addresses={0: "moved:1"}, name="a", cluster="c")],
        queues=scene.known["T2"].queues,
    )
    await scene.routes.refresh("T1")

    assert scene.routes.master_of("a") == "moved:1"
