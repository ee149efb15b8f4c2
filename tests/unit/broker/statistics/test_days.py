"""Days: totals at midnight, local time."""

from __future__ import annotations

import datetime

from orbitmq.broker.statistics.samples import Days, Totals

ZONE = datetime.timezone(datetime.timedelta(hours=8))


def _ms(day: int, hour: int, minute: int = 0) -> int:
    return int(datetime.datetime(2026, 3, day, hour, minute, tzinfo=ZONE).timestamp() * 1000)


def test_totals_are_kept_when_a_day_starts_in_local_time() -> None:
    days = Days(_ms(1, 22), zone=ZONE)

    days.note(_ms(1, 23, 59), Totals(puts=5, reads=4))
    assert days.this_morning == Totals()
    days.note(_ms(2, 0), Totals(puts=6, reads=5))
    days.note(_ms(2, 12), Totals(puts=60, reads=50))

    assert days.this_morning == Totals(puts=6, reads=5)
    assert days.yesterday_morning == Totals()

    days.note(_ms(3, 0), Totals(puts=100, reads=90))
    assert days.this_morning == Totals(puts=100, reads=90)
    assert days.yesterday_morning == Totals(puts=6, reads=5)


def test_a_day_that_was_missed_had_no_messages() -> None:
    days = Days(_ms(1, 12), zone=ZONE)

    days.note(_ms(4, 1), Totals(puts=7, reads=7))

    assert days.this_morning == days.yesterday_morning == Totals(puts=7, reads=7)


def test_a_clock_set_back_changes_nothing() -> None:
    days = Days(_ms(2, 12), zone=ZONE)

    days.note(_ms(1, 12), Totals(puts=7, reads=7))
    days.note(_ms(2, 13), Totals(puts=8, reads=8))

    assert days.this_morning == Totals()
