"""Moments that people name."""

from __future__ import annotations

import datetime

import pytest

from orbitmq.cli.moments import as_datetime, parse_duration, parse_moment
from orbitmq.errors import SettingsError

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("now", NOW_MS),
        ("1600000000000", 1_600_000_000_000),
        ("30s", NOW_MS - 30_000),
        ("15m", NOW_MS - 900_000),
        ("2h", NOW_MS - 7_200_000),
        ("3d", NOW_MS - 259_200_000),
        ("2023-11-14T22:13:20+00:00", NOW_MS),
    ],
)
def test_a_moment_is_read(text: str, moment_ms: int) -> None:
    assert parse_moment(text, now_ms=NOW_MS) == moment_ms


def test_a_time_without_a_zone_is_of_this_machine_as_mqadmin_writes_it_too() -> None:
    here = datetime.datetime(2026, 1, 31, 12, 30, 0, 250_000).astimezone()  # the point

    for text in ("2026-01-31T12:30:00.250", "2026-01-31#12:30:00:250"):
        assert parse_moment(text, now_ms=NOW_MS) == int(here.timestamp() * 1000)


@pytest.mark.parametrize("text", ["soon", "0001-01-01", "1969-12-30", "99999d", str(2**63)])
def test_what_is_no_time_is_explained(text: str) -> None:
    with pytest.raises(SettingsError, match=f"'{text}' is not a time"):
        parse_moment(text, now_ms=NOW_MS)


def test_a_duration_is_read() -> None:
    read = [parse_duration(text).total_seconds() for text in ("90s", "15m", "2h", "3d")]

    assert read == [90, 900, 7200, 259_200]


@pytest.mark.parametrize("text", ["", "90", "2 h", "-3s", "1w", "now", f"{10**12}d"])
def test_what_is_no_duration_is_explained(text: str) -> None:
    with pytest.raises(SettingsError, match=rf"'{text}' is not a duration \(write 90s, 15m"):
        parse_duration(text)


def test_a_time_is_converted_unless_it_is_beyond_the_calendar() -> None:
    assert as_datetime(NOW_MS + 7) == datetime.datetime(
        2023, 11, 14, 22, 13, 20, 7000, tzinfo=datetime.UTC
    )
    with pytest.raises(SettingsError, match="before the year 10000"):
        as_datetime(2**62)
