"""How long does it take to open 1 GiB of log, against the official broker and reading it once?

    python -m benchmarks.store_recovery [--rounds N] [--smoke] [--no-java]

Every opening works on a copy of one directory, left in different ways. Ours is timed around
`MessageStore(...)` in a process of its own; the official broker from its start to its line "boot
success", less the same on an empty directory. Both end with queues and index ready.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.filling import config_of, fill, read_once
from benchmarks.official_servers import official_lines, with_flags
from benchmarks.rounds import keep, spread
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.abort_file import ABORT_NAME
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.parts import CHECKPOINT_NAME
from tests.interop.building import java_version
from tests.interop.official import OfficialBroker

LOG_BYTES: Final = 1024 * 1024 * 1024
SMOKE_RECORDS: Final = 2_000
QUEUES: Final = 16
BATCH: Final = 8
BOOT_TIMEOUT_S: Final = 300
OURS: Final = "OrbitMQ"
READING: Final = "reading the file once"
# Half of what RocketMQ's own start script gives a broker, and no touching of all of it at start.
JVM_FLAGS: Final = ("-Xms4g", "-Xmx4g", "-XX:MaxDirectMemorySize=1g")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One opening of the directory, or one reading of the file."""

    left: str
    by: str
    round: int
    seconds: float
    cpu_seconds: float


# --- how a directory may be left ----------------------------------------------------------------


def _kill(root: Path) -> None:
    (root / ABORT_NAME).write_bytes(b"1")


def _age_checkpoint(root: Path) -> None:
    """Say that nothing but the first messages was known on disk, so that our progress does not count."""
    path = root / CHECKPOINT_NAME
    Checkpoint(log_ms=1, queues_ms=1, index_ms=1).write(path)


def _delete_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


LEFT: Final[dict[str, tuple[Callable[[Path], None], ...]]] = {
    "clean stop": (),
    "clean stop, queues deleted": (_delete_queues,),
    "killed": (_kill,),
    "killed, checkpoint old": (_kill, _age_checkpoint),
    "killed, checkpoint old, queues deleted": (_kill, _age_checkpoint, _delete_queues),
}


def copy_left(original: Path, target: Path, left: str) -> None:
    """Copy the directory and leave the copy in one of these ways, everything on disk."""
    command = ["cp", "-a", "--sparse=always", str(original), str(target)]
    subprocess.run(command, check=True)
    for change in LEFT[left]:
        change(target)
    for path in target.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDWR)
            os.fdatasync(descriptor)
            os.close(descriptor)


# --- opening it ---------------------------------------------------------------------------------


def open_ours(root: Path) -> dict[str, float]:
    """Open a store in this process."""
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    store = MessageStore(config_of(root))
    took = {
        "seconds": time.perf_counter() - start_s,
        "cpu_seconds": time.process_time() - start_cpu_s,
        "messages": sum(int(queue.end) for queue in store.queues()),
    }
    store.close()
    return took


def time_ours(root: Path, left: str, round_number: int, records: int) -> Opening:
    """Open a store in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.store_recovery", "--open", str(root)]
    took = json.loads(subprocess.check_output(command))
    assert took.pop("messages") == records
    return Opening(left=left, by=OURS, round=round_number, **took)


def time_official(line: str, folder: Path, left: str, round_number: int) -> Opening:
    """Boot the official broker of a release line on `folder`/store."""
    broker = OfficialBroker(line, "recovering", folder, [])
    sizes = config_of(folder)
    with (folder / "broker.conf").open("a") as settings:
        # The last setting of a name counts.
        settings.write(
            f"mappedFileSizeCommitLog={sizes.log_file_bytes}\n"
            f"mappedFileSizeConsumeQueue={sizes.queue_file_bytes}\n"
            f"maxHashSlotNum={sizes.index_slots}\n"
            f"maxIndexNum={sizes.index_entries}\n"
        )
    broker.process.command = with_flags(broker.process.command, JVM_FLAGS)
    start_s = time.perf_counter()
    broker.process.start()
    try:
        broker.process.wait_printed("boot success", timeout_s=BOOT_TIMEOUT_S)
        seconds = time.perf_counter() - start_s
        times = psutil.Process(broker.process.popen.pid).cpu_times()
    finally:
        broker.process.kill()
    return Opening(
        left=left,
        by=f"RocketMQ {java_version(line, 'server')}",
        round=round_number,
        seconds=seconds,
        cpu_seconds=times.user + times.system,
    )


def time_reading(log: Path, end: int, left: str, round_number: int) -> Opening:
    """Read the log's file once."""
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    read_once(log, end)
    return Opening(
        left=left,
        by=READING,
        round=round_number,
        seconds=time.perf_counter() - start_s,
        cpu_seconds=time.process_time() - start_cpu_s,
    )


# --- the run ------------------------------------------------------------------------------------


