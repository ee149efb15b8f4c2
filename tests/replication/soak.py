"""Schedules of faults for a long while: `python -m tests.replication.soak SECONDS [--page PAGE]`.

Runs seed after seed, until the time is over or the last seed is done. A page with results is read
first: seeds that it lists are not run again, so that a campaign can be stopped and resumed; with
`--fresh` it begins anew. Files of clusters with problems stay in FOLDER, and the run goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import logging
import platform
import re
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from orbitmq import __version__
from orbitmq.clock import SystemClock
from orbitmq.store.config import FlushMode
from tests.crash.conftest import SHARED_MEMORY
from tests.replication.cluster import Shape
from tests.replication.findings import Rule
from tests.replication.runner import Outcome, run

SEEDS: Final = 200
FIRST_SEED: Final = 1000
# So many seeds share a cluster, and so a shape.
SEEDS_A_CLUSTER: Final = 10
SHAPES: Final = (
    Shape(flush=FlushMode.SYNC),
    Shape(flush=FlushMode.ASYNC),
    Shape(slaves=1, flush=FlushMode.SYNC),
    Shape(slaves=1, flush=FlushMode.ASYNC),
    Shape(slaves=1, sync=True, flush=FlushMode.SYNC),
    Shape(slaves=2, sync=True, flush=FlushMode.ASYNC),
    Shape(masters=2, slaves=1, sync=True, flush=FlushMode.SYNC),
    Shape(slaves=1, promotes=True, flush=FlushMode.ASYNC),
    Shape(slaves=1, sync=True, promotes=True, flush=FlushMode.SYNC),
    Shape(slaves=2, sync=True, promotes=True, flush=FlushMode.SYNC),
)
_COLUMNS: Final = ("acked", "failed", "unknown", "delivered", "promoted", "lossy", "lost")
_ROW: Final = re.compile(
    r"^\| (\d+) \| (.+?) \| ([\d,]+) \|" + r" ([\d,]+) \|" * len(_COLUMNS) + r" (.*) \|$"
)


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one seed."""

    seed: int
    shape: str
    faults: int
    counts: Counter[str]
    result: str

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        """Take what the page says of an outcome."""
        first = outcome.problems[0].splitlines()[0].replace("|", "/") if outcome.problems else ""
        result = f"FAILED, {len(outcome.problems)} problems: {first}" if first else "passed"
        return cls(outcome.seed, str(outcome.shape), len(outcome.faults), outcome.counts(), result)

    @classmethod
    def parse(cls, line: str) -> Self | None:
        """Read a row of a page; None if the line is no such row."""
        match = _ROW.match(line)
        if match is None:
            return None
        seed, shape, faults, *counts, result = match.groups()
        numbers = [int(count.replace(",", "")) for count in counts]
        return cls(
            int(seed),
            shape,
            int(faults.replace(",", "")),
            Counter(dict(zip(_COLUMNS, numbers, strict=True))),
            result,
        )

    def __str__(self) -> str:
        counts = " | ".join(f"{self.counts[column]:,}" for column in _COLUMNS)
        return f"| {self.seed} | {self.shape} | {self.faults} | {counts} | {self.result} |"


def rows_of(page: Path) -> list[Row]:
    """The results on a page."""
    if not page.exists():
        return []
    lines = page.read_text(encoding="utf-8").splitlines()
    return [row for line in lines if (row := Row.parse(line)) is not None]


def page_of(rows: list[Row]) -> str:
    """The results as a page."""
    today = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC).date()
    failed = sum(row.result != "passed" for row in rows)
    totals = Counter[str]()
    for row in rows:
        totals += row.counts
    verdict = "Failed" if failed else "Passed"
    return "\n".join(
        [
            "# Clusters under faults",
            "",
            f"{verdict}: {len(rows)} of {SEEDS} schedules, failures: {failed}. {today}, OrbitMQ "
            f"{__version__}, Python {platform.python_version()}. Written by "
            "`python -m tests.replication.soak` (`make soak`).",
            "",
            "Name server, masters and slaves are processes; a link stands between every two, and "
            "before every client. Each schedule, chosen by its seed, kills, stops and pauses "
            "servers and cuts, resets, refuses, delays, slows, holds, drops and half-opens links, "
            "while three producers send each message once, a consumer reads and commits, and "
            "auditors ask every server what it holds. Then all is healed, and must serve again by "
            f"itself. Sends: {totals['acked']:,} acknowledged, {totals['failed']:,} surely failed, "
            f"{totals['unknown']:,} unknown.",
            "",
            "In some clusters a slave is promoted besides: its master is killed, stopped, paused, cut "
            "off, or lives on, while the slave may lag; then the old master returns, follows, and is "
            f"sometimes promoted in its turn. Promotions: {totals['promoted']:,}, of which "
            f"{totals['lossy']:,} lost messages, {totals['lost']:,} in all: acknowledged before by "
            "an async master, without enough copies, or after that by a master that did not know yet. "
            f"{_verdict_on_losses(failed)} Always checked:",
            "",
            *(f"- {rule.value}" for rule in Rule),
            "",
            "| seed | cluster | faults | acknowledged | failed | unknown | delivered | promotions "
            "| with losses | lost | result |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *map(str, sorted(rows, key=lambda row: row.seed)),
            "",
        ]
    )


def _verdict_on_losses(failed: int) -> str:
    if failed:
        return "Whether that is what each announced is said below."
    return "Each lost exactly what it announced, and never what a slave had by its receipt."


def shape_of(seed: int) -> Shape:
    """The shape of the cluster that a seed is for."""
    return SHAPES[(seed - FIRST_SEED) // SEEDS_A_CLUSTER % len(SHAPES)]


def next_seeds(done: set[int]) -> list[int]:
    """The seeds for the next cluster; none if all are done."""
    for first in range(FIRST_SEED, FIRST_SEED + SEEDS, SEEDS_A_CLUSTER):
        left = [seed for seed in range(first, first + SEEDS_A_CLUSTER) if seed not in done]
        if left:
            return left
    return []


async def campaign(folder: Path, rows: list[Row], seconds: float, page: Path | None) -> None:
    """Run until the time is over, and write the page after each seed."""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + seconds * 1000
    while seeds := next_seeds({row.seed for row in rows}):
        home = folder / f"seeds-{seeds[0]}"
        has_problems = False
        async with aclosing(run(home, seeds, shape_of(seeds[0]))) as outcomes:
            async for outcome in outcomes:
                rows.append(Row.of(outcome))
                has_problems |= bool(outcome.problems)
                _say(f"{outcome}\nsee {home}" if outcome.problems else str(rows[-1]))
                if page is not None:
                    page.write_text(page_of(rows), encoding="utf-8")
                if clock.monotonic_ms() >= end_ms:
                    return
        if not has_problems:
            shutil.rmtree(home)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--page", type=Path, help="read results of earlier runs, and write them")
    parser.add_argument("--fresh", action="store_true", help="forget results of earlier runs")
    parser.add_argument("--folder", type=Path, help="where clusters are made; best in memory")
    arguments = parser.parse_args()
    # Clients meet faults all the time, and say so.
    logging.getLogger("orbitmq").setLevel(logging.ERROR)
    home = arguments.folder or (SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
    folder = Path(tempfile.mkdtemp(prefix="orbitmq-faults-", dir=home))
    rows = [] if arguments.fresh or not arguments.page else rows_of(arguments.page)
    asyncio.run(campaign(folder, rows, arguments.seconds, arguments.page))
    failed = [row for row in rows if row.result != "passed"]
    _say(f"{len(rows)} of {SEEDS} schedules done, {len(failed)} failed")
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
