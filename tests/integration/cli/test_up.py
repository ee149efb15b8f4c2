"""`orbitmq up`, as a user runs it."""

from __future__ import annotations

import asyncio
import signal
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from orbitmq.broker.ports import find_port
from orbitmq.client.aio.name_servers import NameServers
from orbitmq.clock import SystemClock
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.cli.test_namesrv import COMMAND, run

HOST = "127.0.0.1"
WAIT_SECONDS = 40

Up = Callable[..., Awaitable[tuple[Process, str]]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def up(tmp_path: Path) -> AsyncIterator[Up]:
    """Runs the command until it says where its name server is; ends it after the test."""
    running: list[Process] = []

    async def start(*arguments: str) -> tuple[Process, str]:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "up",
            f"--dir={tmp_path / 'kept'}",
            "--namesrv-port=0",
            f"--broker-port={find_port(HOST)}",
            f"--metrics-port={free_port()}",
            *arguments,
            stdout=PIPE,
            stderr=PIPE,
        )
        running.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            lines = [(await process.stdout.readline()).decode()]
            while lines[-1] and not lines[-1].startswith("end with"):
                lines.append((await process.stdout.readline()).decode())
        assert lines[0].startswith("name server"), lines
        return process, lines[0].split()[-1]

    yield start
    for process in running:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def brokers_at(address: str) -> dict[str, str]:
    async with RpcClient() as rpc:
        view = await NameServers([address], rpc).cluster_view()
    return {name: group.addresses[0] for name, group in view.brokers.items()}


async def test_it_serves_until_ctrl_c_and_ends_cleanly(up: Up) -> None:
    process, address = await up()
    brokers = await brokers_at(address)

    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(WAIT_SECONDS):
        _, log = await process.communicate()

    assert list(brokers) == ["broker-a"]
    assert process.returncode == 0
    assert "Traceback" not in log.decode()


async def test_a_folder_in_use_is_refused(up: Up, tmp_path: Path) -> None:
    await up()

    second = await asyncio.to_thread(run, "up", f"--dir={tmp_path / 'kept'}", "--namesrv-port=0")

    assert second.returncode == 1
    assert "another orbitmq up runs in" in second.stderr
    assert "--dir" in second.stderr


def test_a_wrong_option_is_told_before_anything_starts(tmp_path: Path) -> None:
    shown = run("up", f"--dir={tmp_path / 'kept'}", "--set=flushDiskTyp=SYNC_FLUSH")

    assert shown.returncode == 1
    assert "did you mean flushDiskType" in shown.stderr
    assert not (tmp_path / "kept").exists()


async def test_a_broker_that_dies_is_started_again_and_all_end_together(up: Up) -> None:
    process, address = await up("--brokers=2")
    children = {
        name: child
        for child in psutil.Process(process.pid).children()
        for name in ("broker-a", "broker-b")
        if f"--set=brokerName={name}" in child.cmdline()
    }
    assert set(children) == {"broker-a", "broker-b"}

    children["broker-b"].kill()

    clock = SystemClock()
    async with asyncio.timeout(WAIT_SECONDS):
        while "broker-b" in await brokers_at(address):
            await clock.sleep_ms(20)
        while "broker-b" not in await brokers_at(address):
            await clock.sleep_ms(50)
    left = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WAIT_SECONDS):
        _, log = await process.communicate()
    assert process.returncode == 0
    assert "process ended by itself process=broker-b exit=-9" in log.decode()
    assert len(left) == 2
    assert not any(child.is_running() for child in left)
