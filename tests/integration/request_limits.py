"""Sends hostile requests of every code to our servers, and measures what they cost.

    python -m tests.integration.request_limits --rounds 50 --page docs/soak/request-limits.md

Name server and broker are processes of their own. Each request has plausible fields of which some
are replaced, and a body up to the size of a frame. It may cost a bounded time of the processor, and
all together a bounded amount of memory and disk; afterwards a message is sent and read as before.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime
import importlib
import json
import pkgutil
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from orbitmq import client as blocking
from orbitmq.client import Message
from orbitmq.clock import SystemClock
from orbitmq.errors import CallTimeoutError, OrbitError
from orbitmq.protocol import requests
from orbitmq.protocol.codes import RequestCode, Role
from orbitmq.protocol.command import Command
from orbitmq.protocol.headers import Header
from orbitmq.transport.rpc_client import RpcClient
from tests.interop import wire
from tests.interop.ours import OrbitBroker, OrbitNameServer
from tests.waiting import beside

_MIB = 1024 * 1024
# Processor time of one request; machines differ, and a frame of this size takes 0.05 s to receive.
CPU_SECONDS_MAX = 0.75
# Beside what a server takes at first.
MEMORY_BYTES_MAX = 400 * _MIB
DISK_BYTES_MAX = 256 * _MIB
LOG_LINE_BYTES_MAX = 8 * 1024
# Held pulls are answered later.
_ANSWER_MS = 1000
_BODY_BYTES = 15 * _MIB

_TEXTS = (
    "T",
    "g",
    "",
    " ",
    "x" * 200_000,
    "9" * 60_000,
    "-1",
    str(2**63 - 1),
    str(-(2**63)),
    "\0é",
)
_NUMBERS = ("0", "1", "-1", str(2**31 - 1), str(2**63 - 1), str(-(2**63)), "9" * 60_000, "NaN", "")
_PLAUSIBLE = {"topic": "T", "queueId": "0", "group": "g", "consumerGroup": "g", "maxMsgNums": "32"}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A request that cost more than it may."""

    name: str
    cpu_seconds: float


@dataclasses.dataclass(slots=True)
class Report:
    """What a campaign did and found."""

    requests: int = 0
    unanswered: int = 0
    slowest: Finding = dataclasses.field(default_factory=lambda: Finding("none", 0.0))
    memory_bytes: int = 0
    disk_bytes: int = 0
    longest_line_bytes: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """The servers under attack."""

    name_server: OrbitNameServer
    broker: OrbitBroker


@contextmanager
def running_site(folder: Path) -> Iterator[Site]:
    """Run a name server and a broker with a topic `T`."""
    name_server = OrbitNameServer(folder / "name-server")
    name_server.process.start()
    try:
        name_server.wait_ready()
        broker = OrbitBroker("broker-a", folder / "broker", [name_server.address])
        broker.process.start()
        try:
            broker.wait_ready()
            broker.create_topic("T")
            yield Site(name_server, broker)
        finally:
            broker.process.stop()
    finally:
        name_server.process.stop()


def attacked_codes() -> dict[RequestCode, list[tuple[str, bool]]]:
    """Each code that our servers answer, with its fields: name, and whether it holds text."""
    fields: dict[int, list[tuple[str, bool]]] = {}
    for module in pkgutil.iter_modules(requests.__path__):
        content = vars(importlib.import_module(f"{requests.__name__}.{module.name}"))
        for kind in content.values():
            if isinstance(kind, type) and issubclass(kind, Header) and hasattr(kind, "CODE"):
                fields.setdefault(kind.CODE, _fields(kind))
    return {
        code: fields.get(code, [])
        for code in RequestCode
        if code.answered_by & (Role.BROKER | Role.NAME_SERVER)
    }


def _fields(kind: type[Header]) -> list[tuple[str, bool]]:
    found = []
    for field in dataclasses.fields(kind):
        first, *rest = field.name.split("_")
        name = field.metadata.get("wire") or first + "".join(map(str.title, rest))
        found.append((name, "str" in str(field.type)))
    return found


def hostile_request(
    code: RequestCode, fields: list[tuple[str, bool]], chance: random.Random
) -> Command:
    """Make a request of a code; the same for the same state of `chance`."""
    values = {name: _PLAUSIBLE.get(name, "g" if is_text else "1") for name, is_text in fields}
    for name, is_text in chance.sample(fields, chance.randint(0, min(3, len(fields)))):
        values[name] = chance.choice(_TEXTS if is_text else _NUMBERS)
    if chance.random() < 0.1:
        values |= {f"field{number}": "x" for number in range(chance.choice((100, 20_000)))}
    return Command(code=code, fields=values, body=_body(chance))


