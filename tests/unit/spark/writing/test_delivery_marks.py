"""Delivery marks: formatted and parsed."""

from __future__ import annotations

import pytest

from orbitmq.errors import MessageError
from orbitmq.spark.writing.delivery_marks import DeliveryMark, TaskMark


def test_a_mark_survives_a_round_trip() -> None:
    task = TaskMark(query="c0ffee", batch=12, partition=3, attempt=1)

    mark = DeliveryMark.parse(f"{task.prefix}42")

    assert str(mark) == "c0ffee/12/3/1/42"
    assert (mark.query, mark.batch, mark.partition, mark.attempt, mark.sequence) == (
        "c0ffee",
        12,
        3,
        1,
        42,
    )


def test_the_row_of_a_mark_is_the_same_in_another_attempt() -> None:
    first, second = (DeliveryMark.parse(f"q/1/2/{attempt}/7") for attempt in (0, 1))

    assert first != second
    assert first.row == second.row


@pytest.mark.parametrize("text", ["", "q/1/2/3", "q/1/2/3/4/5", "q/1/2/3/-4", "q/a/2/3/4"])
def test_a_malformed_mark_is_refused(text: str) -> None:
    with pytest.raises(MessageError, match="query/batch/partition/attempt/sequence"):
        DeliveryMark.parse(text)
