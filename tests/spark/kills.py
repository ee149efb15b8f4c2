"""Drivers killed in mid-batch, and a ledger of what must have come through all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Self

import msgspec
from pyspark.sql import SparkSession

from orbitmq.client import Message, Producer
from tests.interop.waiting import wait_until
from tests.spark.killed_driver import Query, start
from tests.spark.streams import CAME_UP_TOO_SLOWLY, STARTS_MAX, started

# From the start of a JVM to its first batch, on a busy machine.
START_TIMEOUT_S = 400
END_TIMEOUT_S = 30
# What the ledger's producer sends at a time.
BATCH_MESSAGES = 4
ROOT = Path(__file__).parents[2]


class EndedByItselfError(Exception):
    """A driver was gone before it was killed."""


class Checkpoint:
    """The checkpoint of a query, as its files tell."""

    def __init__(self, query: Query) -> None:
        self.folder = Path(query.checkpoint)

    @property
    def planned(self) -> set[int]:
        """Batches whose end is stored."""
        return self._numbers("offsets")

    @property
    def unfinished(self) -> set[int]:
        """Batches that were begun and not done: Spark has to repeat them."""
        # In this order: a batch that is done in between must not look unfinished.
        planned = self.planned
        return planned - self._numbers("commits")

    def end(self, batch: int) -> dict[str, Any]:
        """Where a batch ends, as our source wrote it."""
        lines = (self.folder / "offsets" / str(batch)).read_text().splitlines()
        stored: dict[str, Any] = json.loads(lines[2])
        return stored

    def _numbers(self, kind: str) -> set[int]:
        return {int(path.name) for path in (self.folder / kind).glob("[0-9]*")}


def table_query(source: Mapping[str, str], folder: Path, *, rows_a_batch: int) -> Query:
    """A query from the beginning of topics to a Parquet table in `folder`, by way of a shuffle."""
    return Query(
        source={
            **source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(rows_a_batch),
        },
        checkpoint=str(folder / "checkpoint"),
        sink="parquet",
        sink_options={"path": str(folder / "table")},
        columns=["keys", "body"],
        shuffle=3,
    )


def kill_within(
    queries: Sequence[Query], batches: Mapping[Checkpoint, int], *, log: Path
) -> set[int]:
    """Run queries in a driver, and kill it once each is within a batch of that number or later.

    Returns the batches of the first one that were begun and not done.
    """
    for left in reversed(range(STARTS_MAX)):
        driver = _start_driver(queries, log)
        try:
            _wait_within(driver, batches)
            break
        except EndedByItselfError:
            # On a busy machine; any other reason is a failure of what is tested.
            if left == 0 or CAME_UP_TOO_SLOWLY not in log.read_text():
                raise AssertionError(f"the driver ended: {log.read_text()[-4000:]}") from None
        finally:
            # The driver and its JVM; the workers end when they miss them.
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait(END_TIMEOUT_S)
    return next(iter(batches)).unfinished


def _start_driver(queries: Sequence[Query], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.killed_driver"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, msgspec.json.encode(queries).decode()],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _wait_within(driver: subprocess.Popen[bytes], batches: Mapping[Checkpoint, int]) -> None:
    def all_within() -> bool:
        if driver.poll() is not None:
            raise EndedByItselfError
        return all(max(query.unfinished, default=-1) >= batch for query, batch in batches.items())

    wait_until(all_within, timeout_s=START_TIMEOUT_S, what="a batch to kill the driver in")


def run_to_the_end(spark: SparkSession, query: Query) -> None:
    """Do what is left of a query, in large batches."""
    unlimited = {**query.source, "maxOffsetsPerTrigger": "1000000"}
    whole = msgspec.structs.replace(query, source=unlimited)
    running = started(lambda: start(spark, whole, availableNow=True))
    try:
        assert running.awaitTermination(START_TIMEOUT_S), "the query does not end"
    finally:
        running.stop()


def counted(spark: SparkSession, query: Query) -> Counter[str]:
    """How often each key is in the table that a query wrote."""
    rows = spark.read.parquet(query.sink_options["path"]).groupBy("keys").count().collect()
    return Counter({row["keys"]: row["count"] for row in rows})


class Ledger(AbstractContextManager["Ledger"]):
    """Sends messages without a pause, and counts by key what was acknowledged."""

    def __init__(self, namesrv: str, topic: str, *, pause_s: float = 0.05) -> None:
        self._namesrv = namesrv
        self._topic = topic
        # May be changed while it sends.
        self.pause_s = pause_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="ledger")
        self.acknowledged: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Send no more."""
        self._ended.set()
        self._thread.join()

    def _send(self) -> None:
        with Producer("ledger", namesrv=self._namesrv) as producer:
            queues = producer.queues(self._topic)
            number = 0
            while not self._ended.wait(self.pause_s):
                keys = [f"key-{number + more}" for more in range(BATCH_MESSAGES)]
                batch = [Message(self._topic, b"a row", keys=key) for key in keys]
                producer.send(batch, queue=queues[number // BATCH_MESSAGES % len(queues)])
                self.acknowledged.update(keys)
                number += len(keys)


def differences(expected: Counter[str], found: Counter[str]) -> dict[str, tuple[int, int]]:
    """Keys whose number is not what it must be: that, and what it is."""
    return {
        key: (expected[key], found[key])
        for key in expected.keys() | found.keys()
        if expected[key] != found[key]
    }
