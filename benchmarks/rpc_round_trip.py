"""What does a call cost our name server, and what does it cost the official one?

    python -m benchmarks.rpc_round_trip [--rounds N] [--seconds S] [--no-java] [--smoke]

All servers run at once and are loaded one at a time, in short slices whose order is shuffled in
every round; ratios are taken within a round, where the machine was in the same mood.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import os
import platform
import random
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import name_servers, official_servers
from benchmarks.load import HERE, Slice, Workload, load, write_frames
from benchmarks.name_servers import NameServer, Registration
from benchmarks.plans import (
    WARM_UP,
    Plan,
    keep_slices,
    markdown_table,
    plan_of,
    plan_options,
    stage_of,
)
from orbitmq.clock import SystemClock
from orbitmq.model.versions import OUR_VERSION
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.languages import Language
from orbitmq.protocol.requests.routing import GetRoute
from orbitmq.transport.rpc_client import RpcClient
from orbitmq.version import __version__
from tests.interop import building

RESULTS: Final = HERE / "results" / "rpc_round_trip.json"
OURS: Final = "OrbitMQ"
OURS_ON_ASYNCIO: Final = "OrbitMQ on asyncio"
WARM_UP_SLICE_SECONDS: Final = 3.0

WORKLOADS: Final = (
    Workload(name="ping-pong 64x1", connections=64, in_flight=1, encoding=Encoding.JSON),
    Workload(name="pipelined 8x64", connections=8, in_flight=64, encoding=Encoding.JSON),
    Workload(name="pipelined 8x64, binary", connections=8, in_flight=64, encoding=Encoding.BINARY),
)


SMOKE: Final = Plan(rounds=1, seconds=0.3, warm_up_seconds=0.3, java_warm_up_seconds=0.3, seed=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One slice: which server, which workload, which round, and what it showed."""

    server: str
    workload: str
    round: int
    slice: Slice


class Measurement:
    """Loads servers and keeps what that showed."""

    def __init__(self, registration: Registration, folder: Path) -> None:
        self.measured: list[Measured] = []
        self._registration = registration
        self._frames = {
            workload.name: write_frames(
                _route_requests(workload.encoding), folder / f"frames-{number}"
            )
            for number, workload in enumerate(WORKLOADS)
        }

    async def warm_up(self, server: NameServer, seconds: float) -> None:
        """Load a server with each workload in turn, for so long in all."""
        slices = max(len(WORKLOADS), round(seconds / WARM_UP_SLICE_SECONDS))
        for workload in itertools.islice(itertools.cycle(WORKLOADS), slices):
            await self.run(server, workload, seconds / slices, round_number=WARM_UP)

    async def run(
        self, server: NameServer, workload: Workload, seconds: float, *, round_number: int
    ) -> None:
        """Load a server for one slice."""
        await self._registration.renew(server)
        shown = await load(
            port=server.port,
            server_pid=server.pid,
            workload=workload,
            frames=self._frames[workload.name],
            seconds=seconds,
        )
        self.measured.append(
            Measured(server=server.name, workload=workload.name, round=round_number, slice=shown)
        )
        print(
            f"{stage_of(round_number)}: "
            f"{workload.name}, {server.name}: {shown.calls_per_second:,.0f} calls/s, "
            f"{shown.server_cpu_us_per_call:.1f} us CPU per call",
            flush=True,
        )


async def measure(servers: Sequence[NameServer], plan: Plan, folder: Path) -> list[Measured]:
    """Warm every server up, then load them in turn."""
    order = random.Random(plan.seed)  # an order of slices, no secret
    async with RpcClient() as client:
        registration = Registration(client)
        measurement = Measurement(registration, folder)
        for server in servers:
            await measurement.warm_up(
                server, plan.java_warm_up_seconds if server.is_official else plan.warm_up_seconds
            )
        for round_number in range(1, plan.rounds + 1):
            for workload in WORKLOADS:
                for server in order.sample(servers, len(servers)):
                    await measurement.run(server, workload, plan.seconds, round_number=round_number)
    return measurement.measured


def _route_requests(encoding: Encoding) -> list[Command]:
    """A route request per topic, as a Java client of 5.3 writes it."""
    return [
        Command(
            code=GetRoute.CODE,
            fields=GetRoute(topic=topic).encode(),
            language=Language.JAVA,
            version=OUR_VERSION,
            encoding=encoding,
        )
        for topic in name_servers.TOPICS
    ]


# --- the servers ------------------------------------------------------------------------------


@contextmanager
def running_servers(lines: Sequence[str], folder: Path) -> Iterator[list[NameServer]]:
    """Start our servers and the official ones of these lines; end them when done."""
    servers = [
        name_servers.ours(OURS, folder / "ours"),
        name_servers.ours(OURS_ON_ASYNCIO, folder / "asyncio", useEpollNativeSelector="false"),
    ]
    servers += [name_servers.official(line, official_name(line), folder / line) for line in lines]
    try:
        for server in servers:
            server.process.start()
        for server in servers:
            server.wait_ready()
        yield servers
    finally:
        for server in servers:
            # Nothing that a name server could save on its way out matters here.
            server.process.kill()


def official_name(line: str) -> str:
    """How tables call the official name server of a line."""
    return f"RocketMQ {building.java_version(line, 'server')}"


# --- the results ------------------------------------------------------------------------------


def low_median_high(values: Sequence[float]) -> tuple[float, float, float]:
    """The least, the middle and the greatest of some values."""
    return min(values), statistics.median(values), max(values)


