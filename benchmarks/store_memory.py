"""What does a store with 10,000 queues hold of the machine, against an empty one?

    python -m benchmarks.store_memory [--smoke]

Each store is open in a process of its own, which tells its memory, open files and mappings, and
the time and CPU it took to open it. Memory is what only that process holds (its private part), and
beside it all that is resident, which counts pages of mapped files too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.filling import TOPIC, config_of, fill
from benchmarks.rounds import keep, options
from orbitmq.store.message_store import MessageStore

QUEUES: Final = 10_000
MESSAGES_A_QUEUE: Final = 10
MIB: Final = 1024 * 1024


def held() -> dict[str, float]:
    """What this process holds at this moment."""
    process = psutil.Process()
    memory = process.memory_full_info()
    return {
        "private_mib": round(memory.uss / MIB, 1),
        "resident_mib": round(memory.rss / MIB, 1),
        "open_files": process.num_fds(),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "threads": process.num_threads(),
    }


def watch(root: Path, queues: int, messages: int) -> list[dict[str, Any]]:
    """Fill a store, open it again and read from every queue; tells what is held after each step."""
    rows: list[dict[str, Any]] = []
    with MessageStore(config_of(root)) as store:
        rows.append({"step": "opened, empty", **held()})
        if queues:
            fill(store, queues * messages, queues=queues)
            rows.append({"step": "filled", **held()})
    return rows


def watch_again(root: Path, queues: int) -> list[dict[str, Any]]:
    """Open an existing store and read from every queue; report the memory held after each step."""
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    with MessageStore(config_of(root)) as store:
        took = {
            "seconds": round(time.perf_counter() - start_s, 3),
            "cpu_seconds": round(time.process_time() - start_cpu_s, 3),
        }
        rows = [{"step": "opened again", **held(), **took}]
        for queue_id in range(queues):
            assert store.read(TOPIC, queue_id, 0).records
        rows.append({"step": "read from every queue", **held()})
    return rows


def in_process(work: str, *arguments: object) -> list[dict[str, Any]]:
    """Run one of the above in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.store_memory", work, *map(str, arguments)]
    rows: list[dict[str, Any]] = json.loads(subprocess.check_output(command))
    return rows


def main() -> None:
    """Measure, print the table and keep the results."""
    if len(sys.argv) > 2 and sys.argv[1] in {"watch", "watch-again"}:
        root, numbers = Path(sys.argv[2]), [int(text) for text in sys.argv[3:]]
        rows = watch(root, *numbers) if sys.argv[1] == "watch" else watch_again(root, *numbers)
        print(json.dumps(rows))
        return
    chosen = options("Count what a store with many queues holds.", rounds=1)
    queues = QUEUES // 200 if chosen.smoke else QUEUES
    rows = []
    for count in (queues,) if chosen.smoke else (0, queues):
        with tempfile.TemporaryDirectory() as folder:
            steps = in_process("watch", folder, count, MESSAGES_A_QUEUE)
            steps += in_process("watch-again", folder, count)
        rows += [{"queues": count, **step} for step in steps]
    empty = rows[0]
    print("| queues | step | private MiB (against empty) | resident MiB | open files | mappings |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        row["private_ratio"] = round(row["private_mib"] / empty["private_mib"], 2)
        print(
            f"| {row['queues']:,} | {row['step']} | {row['private_mib']} ({row['private_ratio']}) "
            f"| {row['resident_mib']} | {row['open_files']} | {row['mappings']} |"
        )
    if not chosen.smoke:
        keep("store_memory", {"summary": rows})


if __name__ == "__main__":
    main()