def build(root: Path, *, smoke: bool) -> tuple[int, int]:
    """Make the directory; returns how many messages it holds, and where its log ends."""
    with MessageStore(config_of(root)) as store:
        fill(store, BATCH, queues=1, batch=BATCH)
        size = int(store.log_end) // BATCH
        # Numbers grow longer, so a little room is left.
        records = SMOKE_RECORDS if smoke else int(LOG_BYTES / size * 0.95)
        fill(store, records - BATCH, queues=QUEUES, batch=BATCH)
        return records, int(store.log_end)


def less_empty(boot: Opening, empty: Opening) -> Opening:
    """Take off what the same broker needs to start with an empty directory."""
    return Opening(
        left=boot.left,
        by=boot.by,
        round=boot.round,
        seconds=max(0.0, boot.seconds - empty.seconds),
        cpu_seconds=max(0.0, boot.cpu_seconds - empty.cpu_seconds),
    )


def run_round(
    folder: Path,
    original: Path,
    records: int,
    end: int,
    *,
    ways: Sequence[str],
    line: str | None,
    round_number: int,
) -> list[Opening]:
    """Open copies of the directory, left in all these ways, by everyone."""
    openings: list[Opening] = []
    empty: Opening | None = None
    if line is not None:
        empty = time_official(line, folder / "empty", "empty", round_number)
        shutil.rmtree(folder / "empty")
        openings.append(empty)
    for left in ways:
        copy = folder / "ours"
        copy_left(original, copy, left)
        openings.append(time_reading(copy / "commitlog" / f"{0:020}", end, left, round_number))
        openings.append(time_ours(copy, left, round_number, records))
        shutil.rmtree(copy)
        if line is not None and empty is not None:
            home = folder / "official"
            home.mkdir()
            copy_left(original, home / "store", left)
            boot = time_official(line, home, left, round_number)
            openings.append(less_empty(boot, empty))
            shutil.rmtree(home)
    return openings


def summary(openings: list[Opening]) -> list[dict[str, Any]]:
    """One row per way of leaving and opener: times, and ours against the others."""
    found = {(entry.left, entry.by, entry.round): entry for entry in openings}
    rows: list[dict[str, Any]] = []
    for left, by in dict.fromkeys((entry.left, entry.by) for entry in openings):
        entries = [entry for (w, b, _), entry in found.items() if (w, b) == (left, by)]
        row: dict[str, Any] = {
            "left": left,
            "by": by,
            "seconds": spread([entry.seconds for entry in entries]),
            "cpu_seconds": spread([entry.cpu_seconds for entry in entries]),
        }
        if left != "empty":
            ours = [found[left, OURS, entry.round] for entry in entries]
            pairs = list(zip(ours, entries, strict=True))
            row["time_ratio"] = spread([mine.seconds / max(it.seconds, 0.01) for mine, it in pairs])
            row["cpu_ratio"] = spread(
                [mine.cpu_seconds / max(it.cpu_seconds, 0.01) for mine, it in pairs]
            )
        rows.append(row)
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(
        "| left | opened by | seconds min / median / max | CPU seconds "
        "| ours against it: time, CPU |"
    )
    print("|---|---|---|---|---|")
    for row in rows:
        seconds = " / ".join(f"{value:.2f}" for value in row["seconds"])
        against = ""
        if row["by"] != OURS and "time_ratio" in row:
            against = f"{row['time_ratio'][1]:.2f}, {row['cpu_ratio'][1]:.2f}"
        cpu = f"{row['cpu_seconds'][1]:.2f}"
        print(f"| {row['left']} | {row['by']} | {seconds} | {cpu} | {against} |")
    print(f"\nload average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    """Measure, print the table and keep the results."""
    parser = argparse.ArgumentParser(
        description="Compare opening a store with the official broker's."
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument(
        "--smoke", action="store_true", help="one short round of ours that keeps no results"
    )
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.open:
        print(json.dumps(open_ours(chosen.open)))
        return
    lines = [] if chosen.no_java or chosen.smoke else official_lines()
    if not lines and not chosen.smoke:
        print("no official broker: ours alone")
    openings: list[Opening] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        original = folder / "original"
        records, end = build(original, smoke=chosen.smoke)
        print(f"{records:,} messages in {end:,} bytes of log, {QUEUES} queues")
        for number in range(1 if chosen.smoke else chosen.rounds):
            openings += run_round(
                *(folder, original, records, end),
                ways=list(LEFT)[-1:] if chosen.smoke else list(LEFT),
                line=lines[0] if lines else None,
                round_number=number,
            )
    rows = summary(openings)
    report(rows)
    if not chosen.smoke:
        log = {"messages": records, "bytes": end, "queues": QUEUES}
        keep(
            "store_recovery", {"log": log, "summary": rows, "openings": list(map(asdict, openings))}
        )


if __name__ == "__main__":
    main()
