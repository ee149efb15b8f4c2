"""Measures what a healthy client sees of a broker that others attack in every way at once.

    python -m tests.integration.broker.under_attack --seconds 60 --page docs/soak/under-attack.md

Broker and attackers are processes of their own. The client sends a message and reads it back, one
after the other, first alone, then beside one, three and ten attackers of each kind.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import json
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orbitmq.clock import SystemClock
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.broker.attack import KINDS, TOPIC
from tests.integration.broker.conftest import Peer
from tests.integration.cli.test_broker import start

MIB = 1024 * 1024
# The bound on requests in flight of the broker under test.
WORK_BYTES_MAX = 128 * MIB
# Python, code, tables, cached filters (32 MiB), mapped pages of a small store, and what the
# allocator has not returned to the system.
OTHER_BYTES_MAX = 256 * MIB
BYTES_MAX = WORK_BYTES_MAX + OTHER_BYTES_MAX
WAIT_MS_MAX = 250


@dataclass
class Measured:
    """What a healthy client saw, and the largest size of the broker.

    A request's wait is also measured in processor time of the broker, which other processes on the
    machine do not change: what it would be if the broker had a processor of its own.
    """

    waits_ms: list[float] = field(default_factory=list)
    busy_ms: list[float] = field(default_factory=list)
    resident_bytes_max: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.waits_ms)} requests, p99 {p99(self.waits_ms):.0f} ms, of the broker's "
            f"processor time {p99(self.busy_ms):.0f} ms, {self.resident_bytes_max // MIB} MiB"
        )


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def processor_ms(broker: psutil.Process) -> float:
    used = broker.cpu_times()
    return (used.user + used.system) * 1000


async def measure(peer: Peer, broker: psutil.Process, seconds: float) -> Measured:
    """Send and read messages, one after the other, for some time."""
    seen = Measured()
    ends_s = time.monotonic() + seconds
    # At least this many, however slow they are: a quantile of few says nothing.
    while time.monotonic() < ends_s or len(seen.waits_ms) < 100:
        body = b"%d" % len(seen.waits_ms)
        times = [(time.monotonic() * 1000, processor_ms(broker))]
        reply = await peer.send("healthy", body)
        assert reply.code == 0, reply.remark
        times.append((time.monotonic() * 1000, processor_ms(broker)))
        offset = int(reply.fields["queueOffset"])
        (message,) = await peer.read("healthy", offset, group="healthy")
        assert message.body == body
        times.append((time.monotonic() * 1000, processor_ms(broker)))
        for (began_ms, used_ms), (ended_ms, used_then_ms) in itertools.pairwise(times):
            seen.waits_ms.append(ended_ms - began_ms)
            seen.busy_ms.append(used_then_ms - used_ms)
        resident_bytes = broker.memory_info().rss - broker.memory_info().shared
        seen.resident_bytes_max = max(seen.resident_bytes_max, resident_bytes)
    return seen


@asynccontextmanager
async def attacked_broker(folder: Path) -> AsyncIterator[tuple[Peer, psutil.Process, int]]:
    """A broker with messages for the attackers' filters, and a healthy client of it."""
    process, port = await start(
        folder,
        f"--set=totalWorkBytesMax={WORK_BYTES_MAX}",
        "--set=mappedFileSizeCommitLog=67108864",
    )
    logging = asyncio.create_task(process.communicate())
    try:
        async with RpcClient() as rpc:
            peer = Peer(f"127.0.0.1:{port}", rpc)
            await peer.make_topic(TOPIC)
            await peer.make_topic("healthy", read=1, write=1)
            for number in range(300):
                await peer.send(TOPIC, b"x", a="y" * 1000, number=str(number))
            yield peer, psutil.Process(process.pid), port
    finally:
        process.kill()
        await logging


@asynccontextmanager
async def attack(port: int, *, attackers: int = 1) -> AsyncIterator[dict[str, int]]:
    """Hostile clients in a process of their own; at the end their frames by kind are known."""
    sent: dict[str, int] = {}
    hostile = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.integration.broker.attack", str(port), str(attackers)),
        stdin=PIPE,
        stdout=PIPE,
    )
    assert hostile.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await hostile.stdout.readline() == b"attacking\n"
        yield sent
        async with asyncio.timeout(60):
            output, _ = await hostile.communicate(b"")
        sent.update(json.loads(output))
    finally:
        if hostile.returncode is None:
            hostile.kill()
            await hostile.wait()


async def _measure_all(seconds: float) -> list[tuple[int, Measured, int]]:
    """What the client saw by the number of attackers of each kind, and how many frames they sent."""
    rows = []
    for attackers in (0, 1, 3, 10):
        with tempfile.TemporaryDirectory() as folder:
            async with attacked_broker(Path(folder)) as (peer, broker, port):
                if attackers:
                    async with attack(port, attackers=attackers) as sent:
                        seen = await measure(peer, broker, seconds)
                else:
                    seen, sent = await measure(peer, broker, seconds), {}
        rows.append((attackers, seen, sum(sent.values())))
    return rows


def _today() -> datetime.date:
    return datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, tz=datetime.UTC).date()


def _page(rows: list[tuple[int, Measured, int]], seconds: float) -> str:
    lines = [
        "# A broker under attack",
        "",
        f"Result of `python -m tests.integration.broker.under_attack --seconds {seconds:g}` on "
        f"{_today()}: a client sends a",
        "message and reads it back, one after the other, while others send what costs a broker most:",
        f"{', '.join(kind.__name__.replace('_', ' ') for kind in KINDS)}.",
        "",
        "| attackers of each kind | frames they sent | requests of the client | median | p99 "
        "| longest | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for attackers, seen, sent in rows:
        waits_ms = seen.waits_ms
        lines.append(
            f"| {attackers} | {sent:,} | {len(waits_ms):,} | {statistics.median(waits_ms):.1f} ms | "
            f"{p99(waits_ms):.0f} ms | {max(waits_ms):.0f} ms | "
            f"{seen.resident_bytes_max // MIB} MiB |"
        )
    lines += [
        "",
        f"The limits are {WAIT_MS_MAX} ms at p99, and {BYTES_MAX // MIB} MiB.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, write the page, and fail above a limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    rows = asyncio.run(_measure_all(arguments.seconds))
    page = _page(rows, arguments.seconds)
    sys.stdout.write(page)
    if arguments.page is not None:
        arguments.page.write_text(page)
    return int(
        any(p99(seen.waits_ms) >= WAIT_MS_MAX for _, seen, _ in rows)
        or any(seen.resident_bytes_max >= BYTES_MAX for _, seen, _ in rows)
    )


if __name__ == "__main__":
    sys.exit(main())
