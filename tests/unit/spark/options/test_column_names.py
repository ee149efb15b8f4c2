"""Names of columns that there are none of."""

from __future__ import annotations

import pytest

from orbitmq.spark.options.column_names import nearest_column

THERE = ["topic", "body", "keys", "queueId", "storeTimestamp"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Body_", "body"),
        ("QUEUEID", "queueId"),
        ("bodyBytes", "body"),
        ("storeTime", "storeTimestamp"),
        # As Kafka's connector has it.
        ("value", "body"),
        ("key", "keys"),
        ("partition", "queueId"),
        ("timestamp", "storeTimestamp"),
        # Kafka has them, and what they mean is not there.
        ("headers", None),
        ("offset", None),
        # Alike by chance.
        ("price", None),
        ("", None),
    ],
)
def test_the_column_that_was_meant(name: str, meant: str | None) -> None:
    assert nearest_column(name, THERE) == meant
