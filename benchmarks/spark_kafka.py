"""What do topics cost Spark, beside Spark's own Kafka connector, and beside Parquet?

    python -m benchmarks.spark_kafka [--rounds N] [--rows N] [--only WORKLOAD] [--no-kafka] [--smoke]

All sides run at once and are used one at a time, in an order that is shuffled in every round, by
one Spark with two cores. Rows have a key and a body of random bytes, and lie in four queues.
CPU is that of the broker, the JVM of Spark and all its Python processes together. Every slice
fails unless every row was read, or found again after writing, exactly once.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark
from pyspark.sql import DataFrame, Observation, SparkSession, functions

from benchmarks import brokers, kafka_broker
from benchmarks.broker_rounds import facts_of
from benchmarks.plans import keep
from benchmarks.rounds import RESULTS, spread
from benchmarks.spark_sides import KAFKA, KafkaTopics, OurFiles, OurTopics, ParquetFiles, Side
from orbitmq.spark import session

CORES: Final = 2
SIZES: Final = {"128 B": 128, "1 KiB": 1024}
READ: Final = "batch read"
STREAM: Final = "streaming read"
STEADY: Final = "streaming read, steady"
WRITE: Final = "write"
TRIGGERS: Final = "micro-batches of 4 rows"
# A streaming read takes about this many triggers.
_READ_TRIGGERS: Final = 4
# One that is measured without its start takes so many, the first of which does not count.
_STEADY_TRIGGERS: Final = 8
# Kafka's connector rounds the share of each partition down: without these a last micro-batch, of a
# few rows, would count.
_ROUNDED_ROWS: Final = 2 * kafka_broker.QUEUES
_SMALL_ROWS: Final = 80
_SMALL_PER_TRIGGER: Final = 4
_QUERY_TIMEOUT_S: Final = 600
_WRITES_MAX: Final = 3

Figures = Mapping[str, float]
# Of each micro-batch, the rows and how many milliseconds it took.
Steps = Sequence[tuple[int, float]]


class RowsError(Exception):
    """Other rows than there should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many rows of 128 bytes there are, and how often they are read and written."""

    rounds: int
    rows: int
    # How often they lie in the topics that are read by streams in a steady state.
    steady_copies: int
    seed: int

    def rows_of(self, body_bytes: int) -> int:
        """Fewer of those that are larger: rows have about 128 bytes beside their bodies."""
        return self.rows * 256 // (body_bytes + 128)

    def steady_rows_of(self, body_bytes: int) -> int:
        """The rows that streams in a steady state read."""
        return self.rows_of(body_bytes) * self.steady_copies


SMOKE: Final = Plan(rounds=1, rows=2_000, steady_copies=1, seed=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One slice: which side, which task, which round, and the figures."""

    workload: str
    side: str
    round: int
    figures: Figures


# Does a slice of work with one side; None if that cannot do it.
Work = Callable[[Side], Figures | None]


