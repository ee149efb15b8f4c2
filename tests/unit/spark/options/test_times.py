"""Times in options of the Spark formats."""

from __future__ import annotations

import json

import pytest

from orbitmq.errors import SettingsError
from orbitmq.spark.options.queue_texts import parse_times
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.options.store_options import StoreOptions
from orbitmq.spark.options.times import time_ms

NOON_MS = 1_769_860_800_000


@pytest.mark.parametrize(
    "text",
    [
        "1769860800000",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00",
        "2026-01-31 12:00",
        "2026-01-31T13:00:00.000+01:00",
        " 2026-01-31T12:00:00.000999 ",
    ],
)
def test_a_time_is_milliseconds_or_iso_in_utc_unless_it_names_a_zone(text: str) -> None:
    assert time_ms(text, name="startingTimestamp") == NOON_MS


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1969-12-31", "9" * 5000, "1.5", "٣"])
def test_anything_else_is_refused_with_both_forms(text: str) -> None:
    with pytest.raises(SettingsError, match=r"startingTimestamp cannot be .*without a zone it"):
        time_ms(text, name="startingTimestamp")


def test_options_of_both_formats_take_iso_times() -> None:
    given = {"startingTimestamp": "2026-01-31T12:00:00", "endingTimestamp": f"{NOON_MS + 1}"}
    topic = {"namesrvAddr": "a:9876", "subscribe": "orders", **given}
    store = {"path": "/data/store", **given}

    for options in (ReadOptions.from_spark(topic), StoreOptions.from_spark(store)):
        assert (options.starting_timestamp, options.ending_timestamp) == (NOON_MS, NOON_MS + 1)
    with pytest.raises(SettingsError, match="endingTimestamp cannot be 'soon'"):
        ReadOptions.from_spark({**topic, "endingTimestamp": "soon"})


def test_each_queue_may_have_an_iso_time() -> None:
    text = json.dumps({"orders": {"broker-a": {"0": "2026-01-31T12:00", "1": 5}}})

    assert sorted(parse_times(text, name="startingOffsetsByTimestamp").values()) == [5, NOON_MS]
