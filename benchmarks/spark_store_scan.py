"""What does scanning a store with Spark cost, against Spark reading the same rows from Parquet?

    python -m benchmarks.spark_store_scan [--rows N] [--rounds N] [--text] [--smoke]

The rows of a store of 16 queues are read to nowhere (Spark's `noop`), with all columns, properties
as text and as a map; beside them the same rows in Parquet, and the scan without Spark: the tasks
of the same plan, one after another in one process. Bodies are random and differ, so Parquet finds
nothing to shorten in them; its files are compressed as Spark does unless told otherwise (Snappy),
and in the page cache, as the store's are. CPU is that of all processes: the JVM and its Python
workers. Time is that of whole queries, so planning and starting tasks are in it; a query of no
rows is shown for scale. The first rounds, in which the JVM compiles, count for nothing.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import psutil

from benchmarks.filling import TOPIC, config_of
from benchmarks.messages import NOW_MS, properties_of
from benchmarks.rounds import Measured, report, summary
from orbitmq.spark import session
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BODY_BYTES: Final = (128, 1024)
QUEUES: Final = 16
CORES: Final = 2
ROWS: Final = 2_000_000
SMOKE_ROWS: Final = 5_000
WARM_UP_ROUNDS: Final = 3
_CHUNK: Final = 1_000
_KINDS: Final[tuple[Literal["string", "map"], ...]] = ("string", "map")
_WORDS: Final = {"string": "text", "map": "map"}


def fill_distinct(root: Path, rows: int, body_bytes: int) -> None:
    """Fill a store with messages that all differ, in queues that take them in turn."""
    bodies = random.Random(1)  # bytes, no secret
    with MessageStore(config_of(root)) as store:
        for first in range(0, rows, _CHUNK):
            for number in range(first, min(first + _CHUNK, rows)):
                store.append(
                    Draft(
                        topic=TOPIC,
                        queue_id=number % QUEUES,
                        body=bodies.randbytes(body_bytes),
                        properties=properties_of(number),
                        born_ms=NOW_MS + number,
                    )
                )
            store.publish()


def scan(spark: SparkSession, root: Path, **options: str) -> DataFrame:
    """All rows and columns of a store."""
    reading = spark.read.format("rocketmq-store").option("columns", "all")
    return reading.options(**options).load(str(root))


def decode(root: Path, kind: Literal["string", "map"]) -> int:
    """Do what the tasks of a scan do, without Spark; returns the rows."""
    from orbitmq.spark.options.column_names import COLUMN_NAMES
    from orbitmq.spark.options.store_options import StoreOptions
    from orbitmq.spark.rows.schema import table_projection
    from orbitmq.spark.scan.store_reader import StoreReader

    options = StoreOptions.from_spark({"path": str(root)})
    reader = StoreReader(options, table_projection(COLUMN_NAMES, properties=kind))
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


@contextmanager
def cpu_seconds() -> Iterator[list[float]]:
    """Add up what this process and all that it started, and that still run, take meanwhile."""
    spent = [0.0]
    before = _cpu_of_all()
    yield spent
    spent[0] = _cpu_of_all() - before


def _cpu_of_all() -> float:
    """Of processes that have ended, their parents know."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def measure(
    workload: str,
    forms: Mapping[str, Callable[[], object]],
    rows: int,
    *,
    warm_up: int = WARM_UP_ROUNDS,
    rounds: int,
    seed: int,
) -> list[Measured]:
    """Run every form once a round, in shuffled order; some rounds to warm up come before."""
    order = random.Random(seed)  # an order of slices, no secret
    measured: list[Measured] = []
    for round_number in range(1 - warm_up, rounds + 1):
        for form in order.sample(list(forms), len(forms)):
            start = time.perf_counter()
            with cpu_seconds() as cpu:
                forms[form]()
            wall = time.perf_counter() - start
            if round_number > 0:
                measured.append(
                    Measured(
                        workload=workload,
                        form=form,
                        baseline="Parquet, map" if form.endswith("map") else "Parquet, text",
                        round=round_number,
                        cpu_us=cpu[0] * 1e6 / rows,
                        wall_us=wall * 1e6 / rows,
                    )
                )
    return measured


def forms_of(
    spark: SparkSession,
    folder: Path,
    rows: int,
    body_bytes: int,
    kinds: Sequence[Literal["string", "map"]] = _KINDS,
) -> dict[str, Callable[[], object]]:
    """Fill a store and Parquet with the same rows, and say how each is read."""
    root = folder / f"store-{body_bytes}"
    fill_distinct(root, rows, body_bytes)
    forms: dict[str, Callable[[], object]] = {}
    for kind in kinds:
        parquet = str(folder / f"parquet-{body_bytes}-{kind}")
        scan(spark, root, properties=kind).write.option("compression", "snappy").parquet(parquet)
        assert spark.read.parquet(parquet).count() == rows
        word = _WORDS[kind]
        forms[f"Parquet, {word}"] = partial(_read_parquet, spark, parquet)
        forms[f"store scan, {word}"] = partial(_read_store, spark, root, properties=kind)
        forms[f"decoding alone, {word}"] = partial(decode, root, kind)
    forms["a scan of no rows"] = partial(_read_store, spark, root, endingTimestamp="0")
    return forms


def _read_parquet(spark: SparkSession, path: str) -> None:
    _to_nowhere(spark.read.parquet(path))


def _read_store(spark: SparkSession, root: Path, **options: str) -> None:
    _to_nowhere(scan(spark, root, **options))


def _to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("append").save()


def against_parquet(measured: Sequence[Measured]) -> list[str]:
    """Say of each scan which part of Parquet's rate it reaches, and what CPU it takes beside it."""
    return [
        f"{row['workload']}: {row['form']} at {1 / row['time_ratio'][1]:.2f} of the rate of "
        f"{row['baseline']}, for {row['cpu_ratio'][1]:.2f} of its CPU"
        for row in summary(measured)
        if row["form"].startswith("store scan")
    ]


def main() -> None:
    """Measure, print the table and keep the results."""
    parser = argparse.ArgumentParser(description="Compare scans of stores with Parquet.")
    parser.add_argument("--rows", type=int, default=ROWS, help="of 128 bytes; an eighth of 1 KiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the order of slices")
    parser.add_argument("--text", action="store_true", help="properties as text only")
    parser.add_argument("--smoke", action="store_true", help="one short round, nothing kept")
    chosen = parser.parse_args()
    measured: list[Measured] = []
    spark = session("store scan", cores=CORES)
    with tempfile.TemporaryDirectory() as folder:
        for body_bytes in BODY_BYTES[:1] if chosen.smoke else BODY_BYTES:
            wanted = SMOKE_ROWS if chosen.smoke else chosen.rows
            rows = wanted * BODY_BYTES[0] // body_bytes
            measured += measure(
                f"bodies of {body_bytes:4} B",
                forms_of(
                    spark, Path(folder), rows, body_bytes, _KINDS[:1] if chosen.text else _KINDS
                ),
                rows,
                warm_up=1 if chosen.smoke else WARM_UP_ROUNDS,
                rounds=1 if chosen.smoke else chosen.rounds,
                seed=chosen.seed,
            )
    spark.stop()
    # What was not measured whole is not kept.
    report("spark_store_scan", measured, kept=not (chosen.smoke or chosen.text))
    for line in against_parquet(measured):
        print(line)


if __name__ == "__main__":
    main()
