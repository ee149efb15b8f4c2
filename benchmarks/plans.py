"""How long and how often servers are loaded in slices, and what becomes of the results."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

# The round of slices that count for nothing.
WARM_UP: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long and how often each server or client works on each workload."""

    rounds: int
    seconds: float
    warm_up_seconds: float
    java_warm_up_seconds: float
    seed: int


def plan_options(
    description: str,
    *,
    rounds: int,
    seconds: float,
    java_warm_up_seconds: float,
    output: Path,
) -> argparse.ArgumentParser:
    """Make a command line that says how to measure."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=float, default=seconds, help="of each slice")
    parser.add_argument(
        "--java-warm-up-seconds",
        type=float,
        default=java_warm_up_seconds,
        help="of load on each official server, or of work of the official client",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of slices")
    parser.add_argument("--no-java", action="store_true", help="ours only")
    parser.add_argument(
        "--smoke", action="store_true", help="one short round that keeps no results"
    )
    parser.add_argument("--output", type=Path, default=output)
    return parser


def plan_of(chosen: argparse.Namespace, smoke: Plan, *, warm_up_seconds: float = 5.0) -> Plan:
    """Make the plan that was chosen."""
    if chosen.smoke:
        return smoke
    return Plan(
        rounds=chosen.rounds,
        seconds=chosen.seconds,
        warm_up_seconds=warm_up_seconds,
        java_warm_up_seconds=chosen.java_warm_up_seconds,
        seed=chosen.seed,
    )


def stage_of(round_number: int) -> str:
    """The stage that a slice belongs to, for progress lines."""
    return "warm-up" if round_number == WARM_UP else f"round {round_number}"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def keep(output: Path, results: Mapping[str, Any]) -> None:
    """Write results as JSON."""
    output.parent.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(results), indent=1)
    output.write_bytes(encoded + b"\n")


def keep_slices(
    output: Path,
    facts: Mapping[str, Any],
    plan: Plan,
    summary: Sequence[Mapping[str, Any]],
    slices: Sequence[object],
) -> None:
    """Write down what was measured, how and where."""
    load_average = [round(value, 2) for value in os.getloadavg()]
    keep(
        output,
        {
            "environment": {**facts, "load_average_after": load_average},
            "plan": plan,
            "summary": summary,
            "slices": slices,
        },
    )