def _body(chance: random.Random) -> bytes:
    bytes_max = chance.choice((0, 100, 100_000, _MIB, 4 * _MIB, _BODY_BYTES))
    match chance.randrange(7):
        case 0:
            return b""
        case 1:
            return chance.choice((b"x", b"\xff", b"\0", b'"', b"[", b'{"a":')) * (bytes_max // 6)
        case 2:
            return b"[" + b"0," * (bytes_max // 2) + b"0]"
        case 3:
            row = b'{"topic":"T","queueId":1,"brokerName":"broker-a"},'
            rows = row * (bytes_max // len(row)) + row[:-1]
            return b'{"clientId":"c","consumerGroup":"g","mqSet":[' + rows + b"]}"
        case 4:
            keys = ",".join(f'"k{number}":{number}' for number in range(bytes_max // 20))
            return b"{" + keys.encode() + b"}"
        case 5:
            topics = [{"topicName": f"t{n}-{chance.random()}"} for n in range(min(bytes_max, 200))]
            return json.dumps({"topicConfigList": topics, "groupConfigList": []}).encode()
        case _:
            return b"allowGuardedUpdates=true\nfileReservedTime=0\n" * (bytes_max // 50)


async def attack(site: Site, *, seed: int, rounds: int) -> Report:
    """Send so many requests of each code, and look what they cost."""
    chance = random.Random(seed)
    report = Report()
    codes = attacked_codes()
    servers = {
        role: psutil.Process(server.process.popen.pid)
        for role, server in ((Role.BROKER, site.broker), (Role.NAME_SERVER, site.name_server))
    }
    addresses = {Role.BROKER: site.broker.address, Role.NAME_SERVER: site.name_server.address}
    before = {role: process.memory_info().rss for role, process in servers.items()}
    async with RpcClient() as rpc:
        for _ in range(rounds):
            for code in chance.sample(list(codes), len(codes)):
                role = Role.BROKER if Role.BROKER in code.answered_by else Role.NAME_SERVER
                asked = hostile_request(code, codes[code], chance)
                cpu = await _cost(rpc, addresses[role], asked, servers[role], report)
                if cpu > report.slowest.cpu_seconds:
                    report.slowest = Finding(f"{code.name}, {len(asked.body)} bytes", cpu)
                grown = servers[role].memory_info().rss - before[role]
                report.memory_bytes = max(report.memory_bytes, grown)
    report.disk_bytes = _disk_bytes(site.broker.process.folder)
    await _judge(site, report)
    return report


async def _cost(
    rpc: RpcClient, address: str, asked: Command, server: psutil.Process, report: Report
) -> float:
    times = server.cpu_times()
    report.requests += 1
    try:
        await rpc.invoke(address, asked, timeout_ms=_ANSWER_MS)
    except CallTimeoutError:
        report.unanswered += 1
    except OrbitError:
        pass  # The connection was closed, as it may be.
    after = server.cpu_times()
    return after.user + after.system - times.user - times.system


def _disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


async def _judge(site: Site, report: Report) -> None:
    for server in (site.broker, site.name_server):
        if not server.process.is_running():
            report.problems.append(f"{server.process.name} ended: {server.process.tail()}")
            return
        for line in server.process.console.read_bytes().splitlines():
            report.longest_line_bytes = max(report.longest_line_bytes, len(line))
            if len(line) > LOG_LINE_BYTES_MAX:
                report.problems.append(f"a line of {len(line)} bytes in the log: {line[:200]!r}")
            if b"handler failed" in line:
                report.problems.append(line[:300].decode(errors="replace"))
    limits = (
        ("processor seconds of a request", report.slowest.cpu_seconds, CPU_SECONDS_MAX),
        ("bytes of memory", report.memory_bytes, MEMORY_BYTES_MAX),
        ("bytes on disk", report.disk_bytes, DISK_BYTES_MAX),
    )
    report.problems += [
        f"{what}: {value} are more than {limit}; {report.slowest}"
        for what, value, limit in limits
        if value > limit
    ]
    await beside(_send_and_read, site)


def _send_and_read(site: Site) -> None:
    """Send and read a message like any client, after all that."""
    site.broker.create_topic("after", queues=1)
    with blocking.Producer("producers", namesrv=site.name_server.address) as producer:
        producer.send(Message("after", b"healthy"))
    assert wire.max_offset(site.broker.address, "after", 0) == 1


def _page(report: Report, seed: int) -> str:
    today = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, tz=datetime.UTC).date()
    return f"""\
# Hostile requests

Result of `python -m tests.integration.request_limits --seed {seed}` on {today}: every request that
broker and name server answer, with hostile fields and bodies of up to {_BODY_BYTES // _MIB} MiB.

| what | seen | limit |
|---|---|---|
| requests | {report.requests:,} | |
| without an answer within {_ANSWER_MS / 1000:g} s (held pulls, and what waits for others) | {report.unanswered:,} | |
| processor time of the slowest ({report.slowest.name}) | {report.slowest.cpu_seconds:.2f} s | {CPU_SECONDS_MAX} s |
| growth of a server's memory | {report.memory_bytes // _MIB} MiB | {MEMORY_BYTES_MAX // _MIB} MiB |
| store on disk | {report.disk_bytes // _MIB} MiB | {DISK_BYTES_MAX // _MIB} MiB |
| longest line of a log | {report.longest_line_bytes:,} bytes | {LOG_LINE_BYTES_MAX:,} bytes |
| problems | {len(report.problems)} | 0 |
"""


def main() -> int:
    """Run a campaign, and write its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_site(Path(folder)) as site:
        report = asyncio.run(attack(site, seed=asked.seed, rounds=asked.rounds))
    if asked.page:
        asked.page.write_text(_page(report, asked.seed), encoding="utf-8")
    for line in report.problems or [f"no problems in {report.requests} requests"]:
        sys.stdout.write(f"{line}\n")
    return bool(report.problems)


if __name__ == "__main__":
    sys.exit(main())
