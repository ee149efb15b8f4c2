"""Errors about rows that could not be sent: how they name the row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.errors import OrbitError, RowError

if TYPE_CHECKING:
    import pyarrow as pa

    from orbitmq.spark.writing.delivery_marks import TaskMark

# How much of a row's keys an error shows.
_SHOWN_MAX = 100


class RowRefused(Exception):  # noqa: N818  # becomes an error once the row is named
    """A row of a batch that cannot be sent; `refused` makes it an error that names the row."""

    def __init__(self, row: int, reason: str, *, hint: str = "") -> None:
        super().__init__(reason)
        # Its position within the batch.
        self.row = row
        self.reason = reason
        self.hint = hint


def refused(error: RowRefused, task: TaskMark, rows: pa.RecordBatch, sequence: int) -> RowError:
    """Make the error for a row that cannot be sent; `sequence` is that of the batch's first row."""
    named = _named(task, rows, error.row, sequence)
    return RowError(f"cannot write {named}: {error.reason}", hint=error.hint)


def not_sent(  # Perf: never, but each argument is needed to name the row
    error: BaseException,
    task: TaskMark,
    rows: pa.RecordBatch,
    row: int,
    sequence: int,
    *,
    topic: str,
    count: int,
) -> RowError:
    """Make the error for rows that were not stored; `row` is the first of them."""
    named = _named(task, rows, row, sequence, topic=topic)
    others = f" and {count - 1} rows sent with it" if count > 1 else ""
    # The message without the hint, which comes at the end.
    reason = Exception.__str__(error) if isinstance(error, OrbitError) else str(error)
    return RowError(f"could not write {named}{others}: {reason}", hint=getattr(error, "hint", ""))


def _named(
    task: TaskMark, rows: pa.RecordBatch, row: int, sequence: int, *, topic: str = ""
) -> str:
    parts = [f"row {sequence + row} of partition {task.partition}"]
    if not topic and "topic" in rows.schema.names:
        topic = _shown(rows["topic"][row])
    if topic:
        parts.append(f"topic {topic!r}")
    if "keys" in rows.schema.names and (keys := _shown(rows["keys"][row])):
        parts.append(f"keys {keys!r:.{_SHOWN_MAX}}")
    parts.append(f"batch {task.batch} of query {task.query}")
    return f"{parts[0]} ({', '.join(parts[1:])})"


def _shown(value: pa.Scalar) -> str:
    """A text for an error, even if it is not UTF-8; empty for null."""
    try:
        return value.as_py() or ""
    except UnicodeDecodeError:
        return str(value.as_buffer().to_pybytes(), "utf-8", errors="replace")
