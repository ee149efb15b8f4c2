"""Official brokers and a name server: they register, stay, and are gone when they are gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.nameserver import app
from orbitmq.nameserver.config import NameServerConfig
from tests.interop import wire
from tests.interop.official import CLUSTER, OfficialBroker
from tests.interop.peers import BROKERS, NameServer, Peer, StartBroker

pytestmark = pytest.mark.interop

# Far below the two minutes after which a silent broker expires.
AT_ONCE_S = 60
BROKER_EXPIRY_MS = 120_000


@pytest.mark.scenario("broker", "stays registered after a forced registration")
def test_broker_stays_routed_when_it_is_made_to_register_again(
    broker: OfficialBroker, name_server: NameServer, new_topic: str
) -> None:
    broker.create_topic(new_topic)

    for permission in (wire.READ_ONLY, wire.READ_WRITE):
        wire.force_registration(broker.address, permission=permission)
        wire.wait_route_permissions(
            name_server.address, new_topic, {broker.name: permission}, timeout_s=AT_ONCE_S
        )

    clusters = wire.ask(name_server.address, wire.GET_CLUSTERS).body
    assert clusters["brokerAddrTable"][broker.name]["brokerAddrs"] == {"0": broker.address}
    assert broker.name in clusters["clusterAddrTable"][CLUSTER]


@pytest.mark.scenario("peer", "is gone at once when killed")
@pytest.mark.parametrize("peer", BROKERS, ids=str)
def test_route_is_gone_at_once_when_the_broker_is_killed(
    peer: Peer, name_servers: dict[str, NameServer], start_broker: StartBroker, new_topic: str
) -> None:
    addresses = [server.address for server in name_servers.values()]
    broker = start_broker(peer.line, addresses)
    broker.create_topic(new_topic)

    broker.process.kill()

    for address in addresses:
        wire.wait_route_code(address, new_topic, wire.TOPIC_NOT_EXIST, timeout_s=AT_ONCE_S)
        assert broker.name not in wire.broker_names(address)


@pytest.mark.scenario("peer", "is removed when it falls silent")
@pytest.mark.parametrize("peer", BROKERS, ids=str)
async def test_broker_expires_when_it_is_stopped_for_two_minutes(
    peer: Peer, start_broker: StartBroker, new_topic: str, tmp_path: Path
) -> None:
    clock = ManualClock()
    settings = app.load_settings(
        flags={
            "bindAddress": "127.0.0.1",
            "listenPort": "0",
            "kvConfigPath": str(tmp_path / "kvConfig.json"),
            # Or the idle sweep would close the connection, and hide whether the scan works.
            "serverChannelMaxIdleTimeSeconds": "3600",
        }
    )
    server = app.NameServer(settings, clock=clock)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    try:
        broker = await asyncio.to_thread(start_broker, peer.line, [address])
        await asyncio.to_thread(broker.create_topic, new_topic)
        broker.process.pause()
        # What it said before is taken in before the clock moves.
        assert await asyncio.to_thread(wire.route_code, address, new_topic) == wire.SUCCESS

        await clock.advance(BROKER_EXPIRY_MS - 1)
        before = await asyncio.to_thread(wire.route_code, address, new_topic)
        await clock.advance(1 + settings.of(NameServerConfig).scan_interval_ms)
        after = await asyncio.to_thread(wire.route_code, address, new_topic)

        assert (before, after) == (wire.SUCCESS, wire.TOPIC_NOT_EXIST)
    finally:
        await server.stop()
