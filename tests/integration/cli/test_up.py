"""`orbitmq up`, as a user runs it."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from orbitmq.client import Message, SendStatus
from orbitmq.client.aio import Admin, Producer
from orbitmq.client.aio.instance.name_servers import NameServers
from orbitmq.clock import SystemClock
from orbitmq.errors import TransportError
from orbitmq.protocol.command import request
from orbitmq.protocol.requests.topics import ListTopicConfigs
from orbitmq.record.decode import decode_records
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.conftest import pull_header
from tests.integration.cli.test_namesrv import COMMAND, WAIT_SECONDS, run
from tests.integration.held_ports import held_port

HOST = "127.0.0.1"

Up = Callable[..., Awaitable[tuple[Process, str]]]


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Ports for a broker and its metrics, each with those of two more brokers."""
    # Held all the time: nobody else gets them while a broker starts, or starts again.
    with held_port(-2, 1, 8, 10, 11, 18, 20, 21) as broker, held_port(1, 2) as metrics:
        yield [broker, metrics]


@pytest.fixture
async def up(tmp_path: Path, ports: list[int]) -> AsyncIterator[Up]:
    """Runs the command until it says where its name server is; ends it after the test."""
    running: list[Process] = []

    async def start(*arguments: str) -> tuple[Process, str]:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "up",
            f"--dir={tmp_path / 'kept'}",
            "--namesrv-port=0",
            f"--broker-port={ports[0]}",
            f"--metrics-port={ports[1]}",
            *arguments,
            stdout=PIPE,
            stderr=PIPE,
        )
        running.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            lines = [(await process.stdout.readline()).decode()]
            while lines[-1] and not lines[-1].startswith("stop with"):
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


async def group_at(address: str) -> dict[int, str]:
    """The addresses of broker-a and its slaves, by id, as one name server knows them."""
    async with RpcClient() as rpc:
        view = await NameServers([address], rpc).cluster_view()
    return view.brokers["broker-a"].addresses


async def bodies_at(address: str) -> list[bytes]:
    """The messages in the first queue of a topic, as one broker has them."""
    async with RpcClient() as rpc:
        reply = await rpc.invoke(address, request(pull_header(topic="orders")))
    return [message.body for message in decode_records(reply.body)]


async def ended(process: Process) -> str:
    """Stop it; returns its log."""
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WAIT_SECONDS):
        _, log = await process.communicate()
    assert process.returncode == 0
    return log.decode()


async def answers(address: str) -> bool:
    async with RpcClient() as rpc:
        try:
            await rpc.call(address, ListTopicConfigs())
        except TransportError:
            return False
    return True


def _children(process: Process) -> dict[str, psutil.Process]:
    """The brokers that run as processes of their own, by name."""
    found = {}
    for child in psutil.Process(process.pid).children():
        # One that has just died says nothing any more.
        with suppress(psutil.NoSuchProcess):
            words = child.cmdline()
            for name in ("broker-a", "broker-b"):
                if f"--set=brokerName={name}" in words:
                    found[name] = child
    return found


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
    assert "another orbitmq up is running in" in second.stderr
    assert "--dir" in second.stderr


def test_a_wrong_option_is_reported_before_anything_starts(tmp_path: Path) -> None:
    shown = run("up", f"--dir={tmp_path / 'kept'}", "--set=flushDiskTyp=SYNC_FLUSH")

    assert shown.returncode == 1
    assert "did you mean flushDiskType" in shown.stderr
    assert not (tmp_path / "kept").exists()