class Bench:
    """Rows in every side, and what is done with them."""

    def __init__(
        self,
        spark: SparkSession,
        sides: Sequence[Side],
        folder: Path,
        plan: Plan,
        processes: Processes,
        only: Sequence[str] = (),
    ) -> None:
        """Make it; `only` has words that workloads must have one of."""
        self._processes = processes
        self._only = only
        self._spark = spark
        self._sides = sides
        self._folder = folder
        self._plan = plan
        self._numbers = itertools.count(1)

    def prepare(self) -> None:
        """Write the rows that will be read; the files are what all are written from."""
        for size, body_bytes in SIZES.items():
            rows = self._plan.rows_of(body_bytes)
            source = self._spark.range(rows, numPartitions=CORES).select(
                functions.format_string("key-%d", "id").alias("key"),
                _random_bytes(body_bytes).alias("body"),
            )
            source.write.option("compression", "none").parquet(str(self._rows_folder(size)))
            for side in self._sides:
                if side.is_written:
                    side.prepare(_topic(size))
                    side.write(self._rows(size), _topic(size))
            if f"{STEADY}, {size}" in self._workloads():
                self._prepare_steady(size)
        few = self._rows(next(iter(SIZES))).limit(_SMALL_ROWS).repartition(1)
        for side in self._sides:
            if side.is_written:
                side.prepare("small")
                side.write(few, "small")

    def _prepare_steady(self, size: str) -> None:
        for side in self._sides:
            if side.is_streamed:
                side.prepare(_steady_topic(size))
                for _ in range(self._plan.steady_copies):
                    side.write(self._rows(size), _steady_topic(size))

    def measure(self) -> list[Measured]:
        """Use all sides in turn; the first round warms up and counts for nothing."""
        order = random.Random(self._plan.seed)  # an order of slices, no secret
        measured: list[Measured] = []
        for round_number in range(self._plan.rounds + 1):
            for workload, work in self._workloads().items():
                for side in order.sample(list(self._sides), len(self._sides)):
                    figures = work(side)
                    if figures is None:
                        continue
                    shown = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())
                    print(f"round {round_number}: {workload}: {side.name}: {shown}", flush=True)
                    if round_number:
                        measured.append(
                            Measured(
                                workload=workload,
                                side=side.name,
                                round=round_number,
                                figures=figures,
                            )
                        )
        return measured

    def _workloads(self) -> dict[str, Work]:
        workloads: dict[str, Work] = {}
        for size in SIZES:
            workloads[f"{READ}, {size}"] = partial(self._read, size=size)
            workloads[f"{STREAM}, {size}"] = partial(self._stream, size=size)
            workloads[f"{STEADY}, {size}"] = partial(self._stream_steadily, size=size)
            workloads[f"{WRITE}, {size}"] = partial(self._write, size=size)
        workloads[TRIGGERS] = self._triggers
        return {
            name: work
            for name, work in workloads.items()
            if not self._only or any(words in name for words in self._only)
        }

    def _read(self, side: Side, size: str) -> Figures | None:
        frame = side.read(self._spark, _topic(size))
        rows = self._plan.rows_of(SIZES[size])
        return self._timed(side, rows, lambda: _count(frame))

    def _stream(self, side: Side, size: str) -> Figures | None:
        rows = self._plan.rows_of(SIZES[size])
        frame = side.stream(self._spark, _topic(size), rows // _READ_TRIGGERS)
        if frame is None:
            return None
        return self._timed(side, rows, lambda: sum(rows for rows, _ in self._run(frame)))

    def _stream_steadily(self, side: Side, size: str) -> Figures | None:
        rows = self._plan.steady_rows_of(SIZES[size])
        per_trigger = rows // _STEADY_TRIGGERS + _ROUNDED_ROWS
        frame = side.stream(self._spark, _steady_topic(size), per_trigger)
        if frame is None:
            return None
        steps = self._run(frame)
        seen = sum(rows for rows, _ in steps)
        if seen != rows:
            raise RowsError(f"{side.name}: {seen} rows were read where {rows} are")
        return {"rows_per_s": steady_rate(steps)}

    def _write(self, side: Side, size: str) -> Figures | None:
        if not side.is_written:
            return None
        frame, rows = self._rows(size), self._plan.rows_of(SIZES[size])
        for _ in range(_WRITES_MAX):
            topic = f"written{next(self._numbers)}"
            side.prepare(topic)
            figures = self._timed(side, rows, partial(_written, side, frame, topic, rows))
            there = _count(side.read(self._spark, topic))
            if there < rows:
                raise RowsError(f"{side.name}: holds {there} rows after {rows} were written")
            if there == rows:
                return figures
            # All sides promise at least once: a task that was tried again says nothing of speed.
            print(f"{side.name}: {there} rows of {rows}; once more", flush=True)
        raise RowsError(f"{side.name}: rows came more than once in each of {_WRITES_MAX} writes")

    def _triggers(self, side: Side) -> Figures | None:
        frame = side.stream(self._spark, "small", _SMALL_PER_TRIGGER)
        if frame is None:
            return None
        triggers = [duration_ms for rows, duration_ms in self._run(frame) if rows]
        # The first ones start the processes that the others use.
        return {"trigger_ms": statistics.median(triggers[len(triggers) // 4 :])}

    def _run(self, frame: DataFrame) -> Steps:
        """Read a stream to its end, and give its micro-batches."""
        checkpoint = self._folder / f"checkpoint{next(self._numbers)}"
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(_QUERY_TIMEOUT_S):
            query.stop()
            raise TimeoutError(f"a stream was not read in {_QUERY_TIMEOUT_S} s")
        return [
            (step["numInputRows"], step["durationMs"]["triggerExecution"])
            for step in query.recentProgress
        ]

    def _timed(self, side: Side, rows: int, work: Callable[[], int]) -> Figures:
        begun_s, cpu_s = time.perf_counter(), self._processes.cpu_seconds(side.pids)
        seen = work()
        seconds = time.perf_counter() - begun_s
        cpu_s = self._processes.cpu_seconds(side.pids) - cpu_s
        if seen != rows:
            raise RowsError(f"{side.name}: {seen} rows were read where {rows} are")
        return {
            "rows_per_s": rows / seconds,
            "cpu_us": cpu_s * 1e6 / rows,
            "cores": cpu_s / seconds,
        }

    def _rows(self, size: str) -> DataFrame:
        return self._spark.read.parquet(str(self._rows_folder(size)))

    def _rows_folder(self, size: str) -> Path:
        return self._folder / f"rows-{_topic(size)}"


def _written(side: Side, frame: DataFrame, topic: str, rows: int) -> int:
    side.write(frame, topic)
    return rows


def steady_rate(steps: Steps) -> float:
    """Rows per second of a stream's micro-batches but the first, by Spark's own times."""
    counted = [(rows, duration_ms) for rows, duration_ms in steps if rows][1:]
    return 1000 * sum(rows for rows, _ in counted) / sum(time_ms for _, time_ms in counted)


def _topic(size: str) -> str:
    return f"rows{size.replace(' ', '')}"


def _steady_topic(size: str) -> str:
    return f"steady{size.replace(' ', '')}"


def _random_bytes(count: int) -> Any:
    """A column of bytes that no compression makes smaller."""
    pieces = [
        functions.unhex(functions.sha2(functions.format_string(f"%d-{number}", "id"), 512))
        for number in range(count // 64)
    ]
    return functions.concat(*pieces)


def _count(frame: DataFrame) -> int:
    """Have Spark read all of a table, and count its rows on the way."""
    seen = Observation()
    counted = frame.observe(seen, functions.count(functions.lit(1)).alias("rows"))
    counted.write.format("noop").mode("append").save()
    return int(seen.get["rows"])


class Processes:
    """Who used how much of the processors: the servers apart from Spark."""

    def __init__(self, servers: Collection[int]) -> None:
        self._own = psutil.Process()
        self._servers = servers
        # Parent and time of each process of Spark at the last look, and what those used that
        # ended together with their parents.
        self._seen: dict[int, tuple[int, float]] = {}
        self._ended = 0.0

    def cpu_seconds(self, servers: Sequence[int]) -> float:
        """What this process with its Spark and these servers used, those that ended included."""
        seen: dict[int, tuple[int, float]] = {}
        for child in self._own.children(recursive=True):
            if child.pid not in self._servers:
                # A worker may end between two looks: its parent then has its time.
                with contextlib.suppress(psutil.NoSuchProcess):
                    seen[child.pid] = child.ppid(), _cpu_of(child.cpu_times(), ended=True)
        self._ended += sum(
            used
            for pid, (parent, used) in self._seen.items()
            if pid not in seen and parent not in seen
        )
        self._seen = seen
        return (
            _cpu_of(self._own.cpu_times(), ended=False)
            + self._ended
            + sum(used for _, used in seen.values())
            + sum(_cpu_of(psutil.Process(pid).cpu_times(), ended=True) for pid in servers)
        )


def children() -> set[int]:
    """Every process that this one has started, or that was started by one of them."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _cpu_of(times: Any, *, ended: bool) -> float:
    used = times.user + times.system
    return float(used + times.children_user + times.children_system if ended else used)


def summary(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row per workload and side: figures, and each other side against Kafka's."""
    slices = {(entry.workload, entry.side, entry.round): entry.figures for entry in measured}
    rounds = sorted({entry.round for entry in measured})
    rows: list[dict[str, Any]] = []
    for workload, side in dict.fromkeys((entry.workload, entry.side) for entry in measured):
        own = [slices[workload, side, number] for number in rounds]
        row: dict[str, Any] = {
            "workload": workload,
            "side": side,
            "figures": {name: spread([part[name] for part in own]) for name in own[0]},
            "ratios": {},
        }
        if side != KAFKA and (workload, KAFKA, rounds[0]) in slices:
            theirs = [slices[workload, KAFKA, number] for number in rounds]
            row["ratios"] = {
                name: spread([a[name] / b[name] for a, b in zip(own, theirs, strict=True)])
                for name in own[0]
                if name != "cores"
            }
        rows.append(row)
    workloads = list(dict.fromkeys(entry.workload for entry in measured))
    return sorted(rows, key=lambda row: (workloads.index(row["workload"]), row["side"]))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The summary as a Markdown table: medians, and ratios as minimum / median / maximum."""
    heads = ["workload", "side", "rows/s", "CPU µs/row", "cores", "ms a micro-batch"]
    heads += ["speed against Kafka", "CPU/row against Kafka"]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        figures, ratios = row["figures"], row["ratios"]
        # Less time is more speed.
        speed = ratios.get("rows_per_s") or [
            1 / value for value in reversed(ratios.get("trigger_ms", ()))
        ]
        lines.append(
            [
                row["workload"],
                row["side"],
                f"{figures['rows_per_s'][1]:,.0f}" if "rows_per_s" in figures else "",
                f"{figures['cpu_us'][1]:,.2f}" if "cpu_us" in figures else "",
                f"{figures['cores'][1]:.2f}" if "cores" in figures else "",
                f"{figures['trigger_ms'][1]:,.0f}" if "trigger_ms" in figures else "",
                " / ".join(f"{value:.2f}" for value in speed),
                " / ".join(f"{value:.2f}" for value in ratios.get("cpu_us", ())),
            ]
        )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Compare what topics cost Spark.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of 128 bytes")
    parser.add_argument(
        "--steady-copies",
        type=int,
        default=2,
        help="how often the rows lie in the topics of streams whose start does not count",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORDS",
        help="only workloads with these words in their name, as 'streaming read'; may be given "
        "several times; nothing is kept",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of slices")
    parser.add_argument("--no-kafka", action="store_true", help="without Kafka")
    parser.add_argument(
        "--smoke", action="store_true", help="one short round without Kafka, nothing is kept"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "spark_kafka.json")
    return parser.parse_args()


@contextlib.contextmanager
def running_sides(folder: Path, *, with_kafka: bool) -> Iterator[list[Side]]:
    """Every side that can be had."""
    with contextlib.ExitStack() as running:
        under_load = running.enter_context(
            brokers.running_brokers(None, (brokers.ASYNC, brokers.SYNC), folder, ())
        )
        ours = [OurTopics(broker) for broker in under_load]
        sides: list[Side] = [
            *ours,
            OurFiles(ours[0], folder / f"ours-{brokers.ASYNC}" / "store"),
            ParquetFiles(folder / "parquet"),
        ]
        if with_kafka:
            kafka = running.enter_context(kafka_broker.running_kafka(folder / "kafka"))
            sides.append(KafkaTopics(kafka))
        yield sides


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options()
    with_kafka = not (chosen.no_kafka or chosen.smoke)
    plan = SMOKE
    if not chosen.smoke:
        plan = Plan(
            rounds=chosen.rounds,
            rows=chosen.rows,
            steady_copies=chosen.steady_copies,
            seed=chosen.seed,
        )
    facts = facts_of(None)
    facts["pyspark"] = pyspark.__version__
    settings = {"spark.driver.memory": "2g"}
    if with_kafka:
        facts["kafka"] = kafka_broker.version_of("kafka_2.13")
        facts["kafka_connector"] = kafka_broker.version_of("spark-sql-kafka-0-10_2.13")
        settings["spark.jars"] = ",".join(
            str(jar) for jar in sorted(kafka_broker.jars("connector").glob("*.jar"))
        )
    with (
        tempfile.TemporaryDirectory(prefix="spark-benchmark-") as folder,
        running_sides(Path(folder), with_kafka=with_kafka) as sides,
    ):
        # Spark starts after the servers, which tells its processes from theirs.
        processes = Processes(children())
        spark = session("benchmark", cores=CORES, settings=settings)
        try:
            bench = Bench(spark, sides, Path(folder), plan, processes, chosen.only)
            bench.prepare()
            measured = bench.measure()
        finally:
            spark.stop()
    rows = summary(measured)
    print("\nIt works; slices this short say nothing.\n" if chosen.smoke else "")
    print(table(rows))
    if not chosen.smoke and not chosen.only:
        facts["load_average_after"] = [round(value, 2) for value in os.getloadavg()]
        keep(
            chosen.output,
            {"environment": facts, "plan": plan, "summary": rows, "slices": measured},
        )


if __name__ == "__main__":
    main()
