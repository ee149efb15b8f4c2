"""Pipelines killed at random: `python -m tests.spark.pipelines.pipeline_soak [--kills N] [--page PAGE]`.

A pipeline moves a topic into a table of each kind, in a process of its own, while a producer keeps
sending. Again and again something is killed at a random moment: the driver with its JVM and their
workers, a Python worker, or the broker. After each kill, and at the end, what is in the table is
compared with what the broker has and what the producer was told.

Results of a kind of table are kept in a file as soon as it is done, so a campaign can be resumed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec
import psutil
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from orbitmq import __version__
from orbitmq.client import Admin, Message, Producer
from orbitmq.clock import SystemClock
from orbitmq.embedded import Cluster
from orbitmq.errors import OrbitError
from orbitmq.model.queues import MessageQueue
from tests.spark.killed_driver import Query
from tests.spark.kills import END_TIMEOUT_S, ROOT, START_TIMEOUT_S, Checkpoint
from tests.spark.pipelines.written_tables import catalog_properties
from tests.waiting import wait_until

TOPIC: Final = "orders"
FILE: Final = """\
name: shop
namesrv: {namesrv}
sources:
  orders:
    topic: orders
    options: {{maxOffsetsPerTrigger: 200}}
steps:
  places:
    sql: SELECT /*+ REPARTITION(3) */ brokerName, queueId, queueOffset, keys FROM orders
sinks:
  table:
    from: places
    {sink}
"""
VICTIMS: Final = ("driver", "Python worker", "broker")
# Up to so long after a batch of this run was committed: about as long as a batch takes.
MOMENT_S: Final = 1.5
SEND_PAUSE_S: Final = 0.05
RESULTS: Final = Path(".cache/pipeline-kills.json")


class Row(NamedTuple):
    """Where a row of a table comes from."""

    broker: str
    queue: int
    offset: int
    key: str


class Kind(NamedTuple):
    """A kind of table: how a pipeline file names it, and its rows as others read them."""

    name: str
    # Called with a folder.
    sink: Callable[[Path], str]
    rows: Callable[[Path], list[Row]]


def _delta_rows(folder: Path) -> list[Row]:
    path = folder / "delta"
    if not DeltaTable.is_deltatable(str(path)):
        return []
    return _rows(DeltaTable(path).to_pyarrow_table().to_pylist())


def _iceberg_rows(folder: Path) -> list[Row]:
    catalog = load_catalog("lake", **catalog_properties(folder))
    try:
        return _rows(catalog.load_table("shop.orders").scan().to_arrow().to_pylist())
    except NoSuchTableError:
        return []


def _rows(found: list[dict[str, object]]) -> list[Row]:
    names = ("brokerName", "queueId", "queueOffset", "keys")
    return [msgspec.convert([row[name] for name in names], Row) for row in found]


def _iceberg_sink(folder: Path) -> str:
    catalog = msgspec.json.encode(catalog_properties(folder)).decode()
    return f"iceberg: lake.shop.orders\n    catalog: {catalog}"


KINDS: Final = (
    Kind("delta", lambda folder: f"delta: {folder}/delta", _delta_rows),
    Kind("iceberg", _iceberg_sink, _iceberg_rows),
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Results of the kills for one kind of table."""

    seed: int
    # By victim.
    kills: dict[str, int]
    # Kills in the middle of a batch.
    in_mid_batch: int
    # Kills after which a row of a batch that is done was missing, or any row was there twice.
    wrong_after: int
    batches: int
    acknowledged: int
    rows: int
    # Rows missing, there twice, or unknown to the broker, and acknowledged keys missing, at the end.
    wrong: int

    @property
    def passed(self) -> bool:
        """Whether every row is present once."""
        return not self.wrong and not self.wrong_after and self.rows >= self.acknowledged > 0


