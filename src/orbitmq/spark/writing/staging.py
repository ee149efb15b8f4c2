"""Stages rows until their batch is committed: `delivery=exactlyOnce`.

A write is one call of `write`, with a random id. Its rows are staged at the brokers of their
queues, numbered in the order in which they are sent; the task reports to the driver where they are.
The driver's `commit` names the writes that count, once for a batch of a query, and returns when the
brokers have moved their rows. docs/decisions/0004 explains how it works, and why each row appears
once.

Threads: one fills the window; replies arrive on the event loop of the clients.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from orbitmq.client.core import namespaces
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.requests.staged_writes import BatchDecision, Part, SourceRange

if TYPE_CHECKING:
    from orbitmq.client.sync.staged_writer import StagedWriter
    from orbitmq.protocol.requests.staged_writes import StagedReply
    from orbitmq.spark.writing.parcels import Parcel
    from orbitmq.spark.writing.row_targets import QueuesOf


class StagedAt(NamedTuple):
    """The rows of one write at one broker, between two offsets of the staging queue."""

    rows: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """A task's report to the driver: where the rows of its write are, by broker."""

    query: str
    write_id: str
    at: dict[str, StagedAt]
    # The session's folder for checkpoints, for a stream that does not name its own.
    checkpoints: str | None = None

    @property
    def rows(self) -> int:
        """The number of rows of the write."""
        return sum(each.rows for each in self.at.values())


class Staging:
    """One write: stages parcels, and records where they are."""

    def __init__(
        self,
        writer: StagedWriter,
        write_id: str,
        *,
        queues_of: QueuesOf,
        namespace: str,
        timeout_ms: float,
    ) -> None:
        self._writer = writer
        self._write_id = write_id
        self._queues_of = queues_of
        self._namespace = namespace
        self._timeout_ms = timeout_ms
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        # The next queue for rows that may go anywhere; random, so that tasks start with different ones.
        self._turn = random.getrandbits(16)
        self._guard = threading.Lock()
        self._at: dict[str, StagedAt] = {}

    def send(self, parcel: Parcel) -> Future[StagedReply]:
        """Start to stage a parcel."""
        queue = parcel.target.queue or self._next_queue(parcel.target.topic)
        wrapped = MessageQueue(
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            topic=namespaces.wrap(self._namespace, queue.topic),
        )
        future = self._writer.stage_async(
            wrapped,
            parcel.packed(),
            write_id=self._write_id,
            first_sequence=parcel.sequence,
            timeout_ms=self._timeout_ms,
        )

        # Only the count: the parcel itself would hold its batch.
        count = parcel.count

        def note(staged: Future[StagedReply]) -> None:
            if not staged.cancelled() and staged.exception() is None:
                self._note(queue.broker_name, count, staged.result())

        # Runs before the callbacks of those that wait for the parcel.
        future.add_done_callback(note)
        return future

    def staged(self, query: str, checkpoints: str | None = None) -> Staged:
        """The report, once everything is staged."""
        with self._guard:
            return Staged(query, self._write_id, dict(self._at), checkpoints)

    def _next_queue(self, topic: str) -> MessageQueue:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = self._queues_of(topic)
        self._turn += 1
        return queues[self._turn % len(queues)]

    def _note(self, broker_name: str, rows: int, reply: StagedReply) -> None:
        with self._guard:
            before = self._at.get(broker_name)
            if before is None:
                self._at[broker_name] = StagedAt(rows, reply.start, reply.end)
            else:
                self._at[broker_name] = StagedAt(
                    before.rows + rows, min(before.start, reply.start), max(before.end, reply.end)
                )


def decision_of(
    writes: Sequence[Staged],
    *,
    query: str,
    batch: int,
    source: SourceRange | None = None,
    target: str = "",
) -> BatchDecision:
    """Decide that these writes count for a batch; rows are moved in their order."""
    parts: dict[str, Part] = {}
    for write in writes:
        for broker_name, (rows, start, end) in write.at.items():
            part = parts.get(broker_name)
            parts[broker_name] = Part(
                writes={**(part.writes if part else {}), write.write_id: rows},
                start=min(part.start, start) if part else start,
                end=max(part.end, end) if part else end,
            )
    return BatchDecision(query=query, batch=batch, parts=parts, source=source, target=target)
