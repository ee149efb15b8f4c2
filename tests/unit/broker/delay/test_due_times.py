"""Due times: what is due by its clock, and what is seen too far ahead."""

from __future__ import annotations

from orbitmq.broker.delay.due_times import DueTimes

DELAY_MS = 10_000


def test_an_entry_is_due_at_its_time() -> None:
    times = DueTimes(DELAY_MS)

    times.note(1, 15_000, now_ms=5000, monotonic_ms=0)

    assert not times.is_due(0, 15_000, now_ms=14_999, monotonic_ms=9999)
    assert times.is_due(0, 15_000, now_ms=15_000, monotonic_ms=10_000)


def test_an_entry_too_far_ahead_waits_the_delay_from_when_it_was_seen() -> None:
    times = DueTimes(DELAY_MS)

    times.note(1, 999_000, now_ms=5000, monotonic_ms=70)

    assert not times.is_due(0, 999_000, now_ms=15_000, monotonic_ms=10_069)
    assert times.is_due(0, 999_000, now_ms=15_000, monotonic_ms=10_070)
    assert not times.is_due(1, 999_000, now_ms=15_000, monotonic_ms=10_070)


def test_each_entry_waits_from_its_own_sight_within_a_hundredth_of_the_delay() -> None:
    times = DueTimes(DELAY_MS)

    times.note(1, 999_000, now_ms=0, monotonic_ms=0)
    times.note(2, 999_000, now_ms=99, monotonic_ms=99)  # too soon to be noted apart
    times.note(3, 999_000, now_ms=100, monotonic_ms=100)

    assert times.is_due(0, 999_000, now_ms=10_099, monotonic_ms=10_099)
    assert not times.is_due(1, 999_000, now_ms=10_099, monotonic_ms=10_099)
    assert times.is_due(2, 999_000, now_ms=10_100, monotonic_ms=10_100)


def test_a_clock_that_is_set_right_again_counts() -> None:
    times = DueTimes(DELAY_MS)

    times.note(1, 999_000, now_ms=0, monotonic_ms=0)

    assert times.is_due(0, 999_000, now_ms=999_000, monotonic_ms=1)
