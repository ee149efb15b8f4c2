"""What does writing a record into the mapped log cost, against copying its bytes there?

    python -m benchmarks.append [--rounds N] [--smoke]

Every form writes the same records into the same mapped file, in slices whose order is shuffled in
every round; ratios are taken within a round. `scan.py` is measured and reported the same way.
"""

from __future__ import annotations

import argparse
import datetime
import mmap
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.clock import SystemClock
from orbitmq.record import codec, encode
from orbitmq.record.hosts import encode_host
from orbitmq.record.properties import encode_properties
from orbitmq.version import __version__

RESULTS: Final = Path(__file__).parent / "results"
FILE_BYTES: Final = 64 * 1024 * 1024
BODY_BYTES: Final = (128, 1024, 64 * 1024)
SLICE_BYTES: Final = 8 * 1024 * 1024
COPYING: Final = "copying the bytes"
HOST: Final = encode_host("127.0.0.1", 10911)
NOW_MS: Final = 1_700_000_000_000

EncodeRecord = Callable[..., int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One slice: what ran, on which workload, in which round, and its CPU per record."""

    workload: str
    form: str
    round: int
    cpu_us: float


# --- how it is measured -------------------------------------------------------------------------


def measure(
    workload: str, forms: Mapping[str, Callable[[], int]], *, rounds: int, seed: int
) -> list[Measured]:
    """Run every form once a round, in shuffled order; a form returns how many records it did."""
    order = random.Random(seed)  # an order of slices, no secret
    measured: list[Measured] = []
    # Round 0 warms up and counts for nothing.
    for round_number in range(rounds + 1):
        for form in order.sample(list(forms), len(forms)):
            start_ns = time.process_time_ns()
            records = forms[form]()
            cpu_us = (time.process_time_ns() - start_ns) / 1000 / records
            if round_number:
                measured.append(
                    Measured(workload=workload, form=form, round=round_number, cpu_us=cpu_us)
                )
    return measured


def summary(measured: Sequence[Measured], baseline: str) -> list[dict[str, Any]]:
    """One row per workload and form: least, middle and greatest, and ratios to the baseline."""
    cpu_us = {(entry.workload, entry.form, entry.round): entry.cpu_us for entry in measured}
    rows: list[dict[str, Any]] = []
    for workload, form in dict.fromkeys((entry.workload, entry.form) for entry in measured):
        rounds = [number for w, f, number in cpu_us if (w, f) == (workload, form)]
        own = [cpu_us[workload, form, number] for number in rounds]
        ratios = [
            cpu_us[workload, form, number] / cpu_us[workload, baseline, number] for number in rounds
        ]
        rows.append(
            {
                "workload": workload,
                "form": form,
                "cpu_us": [min(own), statistics.median(own), max(own)],
                "ratio": [min(ratios), statistics.median(ratios), max(ratios)],
            }
        )
    return sorted(rows, key=lambda row: (row["workload"], row["cpu_us"][1]))


def report(name: str, baseline: str, measured: Sequence[Measured], *, keep: bool) -> None:
    """Print the table, and keep it as JSON beside the benchmarks."""
    rows = summary(measured, baseline)
    print(f"| workload | form | CPU us/record min / median / max | against {baseline} |")
    print("|---|---|---|---|")
    for row in rows:
        figures = " / ".join(f"{value:.3f}" for value in row["cpu_us"])
        ratios = " / ".join(f"{value:.2f}" for value in row["ratio"])
        print(f"| {row['workload']} | {row['form']} | {figures} | {ratios} |")
    if keep:
        now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
        environment = {
            "date": now.date().isoformat(),
            "cores": os.cpu_count(),
            "load_average": [round(value, 2) for value in os.getloadavg()],
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "orbitmq": __version__,
        }
        results = {"environment": environment, "baseline": baseline, "summary": rows}
        encoded = msgspec.json.format(msgspec.json.encode(results), indent=1)
        (RESULTS / f"{name}.json").write_bytes(encoded + b"\n")


def options(description: str, rounds: int) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, default=1, help="of the order of slices")
    parser.add_argument(
        "--smoke", action="store_true", help="one short round that keeps no results"
    )
    return parser.parse_args()


def encoders() -> dict[str, EncodeRecord]:
    """The forms there are."""
    forms: dict[str, EncodeRecord] = {"plain": encode.encode_record}
    if codec.IS_COMPILED:
        forms["compiled"] = codec.encode_record
    return forms


# --- what is measured ---------------------------------------------------------------------------


@contextmanager
def mapped_file() -> Iterator[memoryview]:
    """A mapped file whose pages are all in memory."""
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        with mmap.mmap(file.fileno(), FILE_BYTES) as mapped, memoryview(mapped) as view:
            view[:] = bytes(FILE_BYTES)
            yield view


def append_forms(
    view: memoryview, body_bytes: int, slice_bytes: int
) -> dict[str, Callable[[], int]]:
    """Each form writes as many records as fit a slice, each time at the start of the file."""
    body = random.Random(1).randbytes(body_bytes)  # bytes, no secret
    properties = encode_properties(
        {"UNIQ_KEY": "7F00000100002A139A5500000000000A", "TAGS": "TagA", "WAIT": "true"}
    )

    rest = (body, properties, 0, 0, NOW_MS, HOST, NOW_MS, HOST, 0, 0)
    size = encode.encode_record(view, 0, b"orders", 1, 0, 0, *rest)
    record = bytes(view[:size])
    count = slice_bytes // size

    def copy() -> int:
        at = 0
        for _ in range(count):
            view[at : at + size] = record
            at += size
        return count

    def form(encode_record: EncodeRecord) -> Callable[[], int]:
        def run() -> int:
            at = 0
            for number in range(count):
                at += encode_record(
                    view,
                    at,
                    b"orders",
                    1,
                    number,
                    at,
                    body,
                    properties,
                    0,
                    0,
                    NOW_MS,
                    HOST,
                    NOW_MS,
                    HOST,
                    0,
                    0,
                )
            return count

        return run

    return {COPYING: copy} | {name: form(function) for name, function in encoders().items()}


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the forms of writing a record.", rounds=50)
    slice_bytes = SLICE_BYTES // 16 if chosen.smoke else SLICE_BYTES
    measured: list[Measured] = []
    with mapped_file() as view:
        for body_bytes in BODY_BYTES:
            measured += measure(
                f"body of {body_bytes:6} B",
                append_forms(view, body_bytes, slice_bytes),
                rounds=1 if chosen.smoke else chosen.rounds,
                seed=chosen.seed,
            )
    report("append", COPYING, measured, keep=not chosen.smoke)


if __name__ == "__main__":
    main()
