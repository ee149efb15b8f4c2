"""Suggestions for misspelt column names."""

from __future__ import annotations

import pytest

from orbitmq.spark.options.column_names import nearest_column

COLUMNS = ["topic", "body", "keys", "queueId", "storeTimestamp"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Body_", "body"),
        ("QUEUEID", "queueId"),
        ("bodyBytes", "body"),
        ("storeTime", "storeTimestamp"),
        # As in Kafka's connector.
        ("value", "body"),
        ("key", "keys"),
        ("partition", "queueId"),
        ("timestamp", "storeTimestamp"),
        # Kafka's names of columns that are not listed.
        ("headers", None),
        ("offset", None),
        # Similar by chance.
        ("price", None),
        ("", None),
    ],
)
def test_the_column_that_was_meant(name: str, meant: str | None) -> None:
    assert nearest_column(name, COLUMNS) == meant
