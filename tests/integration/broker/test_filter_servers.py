"""Filter servers as the broker sees them: registration, silence, and pulls that are not for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.broker.filter_servers import SILENCE_MS_MAX
from orbitmq.clock import ManualClock
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import ConsumerGroup, Heartbeat, HeartbeatBody
from orbitmq.protocol.requests.filter_servers import FILTER_SERVERS_MAX, RegisterFilterServer
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from tests.integration.broker.conftest import Peer, Site, running
from tests.integration.broker.test_starting import name_server
from tests.waiting import until

ADDRESS = "10.0.0.1:30000"


def class_filter_pull(group: str = "g", *, flag: PullFlag = PullFlag.CLASS_FILTER) -> PullMessages:
    return PullMessages(
        consumer_group=group,
        topic="T",
        queue_id=0,
        queue_offset=Long(0),
        messages_max=32,
        system_flag=int(flag),
        commit_offset=Long(0),
        suspend_timeout_ms=Long(0),
        subscription_version=Long(0),
    )


async def test_a_filter_server_gets_a_number_and_the_name_of_its_broker(
    site: Site, peer: Peer
) -> None:
    reply = await peer.ask(RegisterFilterServer(address=ADDRESS))
    again = await peer.ask(RegisterFilterServer(address=ADDRESS))

    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert reply.fields == {"filterServerId": "1", "brokerName": "broker-a", "brokerId": "0"}
    assert again.fields == reply.fields
    assert site.broker.parts.filter_servers.addresses == [ADDRESS]


async def test_routes_show_a_filter_server_until_it_disconnects(tmp_path: Path) -> None:
    async with name_server(tmp_path) as names:
        at = f"127.0.0.1:{names.port}"
        async with running(tmp_path, ManualClock(), namesrvAddr=at) as site:
            peer, server = await site.connect(), await site.connect()
            await peer.make_topic("T")
            await until(lambda: "T" in names.routes.topics())

            def shown() -> dict[str, list[str]]:
                route = names.routes.route("T")
                return {} if route is None else route.filter_servers

            await server.ask(RegisterFilterServer(address=ADDRESS))
            await until(lambda: shown() == {site.broker.advertised: [ADDRESS]})

            await server.rpc.stop()
            await until(lambda: shown() == {})


async def test_a_silent_filter_server_is_dropped_and_disconnected(site: Site, peer: Peer) -> None:
    other = await site.connect()
    await peer.ask(RegisterFilterServer(address=ADDRESS))
    await other.ask(RegisterFilterServer(address="10.0.0.2:30000"))

    await site.clock.advance(SILENCE_MS_MAX - 1000)
    await other.ask(RegisterFilterServer(address="10.0.0.2:30000"))
    assert len(site.broker.parts.filter_servers.addresses) == 2
    await site.clock.advance(3000)

    assert site.broker.parts.filter_servers.addresses == ["10.0.0.2:30000"]
    await until(lambda: not peer.rpc.connected)


async def test_a_restarted_filter_server_replaces_its_old_connection(site: Site) -> None:
    old, new = await site.connect(), await site.connect()
    await old.ask(RegisterFilterServer(address=ADDRESS))
    await new.ask(RegisterFilterServer(address=ADDRESS))

    await old.rpc.stop()
    await new.ask(RegisterFilterServer(address=ADDRESS))

    assert site.broker.parts.filter_servers.addresses == [ADDRESS]


async def test_a_filter_server_that_moves_is_shown_at_its_new_address(
    site: Site, peer: Peer
) -> None:
    await peer.ask(RegisterFilterServer(address=ADDRESS))
    await peer.ask(RegisterFilterServer(address="10.0.0.9:1"))

    assert site.broker.parts.filter_servers.addresses == ["10.0.0.9:1"]


@pytest.mark.parametrize(
    "address",
    ["", "nonsense", "a:0", "a:70000", "a b:1", "a\n:1", "é:1", f"{'a' * 300}:1", "a:1;b:2"],
)
async def test_an_address_that_nobody_could_connect_to_is_refused(
    site: Site, peer: Peer, address: str
) -> None:
    reply = await peer.ask(RegisterFilterServer(address=address))

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark is not None
    assert reply.remark.startswith("filterServerAddr is wrong")
    assert site.broker.parts.filter_servers.addresses == []


async def test_more_filter_servers_than_a_route_takes_are_refused(site: Site) -> None:
    peers = [await site.connect() for _ in range(FILTER_SERVERS_MAX)]
    for port, peer in enumerate(peers, start=1):
        assert (await peer.ask(RegisterFilterServer(address=f"f:{port}"))).code == 0

    refused = await (await site.connect()).ask(RegisterFilterServer(address="g:1"))
    moved = await peers[0].ask(RegisterFilterServer(address="g:1"))

    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert f"already has {FILTER_SERVERS_MAX} filter servers" in str(refused.remark)
    assert moved.code == ResponseCode.SUCCESS
    assert len(site.broker.parts.filter_servers.addresses) == FILTER_SERVERS_MAX


async def test_the_broker_never_answers_a_class_filter_with_unfiltered_messages(peer: Peer) -> None:
    await peer.make_topic("T")
    await peer.send("T")
    by_class = Subscription(topic="T", class_filter=True, expression="shop.Paid", version=1)
    body = HeartbeatBody(
        client_id="c", consumers=[ConsumerGroup(group="g", subscriptions=[by_class])]
    )
    await peer.ask(Heartbeat(), java_json.encode(body))

    for flag in (PullFlag.CLASS_FILTER, PullFlag.CLASS_FILTER | PullFlag.SUBSCRIPTION, PullFlag(0)):
        reply = await peer.ask(class_filter_pull(flag=flag))
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "which only filter servers do" in str(reply.remark)
        assert not reply.body
    assert await peer.read("T", group="g")
