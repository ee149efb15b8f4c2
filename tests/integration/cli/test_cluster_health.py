"""`orbitmq cluster health` of real masters and slaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from orbitmq.cli.main import command_for
from orbitmq.clock import ManualClock
from orbitmq.errors import CommandError, MasterMissingError
from tests.integration.replication.group import FILE_BYTES, Group
from tests.waiting import until


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path) as group:
        yield group


async def health(group: Group, *flags: str) -> Result:
    """Run the command beside the brokers."""
    return await run(group, "cluster", "health", *flags)


async def run(group: Group, *command: str) -> Result:
    words = [*command, "--namesrv", group.namesrv]
    return await asyncio.to_thread(CliRunner().invoke, command_for(words), words)


async def health_as_json(group: Group) -> tuple[int, dict[str, Any]]:
    result = await health(group, "--json")
    return result.exit_code, json.loads(result.stdout)


async def test_a_master_with_a_slave_that_follows_is_healthy(group: Group) -> None:
    await group.pair(options={"brokerRole": "SYNC_MASTER"})
    await group.create_topic()
    await group.send()
    await group.until_copied()

    shown = await health(group)
    code, found = await health_as_json(group)

    assert (shown.exit_code, code) == (0, 0)
    assert "healthy: 1 group, 2 brokers" in shown.stdout
    assert found["health"] == "healthy"
    (only,) = found["groups"]
    master, slave = only["brokers"]
    assert (master["role"], slave["role"]) == ("master", "slave")
    assert (slave["follows"], slave["lag_bytes"], slave["lag_seconds"]) == (True, 0, 0)
    assert master["log_end"] == slave["log_end"] > 0
    assert master["epoch"] == slave["epoch"] == 0
    (listed,) = json.loads((await run(group, "broker", "slaves", group.name, "--json")).stdout)
    assert (listed["id"], listed["address"]) == (1, group.address(1))
    assert (listed["lag_bytes"], listed["lag_seconds"], listed["in_sync"]) == (0, 0, True)
    no_master = str((await run(group, "broker", "slaves", group.address(1))).exception)
    assert f"{group.address(1)} is a slave itself" in no_master
    assert "(name its master, or its group)" in no_master


async def test_a_slave_that_acknowledges_nothing_lags_by_bytes_and_seconds(tmp_path: Path) -> None:
    clock = ManualClock()
    async with Group(tmp_path, clock=clock) as group:
        await group.start(0, brokerRole="SYNC_MASTER")
        slave = await group.connect_slave()
        await slave.report(0)
        await group.until_linked()
        master = group.brokers[0]
        sending = asyncio.create_task(group.send(topic="TBW102"))
        await until(lambda: master.store.settled > 0)

        await clock.advance(2_500)

        (link,) = (await asyncio.to_thread(master.replication.state)).slaves
        assert (link.lag_bytes, link.lag_ms) == (master.store.settled, 2_500)
        assert link.broker_id is None
        await slave.report(master.store.settled)
        await sending
        (link,) = master.replication.state().slaves
        assert (link.lag_bytes, link.lag_ms) == (0, 0)


async def test_a_slave_that_is_missing_degrades_its_group(group: Group) -> None:
    await group.pair(options={"brokerRole": "SYNC_MASTER"})
    lost = group.address(1)
    await group.kill(1)
    await group.until_missed(1)
    await until(lambda: len(group.brokers[0].replication.copies) == 0)

    result = await health(group)

    assert result.exit_code == 1
    assert f"degraded: group-a: slave 1 at {lost} is missing since 20" in result.stdout
    assert "degraded: group-a: sends wait for 1 slave, and 0 are in sync" in result.stdout


async def test_commands_for_a_master_that_is_gone_say_so(group: Group) -> None:
    await group.pair()
    await group.kill(0)
    await group.until_missed(0)

    for words in (("broker", "slaves", group.name), ("broker", "drain", group.name, "--yes")):
        error = (await run(group, *words)).exception
        assert isinstance(error, MasterMissingError)
        assert f"{group.name} has no master now (orbitmq cluster health" in str(error)


async def test_a_slave_whose_log_is_not_copied_degrades_its_group(group: Group) -> None:
    await group.start(0)
    slave = await group.start(1, mappedFileSizeCommitLog=str(2 * FILE_BYTES))
    following = slave.replication.following
    assert following is not None
    await until(lambda: following.failure)

    code, found = await health_as_json(group)

    assert (code, found["health"]) == (1, "degraded")
    (only,) = found["groups"]
    (problem,) = only["problems"]
    assert problem.startswith(f"slave 1 at {group.address(1)} is not connected to its master: ")
    assert "mappedFileSizeCommitLog" in problem
    assert only["brokers"][1]["follows"] is False


async def test_a_group_without_its_master_is_down(group: Group) -> None:
    await group.pair()
    await group.kill(0)
    await group.until_missed(0)

    served = await health(group)
    await group.kill(1)
    await group.until_missed(1)
    gone = await health(group)

    assert (served.exit_code, gone.exit_code) == (2, 2)
    assert "down: group-a: there is no master; slaves serve its readers" in served.stdout
    assert "down: group-a: all its brokers are missing since 20" in gone.stdout


async def test_a_cluster_without_brokers_is_down(group: Group) -> None:
    result = await health(group)

    assert result.exit_code == 2
    assert result.stdout == "down: no broker is registered\n"


@pytest.mark.parametrize("flag", ["127.0.0.1", "a broker"])
async def test_a_wrong_address_is_a_wrong_command_and_no_degraded_cluster(
    group: Group, flag: str
) -> None:
    await group.start(0)
    address = group.address(0) if flag == "a broker" else flag
    words = ["cluster", "health", "--namesrv", address]

    result = await asyncio.to_thread(CliRunner().invoke, command_for(words), words)

    assert isinstance(result.exception, CommandError)