class Sender(AbstractContextManager["Sender"]):
    """Sends messages continuously, and keeps the keys of those that were acknowledged."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="sender")
        self.keys: set[str] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()
        self._thread.join()

    def _send(self) -> None:
        with Producer("soak", namesrv=self._namesrv) as producer:
            number = 0
            while not self._ended.wait(SEND_PAUSE_S):
                number += 1
                key = f"key-{number}"
                # The broker may be away; what becomes of this message is then anybody's guess.
                with suppress(OrbitError):
                    producer.send(Message(TOPIC, b"a row", keys=key))
                    self.keys.add(key)


class Trial(AbstractContextManager["Trial"]):
    """One kind of table under kills."""

    def __init__(self, kind: Kind, folder: Path, seed: int) -> None:
        self._kind = kind
        self._folder = folder
        self._chance = random.Random(seed)  # the same kills for the same seed
        self._opened = ExitStack()
        checkpoint = str(folder / "shop.state" / "checkpoints" / "sink-table")
        self._checkpoint = Checkpoint(Query(source={}, checkpoint=checkpoint))
        self._running: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._cluster = self._opened.enter_context(Cluster(directory=self._folder / "broker"))
        self._cluster.create_topic(TOPIC, queues=4)
        file = FILE.format(namesrv=self._cluster.namesrv, sink=self._kind.sink(self._folder))
        (self._folder / "shop.yaml").write_text(file)
        self._opened.callback(self._kill_driver)
        self.sender = self._opened.enter_context(Sender(self._cluster.namesrv))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def batches(self) -> int:
        """Batches that were done."""
        return max(self._checkpoint.done, default=-1) + 1

    def kill(self, victim: str) -> bool:
        """Kill something at a random moment; returns whether that was in the middle of a batch."""
        self._ensure_progress()
        threading.Event().wait(self._chance.uniform(0, MOMENT_S))
        is_in_mid_batch = bool(self._checkpoint.unfinished)
        if victim == "driver":
            self._kill_driver()
        elif victim == "broker":
            self._cluster.faults.restart_broker(self._cluster.faults.kill_broker())
        else:
            self._kill_worker()
        return is_in_mid_batch

    def wrong_now(self) -> int:
        """Rows of done batches that are missing, and rows that are there twice."""
        done = self._checkpoint.done
        ends = self._checkpoint.ends(done)
        # Read after that: a batch that is done in between must not look lost.
        found = self._places()
        lost = sum(
            (queue.broker_name, queue.queue_id, offset) not in found
            for queue, end in ends.items()
            for offset in range(end)
        )
        return lost + sum(count > 1 for count in found.values())

    def finish(self) -> tuple[int, int]:
        """Let the pipeline end; returns the rows, and how many of them are wrong or missing."""
        self.sender.end()
        with Admin(namesrv=self._cluster.namesrv) as admin:
            ends = {
                queue: bounds.max_offset for queue, bounds in admin.topics.bounds(TOPIC).items()
            }
        self._ensure_running()
        wait_until(
            partial(self._has_read, ends), timeout_s=START_TIMEOUT_S, what="all rows in the table"
        )
        self._kill_driver()
        wanted = Counter(
            (queue.broker_name, queue.queue_id, offset)
            for queue, end in ends.items()
            for offset in range(end)
        )
        found = self._places()
        keys = {row.key for row in self._kind.rows(self._folder)}
        wrong = (wanted - found).total() + (found - wanted).total() + len(self.sender.keys - keys)
        return found.total(), wrong

    def _has_read(self, ends: dict[MessageQueue, int]) -> bool:
        self._ensure_running()
        return sum(self._checkpoint.ends(self._checkpoint.done).values()) >= sum(ends.values())

    def _places(self) -> Counter[tuple[str, int, int]]:
        return Counter(row[:3] for row in self._kind.rows(self._folder))

    def _ensure_progress(self) -> None:
        """Wait until this run of the pipeline has done a batch."""
        before = self.batches

        def has_progress() -> bool:
            self._ensure_running()
            return self.batches > before

        wait_until(has_progress, timeout_s=START_TIMEOUT_S, what="a batch that is done")

    def _ensure_running(self) -> None:
        """Start the pipeline, unless it runs: it ends when a worker or the broker is killed."""
        if self._running is not None and self._running.poll() is None:
            return
        with (self._folder / "driver.log").open("ab") as log:
            self._running = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.spark.pipelines.killed_pipeline",
                    self._folder / "shop.yaml",
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _kill_driver(self) -> None:
        if self._running is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait(END_TIMEOUT_S)
        self._running = None

    def _kill_worker(self) -> None:
        assert self._running is not None
        with suppress(psutil.NoSuchProcess):
            workers = [
                process
                for process in psutil.Process(self._running.pid).children(recursive=True)
                if process.name().startswith("python")
            ]
            if workers:
                self._chance.choice(workers).kill()


def run(kind: Kind, folder: Path, *, kills: int, seed: int) -> Outcome:
    """Kill this often while a pipeline fills a table, then let it finish, and compare."""
    done: Counter[str] = Counter()
    in_mid_batch = wrong_after = 0
    with Trial(kind, folder, seed) as trial:
        for number in range(kills):
            victim = VICTIMS[number % len(VICTIMS)]
            in_mid_batch += trial.kill(victim)
            wrong = trial.wrong_now()
            wrong_after += bool(wrong)
            done[victim] += 1
            sys.stdout.write(f"{kind.name}, kill {number + 1}: {victim}, {wrong} rows wrong\n")
            sys.stdout.flush()
        rows, wrong = trial.finish()
        return Outcome(
            seed=seed,
            kills=dict(done),
            in_mid_batch=in_mid_batch,
            wrong_after=wrong_after,
            batches=trial.batches,
            acknowledged=len(trial.sender.keys),
            rows=rows,
            wrong=wrong,
        )


def page_of(outcomes: dict[str, Outcome]) -> str:
    """Write the page with the results."""
    today = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC).date()
    passed = all(outcome.passed for outcome in outcomes.values())
    figures: list[tuple[str, Callable[[Outcome], int]]] = [
        *((f"kills of the {victim}", partial(_kills_of, victim)) for victim in VICTIMS),
        ("of all kills, in the middle of a batch", lambda one: one.in_mid_batch),
        ("batches", lambda one: one.batches),
        ("messages acknowledged to the producer", lambda one: one.acknowledged),
        ("rows at the end", lambda one: one.rows),
        ("kills after which a row was missing or doubled", lambda one: one.wrong_after),
        ("rows missing or doubled at the end", lambda one: one.wrong),
        ("seed", lambda one: one.seed),
    ]
    lines = [
        f"| {name} | {' | '.join(f'{figure(outcome):,}' for outcome in outcomes.values())} |"
        for name, figure in figures
    ]
    table = "\n".join(lines)
    return f"""# Pipelines killed at random

