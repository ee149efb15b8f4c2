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
from tests.integration.replication.group import FILE_BYTES, Group
from tests.waiting import until


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path) as group:
        yield group


async def health(group: Group, *flags: str) -> Result:
    """Run the command beside the brokers."""
    words = ["cluster", "health", "--namesrv", group.namesrv, *flags]
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
    assert (slave["follows"], slave["lag_bytes"]) == (True, 0)
    assert master["log_end"] == slave["log_end"] > 0


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