async def test_a_broker_that_dies_is_started_again_and_all_end_together(up: Up) -> None:
    process, address = await up("--brokers=2")
    children = _children(process)
    assert set(children) == {"broker-a", "broker-b"}

    killed = children["broker-b"]
    killed.kill()

    clock = SystemClock()
    async with asyncio.timeout(WAIT_SECONDS):
        while _children(process).get("broker-b", killed) == killed:
            await clock.sleep_ms(20)
        while "broker-b" not in (brokers := await brokers_at(address)):
            await clock.sleep_ms(50)
        # The name server may not have heard yet that the first one is gone.
        while not await answers(brokers["broker-b"]):
            await clock.sleep_ms(50)
    left = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WAIT_SECONDS):
        _, log = await process.communicate()
    assert process.returncode == 0
    assert "process exited process=broker-b exit=-9" in log.decode()
    assert len(left) == 2
    assert not any(child.is_running() for child in left)


async def test_slaves_have_every_message_with_as_many_as_the_next_start_asks_for(up: Up) -> None:
    process, namesrv = await up("--slaves=1", "--namesrvs=2")
    groups = [await group_at(address) for address in namesrv.split(";")]
    async with Admin(namesrv=namesrv) as admin, Producer("shop", namesrv=namesrv) as producer:
        await admin.topics.create("orders", queues=1)
        sent = await producer.send(Message("orders", b"one"))
    await ended(process)

    assert sent.status is SendStatus.OK
    assert (sent.copies, sent.copies_on_disk) == (2, 2)
    assert [set(group) for group in groups] == [{0, 1}] * 2
    for count in (2, 0):
        process, namesrv = await up(f"--slaves={count}")
        group = await group_at(namesrv)
        assert set(group) == set(range(count + 1))
        clock = SystemClock()
        async with asyncio.timeout(WAIT_SECONDS):
            for address in group.values():
                while await bodies_at(address) != [b"one"]:
                    await clock.sleep_ms(50)
        assert "Traceback" not in await ended(process)


async def test_brokers_end_in_good_order_when_what_watches_them_is_killed(
    up: Up, tmp_path: Path
) -> None:
    process, _ = await up("--brokers=2")
    children = _children(process)
    assert set(children) == {"broker-a", "broker-b"}

    process.kill()
    await process.communicate()

    gone, alive = await asyncio.to_thread(
        psutil.wait_procs, list(children.values()), timeout=WAIT_SECONDS
    )
    assert len(gone) == 2
    assert not alive
    # A broker that was killed leaves this file.
    assert not list(tmp_path.rglob("abort"))


async def test_it_ends_in_good_order_when_its_terminal_is_closed(tmp_path: Path) -> None:
    terminal, own_side = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "up",
        f"--dir={tmp_path / 'kept'}",
        *("--namesrv-port=0", "--broker-port=0", "--metrics-port=0"),
        preexec_fn=lambda: os.login_tty(own_side),
    )
    os.close(own_side)
    shown = ""
    while "stop with Ctrl-C" not in shown:
        shown += (await asyncio.to_thread(os.read, terminal, 4096)).decode()
    assert "127.0.0.1:0" not in shown

    os.close(terminal)

    async with asyncio.timeout(WAIT_SECONDS):
        assert await process.wait() == 0
    assert not list(tmp_path.rglob("abort"))


def test_a_taken_port_is_reported_with_the_flag_to_change_it(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        shown = run("up", f"--dir={tmp_path / 'kept'}", "--namesrv-port=0", f"--broker-port={port}")

    assert shown.returncode == 1
    assert f"port {port} of 127.0.0.1, for broker-a, is taken" in shown.stderr
    assert "choose another port with --broker-port" in shown.stderr
    assert not (tmp_path / "kept").exists()


def test_a_broker_process_that_cannot_start_ends_the_whole_start(tmp_path: Path) -> None:
    shown = run(
        "up",
        f"--dir={tmp_path / 'kept'}",
        *("--brokers=2", "--namesrv-port=0", "--broker-port=0", "--metrics-port=0"),
        "--set=storePathRootDir=/dev/null/store",
    )

    assert shown.returncode == 1
    assert "| orbitmq: cannot use /dev/null/store" in shown.stderr
    assert "did not start (see its log lines above)" in shown.stderr
