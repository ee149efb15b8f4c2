"""Epochs that name servers know: listed, and forgotten by an operator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from orbitmq.embedded import Cluster
from orbitmq.errors import ClusterMissingError, MasterReplacedError
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.registration import RegisterBroker, encode_register_body
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.cli.conftest import Run
from tests.integration.cli.test_namesrv import start


async def register_master(name_server: str, *, epoch: int, address: str = "10.0.0.9:10911") -> None:
    """Register a master, which is gone when this returns."""
    topics = {name: TopicConfig(name=name) for name in ("T", "U")}
    header = RegisterBroker(
        broker_name="promoted",
        broker_address=address,
        cluster_name="C",
        broker_id=Long(0),
    )
    async with RpcClient() as rpc:
        version = DataVersion(state_version=epoch)
        await rpc.call(name_server, header, encode_register_body(topics, version))


def test_an_epoch_is_listed_until_it_is_forgotten(cluster: Cluster, run: Run) -> None:
    assert "no broker group has an epoch above 0" in run("namesrv", "epochs").stdout
    asyncio.run(register_master(cluster.namesrv, epoch=7))

    listed = json.loads(run("namesrv", "epochs", "--json").stdout)
    assert listed == [
        {"name_server": cluster.namesrv, "cluster": "C", "broker": "promoted", "epoch": 7}
    ]

    forget = ("namesrv", "forget-epoch")
    assert "nothing was done" in run(*forget, "promoted", code=5, typed="n\n").stdout
    misspelt = run(*forget, "promotd", "-y", code=4).exception
    assert isinstance(misspelt, ClusterMissingError)
    assert "did you mean promoted?" in str(misspelt)
    assert "epoch 7 of promoted is forgotten" in run(*forget, "promoted", "-y").stdout
    assert json.loads(run("namesrv", "epochs", "--json").stdout) == []


async def test_a_killed_name_server_remembers_the_epochs_that_it_acknowledged(
    tmp_path: Path,
) -> None:
    process, port = await start(tmp_path)
    await register_master(f"127.0.0.1:{port}", epoch=7)
    process.kill()
    await process.wait()

    process, port = await start(tmp_path)
    try:
        with pytest.raises(MasterReplacedError, match=r"has epoch 6, but .* is at epoch 7"):
            await register_master(f"127.0.0.1:{port}", epoch=6, address="10.0.0.1:10911")
        await register_master(f"127.0.0.1:{port}", epoch=7)
    finally:
        process.kill()
        await process.wait()
