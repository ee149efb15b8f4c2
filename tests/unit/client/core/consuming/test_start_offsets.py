"""Where a group without a committed offset starts."""

from __future__ import annotations

import pytest

from orbitmq.client.core.consuming.start_offsets import StartPoint, start_point
from orbitmq.model.names import retry_topic
from orbitmq.model.subscriptions import (
    FROM_FIRST_OFFSET,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
    ConsumeFrom,
)

RETRY = retry_topic("shippers")


@pytest.mark.parametrize(
    ("topic", "consume_from", "expected"),
    [
        ("orders", FROM_LAST_OFFSET, StartPoint.END),
        ("orders", FROM_FIRST_OFFSET, StartPoint.START),
        ("orders", FROM_TIMESTAMP, StartPoint.TIME),
        (RETRY, FROM_LAST_OFFSET, StartPoint.START),
        (RETRY, FROM_FIRST_OFFSET, StartPoint.START),
        (RETRY, FROM_TIMESTAMP, StartPoint.END),
        ("orders", ConsumeFrom("CONSUME_FROM_MIN_OFFSET"), StartPoint.END),
    ],
)
def test_the_start_depends_on_the_option_and_on_retry_topics(
    topic: str, consume_from: ConsumeFrom, expected: StartPoint
) -> None:
    assert start_point(topic, consume_from) is expected
