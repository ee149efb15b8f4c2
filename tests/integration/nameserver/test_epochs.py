"""Epochs of masters at a name server, over a socket: kept, shown, refused, forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orbitmq import java_json
from orbitmq.errors import SettingsError
from orbitmq.model.versions import DataVersion
from orbitmq.nameserver.app import NameServer, load_settings
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.registration import (
    BrokerHeartbeat,
    ForgetEpoch,
    QueryDataVersion,
    UnregisterBroker,
)
from orbitmq.protocol.requests.routing import GetBrokerGroup, GetClusterView, GetRoute
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.nameserver.conftest import Peer, Site

OLD = "10.0.0.1:10911"
NEW = "10.0.0.2:10911"


def content(reply: Command) -> Any:
    return json.loads(java_json.to_standard(reply.body))


async def shown_epochs(peer: Peer) -> Any:
    return content(await peer.ask(GetClusterView(with_epochs=True)))["brokerEpochTable"]


async def ask_version(peer: Peer, address: str, state: int) -> Command:
    asked = QueryDataVersion(
        cluster_name="C", broker_address=address, broker_name="broker-a", broker_id=Long(0)
    )
    version = DataVersion(counter=1, state_version=state)
    return await peer.ask(asked, java_json.encode(version))


async def test_a_replaced_master_is_refused_and_appears_nowhere(peer: Peer, site: Site) -> None:
    await peer.report("T", "U", address=OLD)
    promoted = await site.connect()
    await promoted.report("T", "U", address=NEW, epoch=1, version=2)

    refused = await peer.report("T", "V", address=OLD)

    assert refused.code == ResponseCode.ILLEGAL_OPERATION
    assert refused.remark is not None
    for words in ("has epoch 0", "is at epoch 1", f"its master is {NEW}", "as a slave"):
        assert words in refused.remark
    group = content(await peer.ask(GetBrokerGroup(cluster_name="C", broker_name="broker-a")))
    assert group["brokerMemberGroup"]["brokerAddrs"] == {"0": NEW}
    view = content(await peer.ask(GetClusterView()))
    assert view["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": NEW}
    assert (await peer.ask(GetRoute(topic="V"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_replaced_master_stays_dead_whatever_it_sends_until_it_returns_as_a_slave(
    peer: Peer, site: Site
) -> None:
    await peer.report("T", "U", address=OLD)
    promoted = await site.connect()
    await promoted.report("T", "U", address=NEW, epoch=1, version=2)

    answered = await ask_version(peer, OLD, 0)
    heartbeat = BrokerHeartbeat(cluster_name="C", broker_address=OLD)
    assert (await peer.ask(heartbeat)).code == ResponseCode.SUCCESS

    assert (answered.fields["changed"], answered.body) == ("true", b"")
    assert (await peer.report("T", "U", address=OLD)).code == ResponseCode.ILLEGAL_OPERATION
    joined = await peer.report(address=OLD, broker_id=1)
    assert joined.fields == {"masterAddr": NEW, "haServerAddr": f"{NEW}-ha"}
    group = content(await peer.ask(GetBrokerGroup(cluster_name="C", broker_name="broker-a")))
    assert group["brokerMemberGroup"]["brokerAddrs"] == {"0": NEW, "1": OLD}


async def test_an_epoch_survives_a_restart_of_the_name_server(
    peer: Peer, site: Site, tmp_path: Path
) -> None:
    await peer.report("T", "U", address=NEW, epoch=4)
    flags = {
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "kvConfigPath": str(tmp_path / "kvConfig.json"),
    }
    again = NameServer(load_settings(flags=flags))
    await again.start()
    try:
        async with RpcClient() as rpc:
            restarted = Peer(f"127.0.0.1:{again.port}", rpc)
            refused = await restarted.report("T", "U", address=OLD, epoch=3)
            accepted = await restarted.report("T", "U", address=NEW, epoch=4)
    finally:
        await again.stop()

    assert "is at epoch 4; now it has no master" in (refused.remark or "")
    assert accepted.code == ResponseCode.SUCCESS
    assert site.folder == tmp_path


async def test_epochs_are_shown_to_those_who_ask_and_can_be_forgotten(
    peer: Peer, site: Site
) -> None:
    await peer.report("T", "U", address=NEW, epoch=4)
    plain = content(await peer.ask(GetClusterView()))
    assert plain.keys() == {"brokerAddrTable", "clusterAddrTable"}
    assert await shown_epochs(peer) == {"C": {"broker-a": 4}}
    await peer.report("T", "U", address=NEW, epoch=5, version=2)
    assert await shown_epochs(peer) == {"C": {"broker-a": 5}}

    forgotten = await peer.ask(ForgetEpoch(cluster_name="C", broker_name="broker-a"))
    again = await peer.ask(ForgetEpoch(cluster_name="C", broker_name="broker-a"))

    assert (forgotten.fields["epoch"], again.fields["epoch"]) == ("5", "0")
    assert await shown_epochs(peer) == {}
    # The master that is alive still counts, and registers its epoch again.
    other = await site.connect()
    assert (await other.report("T", "U", address=OLD)).code == ResponseCode.ILLEGAL_OPERATION
    await peer.report("T", "U", address=NEW, epoch=5, version=2)
    assert await shown_epochs(peer) == {"C": {"broker-a": 5}}


async def test_a_master_of_any_epoch_registers_once_the_epoch_is_forgotten(
    peer: Peer, site: Site
) -> None:
    promoted = await site.connect()
    await promoted.report("T", "U", address=NEW, epoch=4)
    await promoted.ask(
        UnregisterBroker(
            broker_name="broker-a", broker_address=NEW, cluster_name="C", broker_id=Long(0)
        )
    )

    refused = await peer.report("T", "U", address=OLD)
    await peer.ask(ForgetEpoch(cluster_name="C", broker_name="broker-a"))
    accepted = await peer.report("T", "U", address=OLD)

    assert [refused.code, accepted.code] == [
        ResponseCode.ILLEGAL_OPERATION,
        ResponseCode.SUCCESS,
    ]


async def test_a_report_that_is_refused_for_another_reason_leaves_no_epoch(peer: Peer) -> None:
    refused = await peer.report("T", address=NEW, epoch=4)

    assert "single topic" in (refused.remark or "")
    assert await shown_epochs(peer) == {}


@pytest.mark.parametrize("options", [{"epochsMax": "1"}])
async def test_groups_with_an_epoch_are_bounded(peer: Peer) -> None:
    await peer.report("T", "U", epoch=1)

    refused = await peer.report("V", "W", name="broker-b", address=NEW, epoch=1)
    plain = await peer.report("V", "W", name="broker-b", address=NEW)

    assert "raise epochsMax" in (refused.remark or "")
    assert plain.code == ResponseCode.SUCCESS


async def test_a_damaged_file_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.json"
    file.write_text("{}")
    flags = {"bindAddress": "127.0.0.1", "listenPort": "0", "epochsPath": str(file)}
    flags["kvConfigPath"] = str(tmp_path / "kvConfig.json")

    with pytest.raises(SettingsError, match=r"elsewhere\.json is damaged"):
        await NameServer(load_settings(flags=flags)).start()