def summary(measured: Sequence[Measured], references: Sequence[str]) -> list[dict[str, Any]]:
    """One row per workload and server, with ratios to each official server of the same round."""
    slices = {
        (entry.workload, entry.server, entry.round): entry.slice
        for entry in measured
        if entry.round
    }
    rounds = sorted({round_number for _, _, round_number in slices})
    rows: list[dict[str, Any]] = []
    for workload, server in dict.fromkeys((workload, server) for workload, server, _ in slices):
        own = [slices[workload, server, round_number] for round_number in rounds]
        row: dict[str, Any] = {
            "workload": workload,
            "server": server,
            "calls_per_second": low_median_high([part.calls_per_second for part in own]),
            "server_cpu_us_per_call": low_median_high(
                [part.server_cpu_us_per_call for part in own]
            ),
            "p50_us": statistics.median(part.latency.p50_us for part in own),
            "p99_us": statistics.median(part.latency.p99_us for part in own),
            "generator_cores": statistics.median(
                part.generator_cpu_seconds / part.seconds for part in own
            ),
            "server_cores": statistics.median(
                part.server_cpu_seconds / part.seconds for part in own
            ),
            "ratios": {},
        }
        for reference in references:
            theirs = [slices[workload, reference, round_number] for round_number in rounds]
            row["ratios"][reference] = {
                "server_cpu_per_call": low_median_high(
                    [
                        mine.server_cpu_us_per_call / other.server_cpu_us_per_call
                        for mine, other in zip(own, theirs, strict=True)
                    ]
                ),
                "calls_per_second": low_median_high(
                    [
                        mine.calls_per_second / other.calls_per_second
                        for mine, other in zip(own, theirs, strict=True)
                    ]
                ),
            }
        rows.append(row)
    return sorted(
        rows,
        key=lambda row: (
            [workload.name for workload in WORKLOADS].index(row["workload"]),
            row["server"],
        ),
    )


def table(rows: Sequence[dict[str, Any]], references: Sequence[str]) -> str:
    """The summary as a Markdown table."""
    heads = ["workload", "server", "calls/s", "server CPU us/call", "p50 us", "p99 us"]
    heads += ["cores: server / generator"]
    for reference in references:
        heads += [f"CPU/call vs {reference}", f"calls/s vs {reference}"]
    lines = list[list[str]]()
    for row in rows:
        cells = [
            row["workload"],
            row["server"],
            " / ".join(f"{value:,.0f}" for value in row["calls_per_second"]),
            " / ".join(f"{value:.1f}" for value in row["server_cpu_us_per_call"]),
            f"{row['p50_us']:,.0f}",
            f"{row['p99_us']:,.0f}",
            f"{row['server_cores']:.2f} / {row['generator_cores']:.2f}",
        ]
        for reference in references:
            ratios = row["ratios"][reference]
            cells += [
                " / ".join(f"{value:.2f}" for value in ratios[kind])
                if reference != row["server"]
                else "1"
                for kind in ("server_cpu_per_call", "calls_per_second")
            ]
        lines.append(cells)
    return markdown_table(heads, lines)


def environment(lines: Sequence[str]) -> dict[str, Any]:
    """What the figures depend on."""
    facts: dict[str, Any] = {
        "date": datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
        .date()
        .isoformat(),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load_average_before": [round(value, 2) for value in os.getloadavg()],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "orbitmq": __version__,
        "uvloop": metadata.version("uvloop"),
        "msgspec": metadata.version("msgspec"),
    }
    if lines:
        facts["java"] = _java_version()
        facts["jvm_flags"] = list(name_servers.JVM_FLAGS)
        facts["rocketmq"] = [building.java_version(line, "server") for line in lines]
    return facts


def _processor() -> str:
    cpu_facts = Path("/proc/cpuinfo")
    if cpu_facts.exists():
        for line in cpu_facts.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _java_version() -> str:
    printed = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, timeout=30, check=True
    )
    return printed.stderr.splitlines()[1].strip()


def main() -> None:
    """Measure, print the table and keep the results."""
    options = _options()
    lines = [] if options.no_java else official_servers.official_lines()
    if options.smoke:
        lines = lines[:1]
    plan = plan_of(options, SMOKE, warm_up_seconds=6.0)
    if not lines and not options.no_java:
        print("without the official name server: its jars come with the interop suite (INTEROP=1)")
    facts = environment(lines)
    for name, value in facts.items():
        print(f"{name}: {value}")
    print(
        f"rounds: {plan.rounds} of {plan.seconds} s a slice, seed {plan.seed}; warm-up: "
        f"{plan.java_warm_up_seconds} s of Java, {plan.warm_up_seconds} s of ours"
    )
    with (
        tempfile.TemporaryDirectory(prefix="rpc-round-trip-") as folder,
        running_servers(lines, Path(folder)) as servers,
    ):
        measured = asyncio.run(measure(servers, plan, Path(folder)))
    references = [official_name(line) for line in lines]
    # Slices too short for a figure have nothing to divide by.
    rows = summary(measured, [] if options.smoke else references)
    if options.smoke:
        print("\nIt works. Slices this short say nothing, and a JVM this cold even less.\n")
        print(table(rows, []))
    else:
        print("\nminimum / median / maximum over the rounds\n")
        print(table(rows, references))
        keep_slices(options.output, facts, plan, rows, measured)


def _options() -> argparse.Namespace:
    return plan_options(
        "Compare the cost of calls to name servers.",
        rounds=7,
        seconds=2.0,
        java_warm_up_seconds=90.0,
        output=RESULTS,
    ).parse_args()


if __name__ == "__main__":
    main()