{"Passed" if passed else "FAILED"}. {today}, OrbitMQ {__version__}. Written by `tests/spark/pipelines/pipeline_soak.py` (`make soak-pipelines`).

A pipeline moves a topic into a table, while a producer keeps sending; tasks shuffle the rows. At random moments something gets SIGKILL: the driver, with its JVM and their workers, a Python worker of Spark, or the broker, which forgets what only its memory had. It is started again, and goes on. After each kill, and at the end, the rows of the table are compared with the offsets of the broker, and with the keys that were acknowledged to the producer.

| | {" | ".join(outcomes)} |
|---|{"---|" * len(outcomes)}
{table}
"""


def _kills_of(victim: str, outcome: Outcome) -> int:
    return outcome.kills.get(victim, 0)


def main() -> int:
    """Run a campaign; the exit code says whether it passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each kind of table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[kind.name for kind in KINDS])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    results: Path = arguments.results
    outcomes: dict[str, Outcome] = {}
    if results.exists():
        outcomes = msgspec.json.decode(results.read_bytes(), type=dict[str, Outcome])
    for kind in KINDS:
        if kind.name in outcomes or arguments.only not in {None, kind.name}:
            continue
        with tempfile.TemporaryDirectory(prefix="orbitmq-pipelines-") as folder:
            outcomes[kind.name] = run(
                kind, Path(folder), kills=arguments.kills, seed=arguments.seed
            )
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_bytes(msgspec.json.encode(outcomes))
    page = page_of(outcomes)
    if arguments.page is not None:
        arguments.page.write_text(page)
    sys.stdout.write(page)
    if len(outcomes) == len(KINDS):
        # The next campaign begins anew.
        results.unlink()
    return 0 if all(outcome.passed for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
