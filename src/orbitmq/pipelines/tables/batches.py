"""Writes a stream into a table batch by batch, each batch once.

Spark repeats a batch unless it knows that it was committed. So the transaction that adds the rows
also records which batch they are: its number, Spark's id of the query, and where the batch starts
and ends in its sources, as the checkpoint says. What a table has must continue in the checkpoint:
one that is new, copied, or restored from a backup is refused, and so is a restored table.

Threads: one of the driver for each query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from orbitmq.errors import TableStateError
from orbitmq.protocol.requests.staged_writes import SourceRange
from orbitmq.spark.writing.stream_checkpoint import StreamCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What a table records of a batch; of each sink, the last one."""

    # Which sink of which pipeline: PIPELINE/SINK.
    sink: str
    # Spark's id of the query, which lasts as long as its checkpoint.
    query: str
    batch: int
    source: SourceRange


class Table(Protocol):
    """A table that adds rows and records a commit in one transaction."""

    def last_commit(self, sink: str) -> Commit | None:
        """The last batch of a sink that the table has; None if it has none."""

    def write(self, rows: DataFrame, commit: Commit, after: Commit | None) -> None:
        """Add the rows of a batch; raises if the last commit is not `after` any more."""


def batch_writer(
    table: Table, *, sink: str, target: str, checkpoint: str
) -> Callable[[DataFrame, int], None]:
    """What Spark calls with each batch of a query; `target` names the table in errors."""

    def write(rows: DataFrame, number: int) -> None:
        commit = _commit_of(sink, number, checkpoint)
        last = table.last_commit(sink)
        problem = _contradiction(last, commit)
        if problem:
            raise TableStateError(sink, target, checkpoint, problem)
        if last != commit:
            table.write(rows, commit, last)

    return write


def _commit_of(sink: str, number: int, checkpoint: str) -> Commit:
    read = StreamCheckpoint(checkpoint)
    query = read.query()
    source = read.source_range(query, number) if query is not None else None
    if query is None or source is None:
        raise TableStateError(
            sink, "its table", checkpoint, "the checkpoint cannot be read on the driver's machine"
        )
    return Commit(sink=sink, query=query, batch=number, source=source)


def _contradiction(last: Commit | None, commit: Commit) -> str:
    """Why a batch does not continue what a table has; empty if it does, or is what it has."""
    if last is None:
        return f"the table lacks the batches before {commit.batch}" if commit.batch else ""
    if last.query != commit.query:
        return "another checkpoint wrote the table"
    if last.batch > commit.batch or (last.batch == commit.batch and last.source != commit.source):
        return (
            f"the table has batch {last.batch} already, of other messages: the checkpoint was "
            "copied, or restored from a backup"
        )
    if last.batch < commit.batch - 1:
        return f"the table lacks batches {last.batch + 1} to {commit.batch - 1}"
    if last.batch < commit.batch and last.source.end != commit.source.start:
        return f"batch {commit.batch} does not begin where batch {last.batch} of the table ended"
    return ""
