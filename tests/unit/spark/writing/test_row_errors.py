"""How errors name rows."""

from __future__ import annotations

import pyarrow as pa

from orbitmq.errors import OrbitError
from orbitmq.spark.writing.delivery_marks import TaskMark
from orbitmq.spark.writing.row_errors import RowRefused, not_sent, refused

TASK = TaskMark(query="c0ffee", batch=12, partition=3, attempt=1)
ROWS = pa.RecordBatch.from_pydict({"topic": ["orders", "payments"], "keys": ["one", "two"]})


def test_a_refused_row_is_named_by_partition_number_topic_and_keys() -> None:
    error = refused(RowRefused(1, "its body is empty", hint="leave it out"), TASK, ROWS, 100)

    assert str(error) == (
        "cannot write row 101 of partition 3 (topic 'payments', keys 'two', batch 12 of query "
        "c0ffee): its body is empty (leave it out)"
    )


def test_rows_that_were_not_stored_are_named_by_their_first() -> None:
    failure = OrbitError("no broker answered", hint="start one")

    error = not_sent(failure, TASK, ROWS, 0, 100, topic="bills", count=3)

    assert str(error) == (
        "could not write row 100 of partition 3 (topic 'bills', keys 'one', batch 12 of query "
        "c0ffee) and 2 rows sent with it: no broker answered (start one)"
    )


def test_a_row_without_topic_and_keys_is_named_by_its_number() -> None:
    rows = pa.RecordBatch.from_pydict({"body": [b"a"]})

    error = not_sent(TimeoutError("late"), TASK, rows, 0, 0, topic="", count=1)

    assert str(error) == ("could not write row 0 of partition 3 (batch 12 of query c0ffee): late")


def test_an_error_shows_the_readable_part_of_a_text() -> None:
    odd = pa.array([b"a\xff"], pa.binary()).view(pa.string())
    rows = pa.RecordBatch.from_pydict({"topic": odd, "keys": odd})

    error = refused(RowRefused(0, "it is odd"), TASK, rows, 0)

    assert "(topic 'a\ufffd', keys 'a\ufffd'," in str(error)
