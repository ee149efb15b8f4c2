"""Where the rows of a write are staged, and the decision about them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa

from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.staged_writes import BatchDecision, Part, StagedReply
from orbitmq.spark.writing.parcels import Parcel, SentRows
from orbitmq.spark.writing.row_targets import RowTarget
from orbitmq.spark.writing.staging import Staged, StagedAt, Staging, decision_of

QUEUES = [MessageQueue(broker_name=name, queue_id=0, topic="orders") for name in ("a", "b")]


class Writer:
    """Holds staged rows until the test answers."""

    def __init__(self) -> None:
        self.staged: list[tuple[MessageQueue, bytes, int]] = []
        self.futures: list[Future[StagedReply]] = []

    def stage_async(
        self, queue: MessageQueue, rows: bytes, *, first_sequence: int, **_: Any
    ) -> Future[StagedReply]:
        self.staged.append((queue, rows, first_sequence))
        future: Future[StagedReply] = Future()
        self.futures.append(future)
        return future


def _staging(writer: Writer, namespace: str = "") -> Staging:
    return Staging(
        writer,  # type: ignore[arg-type]  # as far as it is used
        "0" * 32,
        queues_of=lambda _: QUEUES,
        namespace=namespace,
        timeout_ms=1000,
    )


def _parcel(start: int, stop: int, queue: MessageQueue | None = None) -> Parcel:
    sent = SentRows(
        memoryview(b"abcdef"),
        np.arange(7),
        np.ones(6, np.int64),
        None,
        pa.RecordBatch.from_pydict({"body": list("abcdef")}),
        100,
    )
    return Parcel(
        RowTarget("orders", queue), sent, start, stop, is_batch=True, sequence=100 + start
    )


def _reply(start: int, end: int) -> StagedReply:
    return StagedReply(start=Long(start), end=Long(end))


def test_rows_are_numbered_in_the_order_in_which_they_are_sent() -> None:
    writer = Writer()
    staging = _staging(writer)

    staging.send(_parcel(0, 2, QUEUES[0]))
    staging.send(_parcel(2, 5, QUEUES[1]))

    assert writer.staged == [(QUEUES[0], b"ab", 100), (QUEUES[1], b"cde", 102)]


def test_rows_that_may_go_anywhere_go_to_the_queues_in_turn() -> None:
    writer = Writer()
    staging = _staging(writer)

    for start in range(4):
        staging.send(_parcel(start, start + 1))

    names = [queue.broker_name for queue, _, _ in writer.staged]
    assert names in (["a", "b", "a", "b"], ["b", "a", "b", "a"])


def test_brokers_know_topics_by_their_namespace() -> None:
    writer = Writer()

    _staging(writer, "tenant").send(_parcel(0, 1))

    assert writer.staged[0][0].topic == "tenant%orders"


def test_a_write_records_its_rows_at_each_broker() -> None:
    writer = Writer()
    staging = _staging(writer)
    for start, stop, queue in ((0, 2, 0), (2, 3, 1), (3, 6, 0)):
        staging.send(_parcel(start, stop, QUEUES[queue]))

    for future, (start, end) in zip(writer.futures, ((70, 72), (5, 6), (40, 43)), strict=True):
        future.set_result(_reply(start, end))

    staged = staging.staged("q")
    assert staged == Staged("q", "0" * 32, {"a": StagedAt(5, 40, 72), "b": StagedAt(1, 5, 6)})
    assert staged.rows == 6


def test_failed_rows_are_not_counted() -> None:
    writer = Writer()
    staging = _staging(writer)
    staging.send(_parcel(0, 2))
    staging.send(_parcel(2, 3))

    writer.futures[0].set_exception(OSError("gone"))
    writer.futures[1].cancel()

    assert staging.staged("q").rows == 0


def test_a_decision_names_the_writes_of_every_broker() -> None:
    writes = [
        Staged("q", "one", {"a": StagedAt(5, 40, 72), "b": StagedAt(1, 5, 6)}),
        Staged("q", "two", {}),
        Staged("q", "three", {"a": StagedAt(2, 30, 50)}),
    ]

    assert decision_of(writes, query="q", batch=7) == BatchDecision(
        query="q",
        batch=7,
        parts={
            "a": Part(writes={"one": 5, "three": 2}, start=30, end=72),
            "b": Part(writes={"one": 1}, start=5, end=6),
        },
    )
