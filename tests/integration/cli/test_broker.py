"""`orbitmq broker`, as a user runs it."""

from __future__ import annotations

import asyncio
import signal
import socket
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from orbitmq.protocol.requests.topics import ListTopicConfigs
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.cli.test_namesrv import COMMAND, WAIT_SECONDS, run


async def start(folder: Path, *arguments: str) -> tuple[Process, int]:
    """Start a broker on a free port; return once it says where it listens."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "broker",
        "--host=127.0.0.1",
        "--port=0",
        f"--store={folder / 'store'}",
        "--set=mappedFileSizeCommitLog=1048576",
        "--set=maxHashSlotNum=100",
        "--set=maxIndexNum=400",
        *arguments,
        stderr=PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_SECONDS):
        while line := (await process.stderr.readline()).decode():
            if "broker started" in line:
                address = line.partition("address=")[2].split()[0]
                return process, int(address.rpartition(":")[2])
    raise AssertionError("the broker ended before it was ready")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_until_a_signal_and_ends_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    process, port = await start(tmp_path)
    async with RpcClient() as rpc:
        topics = await rpc.call(f"127.0.0.1:{port}", ListTopicConfigs())

        process.send_signal(number)
        async with asyncio.timeout(WAIT_SECONDS):
            _, log = await process.communicate()

    assert b"TBW102" in topics.body
    assert process.returncode == 0
    assert "broker stopped" in log.decode()
    assert "Traceback" not in log.decode()
    assert not (tmp_path / "store" / "abort").exists()


def test_every_option_is_printed_from_flags_file_and_default(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=from-file\nbrokerClusterName=c1\nlistenPort=1001\n")

    shown = run("broker", "-p", "-c", str(file), "-n", "a:1;b:2", "--port=1003")

    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert {"brokerName=from-file", "listenPort=1003", "namesrvAddr=a:1;b:2"} <= set(lines)
    assert {"flushDiskType=SYNC_FLUSH", "brokerPermission=6", "brokerId=0"} <= set(lines)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("brokerPort=1", ["brokerPort", "broker.conf:1"]),
        ("brokerPermission=9", ["brokerPermission", "9"]),
    ],
)
def test_a_file_with_a_mistake_stops_the_start_and_says_what_to_do(
    tmp_path: Path, content: str, expected: list[str]
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(content)

    refused = run("broker", "-c", str(file))

    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    for part in expected:
        assert part in refused.stderr


def test_a_name_server_address_that_is_none_stops_the_start(tmp_path: Path) -> None:
    refused = run("broker", "--port=0", f"--store={tmp_path}", "-n", "no-port")

    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "'no-port' is not an address" in refused.stderr


async def test_metrics_at_a_port_in_use_end_the_start_with_the_option_to_change(
    tmp_path: Path,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        ended = await asyncio.to_thread(
            run,
            "broker",
            "--host=127.0.0.1",
            "--port=0",
            f"--store={tmp_path / 'store'}",
            "--set=mappedFileSizeCommitLog=1048576",
            "--set=metricsExporterType=PROM",
            f"--set=metricsPromExporterPort={port}",
        )

    assert ended.returncode == 1
    assert "metricsPromExporterPort" in ended.stderr
    assert "Traceback" not in ended.stderr
