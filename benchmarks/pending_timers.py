"""What do a million pending timers cost a broker: memory, start, lateness of others?

    python -m benchmarks.pending_timers [--messages N] [--no-java] [--smoke]

Steps: start on an empty folder; send messages that are due in hours; send a few that are due in
seconds, while those are pending; stop and start again; kill the broker and start it again; and a few
that are due in seconds once more.

A broker has started once it answers a request. Anonymous memory is what its process holds without
mapped files. Resident memory counts them too: the log that was just written is among them.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import brokers
from benchmarks.broker_rounds import facts_of
from benchmarks.broker_start import held, start, started_again, summary
from benchmarks.brokers import ASYNC, BrokerUnderLoad, running_name_server
from benchmarks.load import cpu_seconds
from benchmarks.plans import keep, markdown_table, plan_options
from benchmarks.rounds import RESULTS
from benchmarks.timer_load import OFFICIAL_SETTINGS, WaitingConsumers, send_timers, wait_taken_in
from orbitmq.clock import SystemClock

TOPIC: Final = "benchmark_pending"
PROBED: Final = "benchmark_probes"
PROBES: Final = 200
_HOUR_MS: Final = 3_600_000
# A probe is due so long after it is sent.
_PROBE_LOW_MS: Final = 2_000
_PROBE_HIGH_MS: Final = 7_000
_PROBE_TIMEOUT_S: Final = 60
SMOKE_MESSAGES: Final = 1_000
_COLUMNS: Final = {
    "sent_per_s": ("sent/s", 0),
    "cpu_us": ("CPU µs/message", 1),
    "seconds": ("start s", 2),
    "cpu_seconds": ("CPU s", 2),
    "anonymous_mib": ("anonymous MiB", 0),
    "resident_mib": ("resident MiB", 0),
    "late_p50_ms": ("late p50 ms", 1),
    "late_p99_ms": ("p99", 1),
    "late_max_ms": ("max", 1),
    "idle_cores": ("cores, idle", 3),
}


async def fill(broker: BrokerUnderLoad, messages: int, folder: Path) -> dict[str, float]:
    """Send messages that are due in one to three hours, and wait until they are in the wheel."""
    now_ms = SystemClock().now_ms()
    process = psutil.Process(broker.pid)
    before_s = cpu_seconds(process)
    spread = random.Random(1)  # due times, no secret
    dues_ms = [now_ms + _HOUR_MS + spread.randrange(2 * _HOUR_MS) for _ in range(50_000)]
    sent = await send_timers(broker, TOPIC, dues_ms, folder / "pending", messages=messages)
    await wait_taken_in(broker)
    stored = sent.calls + sent.first_calls
    return {
        "sent_per_s": sent.calls_per_second,
        "cpu_us": (cpu_seconds(process) - before_s) * 1e6 / stored,
    }


async def probe(broker: BrokerUnderLoad, folder: Path, serial: int) -> dict[str, float]:
    """How late messages come that are due in seconds."""
    clock = SystemClock()
    due = random.Random(serial)  # due times, no secret
    async with WaitingConsumers(broker, PROBED) as consumers:
        now_ms = clock.now_ms()
        dues_ms = [now_ms + due.randrange(_PROBE_LOW_MS, _PROBE_HIGH_MS) for _ in range(PROBES)]
        sent = await send_timers(broker, PROBED, dues_ms, folder / "probes", first_serial=serial)
        sent_ms = clock.now_ms()
        await consumers.wait(sent.calls + sent.first_calls, timeout_s=_PROBE_TIMEOUT_S)
        return consumers.arrivals.lateness(sent_ms)


async def idle(broker: BrokerUnderLoad, seconds: float) -> dict[str, float]:
    """The processor time that a broker takes when nobody asks it anything."""
    process = psutil.Process(broker.pid)
    before_s = cpu_seconds(process)
    await SystemClock().sleep_ms(seconds * 1000)
    return {"idle_cores": (cpu_seconds(process) - before_s) / seconds}


def killed_and_started(broker: BrokerUnderLoad) -> dict[str, float]:
    """Kill a broker, start it, and tell how long that took and what it holds."""
    broker.broker.process.kill()
    took = start(broker)
    return {**took, **held(broker)}


def measure(
    build: Callable[[], BrokerUnderLoad], messages: int, folder: Path, *, idle_seconds: float
) -> list[dict[str, Any]]:
    """Take a broker through the steps."""
    steps: list[dict[str, Any]] = []
    broker = build()

    def note(step: str, figures: dict[str, float]) -> None:
        shown = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())
        print(f"{broker.server}: {step}: {shown}", flush=True)
        steps.append({"server": broker.server, "step": step, "figures": figures})

    try:
        note("empty", {**start(broker), **held(broker)})
        broker.create_topics([TOPIC, PROBED])
        note("a few timers", asyncio.run(probe(broker, folder, 0)))
        many = f"{messages:,} pending"
        note(f"{many}: sent", {**asyncio.run(fill(broker, messages, folder)), **held(broker)})
        note(f"{many}: others due", asyncio.run(probe(broker, folder, 10_000)))
        note(f"{many}: idle", asyncio.run(idle(broker, idle_seconds)))
        note(f"{many}: started again", started_again(broker))
        note(f"{many}: started after a kill", killed_and_started(broker))
        note(f"{many}: others due after it", asyncio.run(probe(broker, folder, 20_000)))
    finally:
        broker.broker.process.kill()
    return steps


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The summary as a Markdown table."""
    heads = ["step", "server", *(title for title, _ in _COLUMNS.values())]
    lines = [
        [
            row["step"],
            row["server"],
            *(
                f"{row['figures'][name][1]:,.{digits}f}" if name in row["figures"] else ""
                for name, (_, digits) in _COLUMNS.items()
            ),
        ]
        for row in rows
    ]
    return markdown_table(heads, lines)


def main() -> None:
    """Measure, print the table and keep the results."""
    parser = plan_options(
        "Compare what pending timers cost.",
        rounds=1,
        seconds=5,
        java_warm_up_seconds=0,
        output=RESULTS / "pending_timers.json",
    )
    parser.add_argument("--messages", type=int, default=1_000_000, help="that are pending")
    chosen = parser.parse_args()
    line = brokers.newest_line(without=chosen.no_java or chosen.smoke)
    messages = SMOKE_MESSAGES if chosen.smoke else chosen.messages
    facts = facts_of(line)
    steps: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="pending-timers-") as name,
        running_name_server(Path(name) / "name-server") as name_server,
    ):
        folder = Path(name)
        builders = [lambda: brokers.our_broker(folder / "ours", name_server, ASYNC)]
        if line is not None:
            builders.append(
                lambda: brokers.official_broker(
                    line, folder / "official", name_server, ASYNC, OFFICIAL_SETTINGS
                )
            )
        for build in builders:
            steps += measure(
                build, messages, folder, idle_seconds=0.5 if chosen.smoke else chosen.seconds
            )
    rows = summary(steps)
    print(f"\n{table(rows)}")
    if not chosen.smoke:
        facts["load_average_after"] = [round(value, 2) for value in os.getloadavg()]
        keep(
            chosen.output,
            {"environment": facts, "messages": messages, "summary": rows, "steps": steps},
        )


if __name__ == "__main__":
    main()
