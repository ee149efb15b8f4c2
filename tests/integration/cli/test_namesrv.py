"""The installed command, as a user runs it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path

import pytest

from orbitmq import __version__
from orbitmq.client.aio.instance.name_servers import NameServers
from orbitmq.protocol.requests.key_values import PutKeyValue
from orbitmq.transport.rpc_client import RpcClient

WAIT_SECONDS = 120
COMMAND = [sys.executable, "-m", "orbitmq.cli.main"]
# What a script does for its background jobs, and `nohup` for all.
IGNORING_SIGNALS = ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        env={**os.environ, **environment},
        check=False,
    )


async def start(folder: Path, *arguments: str, parent: Sequence[str] = ()) -> tuple[Process, int]:
    """Start a name server on a free port; return once it says where it listens."""
    process = await asyncio.create_subprocess_exec(
        *parent,
        *COMMAND,
        "namesrv",
        "--host=127.0.0.1",
        "--port=0",
        f"--set=kvConfigPath={folder / 'kv.json'}",
        *arguments,
        stderr=PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_SECONDS):
        while line := (await process.stderr.readline()).decode():
            if "name server started" in line:
                return process, int(line.rpartition(":")[2])
    raise AssertionError("the name server ended before it was ready")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_it_serves_until_a_signal_and_ends_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    process, port = await start(tmp_path)
    async with RpcClient() as rpc:
        view = await NameServers([f"127.0.0.1:{port}"], rpc).cluster_view()

        process.send_signal(number)
        async with asyncio.timeout(WAIT_SECONDS):
            _, log = await process.communicate()

    assert view.brokers == {}
    assert process.returncode == 0
    assert "name server stopped" in log.decode()
    assert "Traceback" not in log.decode()


async def test_it_ignores_signals_that_its_parent_ignores_and_ends_by_sigterm(
    tmp_path: Path,
) -> None:
    process, port = await start(tmp_path, parent=IGNORING_SIGNALS)

    for number in (signal.SIGHUP, signal.SIGINT):
        process.send_signal(number)
        async with RpcClient() as rpc:
            await NameServers([f"127.0.0.1:{port}"], rpc).cluster_view()

    assert process.returncode is None
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WAIT_SECONDS):
        _, log = await process.communicate()
    assert process.returncode == 0
    assert "name server stopped" in log.decode()


async def test_it_runs_on_plain_asyncio_when_asked(tmp_path: Path) -> None:
    process, port = await start(tmp_path, "--set=useEpollNativeSelector=false")
    async with RpcClient() as rpc:
        await NameServers([f"127.0.0.1:{port}"], rpc).cluster_view()
    process.terminate()
    await process.communicate()

    assert process.returncode == 0


async def test_a_name_from_outside_cannot_forge_a_line_of_the_log(tmp_path: Path) -> None:
    process, port = await start(tmp_path)
    async with RpcClient() as rpc:
        await rpc.call(
            f"127.0.0.1:{port}",
            PutKeyValue(namespace="N", key="k\n2026-01-01 ERROR forged\x1b[2J", value="v"),
        )
    process.terminate()
    _, log = await process.communicate()

    (line,) = [line for line in log.decode().splitlines() if "forged" in line]
    assert "key set namespace=N key=k\\x0a2026-01-01 ERROR forged\\x1b[2J" in line


def test_every_option_is_printed_from_flags_environment_file_and_default(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(
        "listenPort=1001\nscanNotActiveBrokerInterval=2002\nserverWorkerThreads=8\n"
        "waitSecondsForService=7\n"
    )

    shown = run("namesrv", "-p", "-c", str(file), "--port=1003", ORBITMQ_waitSecondsForService="9")

    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert "listenPort=1003" in lines
    assert "waitSecondsForService=9" in lines
    assert "scanNotActiveBrokerInterval=2002" in lines
    assert "enableTopicList=true" in lines
    assert lines == sorted(lines)
    assert "serverWorkerThreads" in shown.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("listenPrt=9876", ["listenPrt", "listenPort", "namesrv.conf:1"]),
        ("\nlistenPort=abc", ["'abc'", "namesrv.conf:2"]),
        ("aclEnable=true", ["aclEnable"]),
        ("enableControllerInNamesrv=true", ["enableControllerInNamesrv"]),
    ],
)
def test_a_file_with_a_mistake_stops_the_start_and_says_what_to_do(
    tmp_path: Path, content: str, expected: list[str]
) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(content)

    refused = run("namesrv", "-c", str(file))

    assert refused.returncode == 1
    assert refused.stderr.startswith("orbitmq: ")
    assert "Traceback" not in refused.stderr
    for part in expected:
        assert part in refused.stderr


def test_a_port_in_use_and_a_flag_without_value_are_reported() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = run("namesrv", "--host=127.0.0.1", f"--port={port}")
    bad = run("namesrv", "--set", "listenPort")

    assert busy.returncode == bad.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in busy.stderr
    assert "write --set NAME=VALUE" in bad.stderr


def test_a_name_without_an_address_is_distinguished_from_a_port_in_use() -> None:
    refused = run("namesrv", "--host=no-such-host.invalid", "--port=0")

    assert refused.returncode == 1
    assert "the name has no address" in refused.stderr


def test_the_version_is_printed() -> None:
    assert run("--version").stdout == f"orbitmq {__version__}\n"
