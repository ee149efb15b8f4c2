"""How benchmarks of one process measure and report: forms in shuffled rounds, and ratios.

Every form runs once a round, in an order that is shuffled in every round; ratios are taken within
a round, so that other work on the machine falls on both sides of them.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.clock import SystemClock
from orbitmq.version import __version__

RESULTS: Final = Path(__file__).parent / "results"

# Does a slice of work, and returns how many records it did.
Form = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One slice: what ran, on which workload, in which round, and its cost per record."""

    workload: str
    form: str
    # The form that it is compared with.
    baseline: str
    round: int
    # Of all threads of the process, and as time went by.
    cpu_us: float
    wall_us: float


def measure(
    workload: str, forms: Mapping[str, Form], *, baseline: str, rounds: int, seed: int
) -> list[Measured]:
    """Run every form once a round, in shuffled order."""
    order = random.Random(seed)  # an order of slices, no secret
    measured: list[Measured] = []
    # Round 0 warms up and counts for nothing.
    for round_number in range(rounds + 1):
        for form in order.sample(list(forms), len(forms)):
            start_ns, start_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
            records = forms[form]()
            cpu_us = (time.process_time_ns() - start_cpu_ns) / 1000 / records
            wall_us = (time.perf_counter_ns() - start_ns) / 1000 / records
            if round_number:
                measured.append(
                    Measured(
                        workload=workload,
                        form=form,
                        baseline=baseline,
                        round=round_number,
                        cpu_us=cpu_us,
                        wall_us=wall_us,
                    )
                )
    return measured


def spread(values: Sequence[float]) -> list[float]:
    """Least, middle and greatest."""
    return [min(values), statistics.median(values), max(values)]


def summary(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row per workload and form: its cost and rate, and ratios to the baseline."""
    slices = {(entry.workload, entry.form, entry.round): entry for entry in measured}
    rows: list[dict[str, Any]] = []
    for workload, form in dict.fromkeys((entry.workload, entry.form) for entry in measured):
        own = [entry for (w, f, _), entry in slices.items() if (w, f) == (workload, form)]
        others = [slices[workload, entry.baseline, entry.round] for entry in own]
        pairs = list(zip(own, others, strict=True))
        rows.append(
            {
                "workload": workload,
                "form": form,
                "baseline": own[0].baseline,
                "records_per_s": spread([1e6 / entry.wall_us for entry in own]),
                "cpu_us": spread([entry.cpu_us for entry in own]),
                "cpu_ratio": spread([mine.cpu_us / other.cpu_us for mine, other in pairs]),
                "time_ratio": spread([mine.wall_us / other.wall_us for mine, other in pairs]),
            }
        )
    workloads = list(dict.fromkeys(entry.workload for entry in measured))
    return sorted(rows, key=lambda row: (workloads.index(row["workload"]), row["cpu_us"][1]))


def environment() -> dict[str, Any]:
    """Where and when it was measured."""
    now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
    return {
        "date": now.date().isoformat(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "orbitmq": __version__,
    }


def keep(name: str, results: Mapping[str, Any]) -> None:
    """Write results as JSON beside the benchmarks."""
    encoded = msgspec.json.encode({"environment": environment(), **results})
    (RESULTS / f"{name}.json").write_bytes(msgspec.json.format(encoded, indent=1) + b"\n")


def report(name: str, measured: Sequence[Measured], *, kept: bool) -> None:
    """Print the table, and keep it."""
    rows = summary(measured)
    print(
        "| workload | form | records/s | CPU us/record min / median / max "
        "| CPU against the baseline | time against it |"
    )
    print("|---|---|---|---|---|---|")
    for row in rows:
        cpu = " / ".join(f"{value:.3f}" for value in row["cpu_us"])
        rate = f"{row['records_per_s'][1]:,.0f}"
        if row["form"] == row["baseline"]:
            print(f"| {row['workload']} | {row['form']} (baseline) | {rate} | {cpu} | 1 | 1 |")
            continue
        ratios = (" / ".join(_short(v) for v in row[kind]) for kind in ("cpu_ratio", "time_ratio"))
        print(f"| {row['workload']} | {row['form']} | {rate} | {cpu} | {' | '.join(ratios)} |")
    print(f"\nload average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if kept:
        keep(name, {"summary": rows})


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2f}"


def options(description: str, rounds: int) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, default=1, help="of the order of slices")
    parser.add_argument(
        "--smoke", action="store_true", help="one short round that keeps no results"
    )
    return parser.parse_args()
