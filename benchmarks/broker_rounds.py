"""How benchmarks of brokers measure and report: slices in shuffled rounds, ratios within a round.

All brokers run at once and are loaded one at a time. A ratio compares ours with the official one
that flushes the same way, in the same round, where the machine was in the same mood. `--before`
takes the `orbitmq` command of another checkout, and compares ours with its broker instead.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks import brokers
from benchmarks.brokers import BrokerUnderLoad, running_brokers
from benchmarks.plans import (
    WARM_UP,
    Plan,
    keep_slices,
    markdown_table,
    plan_of,
    plan_options,
    stage_of,
)
from benchmarks.rounds import RESULTS, spread
from benchmarks.rpc_round_trip import environment

# What a slice showed: figures by name.
Figures = Mapping[str, float]


SMOKE: Final = Plan(rounds=1, seconds=0.2, warm_up_seconds=0, java_warm_up_seconds=0, seed=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One slice: which broker, which workload, which round, and what it showed."""

    server: str
    flush: str
    workload: str
    round: int
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A figure as tables show it."""

    figure: str
    title: str
    digits: int = 0
    # Whether a table compares it with the official broker's.
    is_compared: bool = False


class Question(Protocol):
    """What a benchmark asks of brokers."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics that brokers need for it."""

    @property
    def workloads(self) -> Sequence[str]:
        """How brokers are loaded, by name."""

    async def prepare(self, broker: BrokerUnderLoad) -> None:
        """Do what has to be done once, before the first slice."""

    async def load(self, broker: BrokerUnderLoad, workload: str, seconds: float) -> Figures:
        """Load a broker for one slice."""


async def measure(
    under_load: Sequence[BrokerUnderLoad], question: Question, plan: Plan
) -> list[Measured]:
    """Warm every broker up, then load them in turn."""
    order = random.Random(plan.seed)  # an order of slices, no secret
    measured: list[Measured] = []

    async def slice_of(
        broker: BrokerUnderLoad, workload: str, seconds: float, round_number: int
    ) -> None:
        figures = await question.load(broker, workload, seconds)
        measured.append(
            Measured(
                server=broker.server,
                flush=broker.flush,
                workload=workload,
                round=round_number,
                figures=figures,
            )
        )
        shown = ", ".join(f"{name} {value:,.1f}" for name, value in figures.items())
        print(
            f"{stage_of(round_number)}: {workload}, {broker.server}, {broker.flush}: {shown}",
            flush=True,
        )

    for broker in under_load:
        await question.prepare(broker)
    for broker in under_load:
        seconds = plan.java_warm_up_seconds if broker.is_official else plan.warm_up_seconds
        for workload in question.workloads if seconds else ():
            await slice_of(broker, workload, seconds / len(question.workloads), WARM_UP)
    for round_number in range(1, plan.rounds + 1):
        for workload in question.workloads:
            for broker in order.sample(under_load, len(under_load)):
                await slice_of(broker, workload, plan.seconds, round_number)
    return measured


# --- the results --------------------------------------------------------------------------------


def summary(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row per workload, way to flush and server: figures, and ratios to the peer's."""
    slices = {
        (entry.workload, entry.flush, entry.server, entry.round): entry.figures
        for entry in measured
        if entry.round != WARM_UP
    }
    rounds = sorted({round_number for *_, round_number in slices})
    rows: list[dict[str, Any]] = []
    for workload, flush, server in dict.fromkeys(key[:3] for key in slices):
        own = [slices[workload, flush, server, number] for number in rounds]
        row: dict[str, Any] = {
            "workload": workload,
            "flush": flush,
            "server": server,
            "figures": {name: spread([part[name] for part in own]) for name in own[0]},
            "ratios": {},
        }
        peers = {key[2] for key in slices if key[:2] == (workload, flush)} - {brokers.OURS}
        for reference in peers if server == brokers.OURS else ():
            theirs = [slices[workload, flush, reference, number] for number in rounds]
            row["ratios"] = {
                name: spread([a[name] / b[name] for a, b in zip(own, theirs, strict=True)])
                for name in own[0]
                if all(part[name] for part in theirs)
            }
        rows.append(row)
    workloads = list(dict.fromkeys(entry.workload for entry in measured))
    return sorted(
        rows, key=lambda row: (workloads.index(row["workload"]), row["flush"], row["server"])
    )


def table(rows: Sequence[dict[str, Any]], columns: Sequence[Column]) -> str:
    """The summary as a Markdown table: medians, and ratios as minimum / median / maximum."""
    compared = [column for column in columns if column.is_compared]
    heads = ["workload", "flush", "server", *(column.title for column in columns)]
    heads += [f"{column.title}: ratio" for column in compared]
    lines = list[list[str]]()
    for row in rows:
        cells = [row["workload"], row["flush"].partition("_")[0].lower(), row["server"]]
        cells += [
            f"{row['figures'][column.figure][1]:,.{column.digits}f}"
            if column.figure in row["figures"]
            else ""
            for column in columns
        ]
        cells += [
            " / ".join(f"{value:.2f}" for value in row["ratios"][column.figure])
            if column.figure in row["ratios"]
            else ""
            for column in compared
        ]
        lines.append(cells)
    return markdown_table(heads, lines)


def facts_of(line: str | None) -> dict[str, Any]:
    """What the figures depend on."""
    facts = environment([line] if line else [])
    if line:
        facts["jvm_flags"] = list(brokers.JVM_FLAGS)
    return facts


def options(
    description: str,
    name: str,
    *,
    rounds: int,
    seconds: float,
    java_warm_up_seconds: float = 60.0,
    messages: int | None = None,
) -> argparse.Namespace:
    """Read the command line; with `messages` it has their number."""
    parser = plan_options(
        description,
        rounds=rounds,
        seconds=seconds,
        java_warm_up_seconds=java_warm_up_seconds,
        output=RESULTS / f"{name}.json",
    )
    parser.add_argument(
        "--before",
        type=Path,
        metavar="COMMAND",
        help="compare with the broker of this `orbitmq`, instead of the official one",
    )
    if messages is not None:
        parser.add_argument("--messages", type=int, default=messages, help="of each slice")
    return parser.parse_args()


def ask(
    chosen: argparse.Namespace,
    question_in: Callable[[Path], Question],
    *,
    flushes: Sequence[str],
    columns: Sequence[Column],
    official_settings: Mapping[str, str] | None = None,
    warm_up_seconds: float = 5.0,
) -> None:
    """Measure, print the table and keep the results."""
    line = brokers.newest_line(without=chosen.no_java or chosen.smoke or chosen.before)
    plan = plan_of(chosen, SMOKE, warm_up_seconds=warm_up_seconds)
    facts = facts_of(line)
    with tempfile.TemporaryDirectory(prefix="broker-benchmark-") as folder:
        question = question_in(Path(folder))
        with running_brokers(
            line,
            flushes,
            Path(folder),
            question.topics,
            before=chosen.before,
            official_settings=official_settings,
        ) as under_load:
            measured = asyncio.run(measure(under_load, question, plan))
    rows = summary(measured)
    print("\nIt works; slices this short say nothing.\n" if chosen.smoke else "")
    print(table(rows, columns))
    if not (chosen.smoke or chosen.before):
        keep_slices(chosen.output, facts, plan, rows, measured)
