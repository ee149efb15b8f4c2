"""The pauses between rounds of rebalancing: short after a rest, growing in a burst."""

from __future__ import annotations

from orbitmq.client.core.consuming.round_pace import RoundPace


def test_balanced_rounds_keep_their_interval() -> None:
    pace = RoundPace(20_000)

    for now_ms in (0, 20_000, 40_000):
        pause = pace.after_round(now_ms, is_balanced=True, was_asked_for=False)
        assert pause.gap_ms + pause.wait_ms == 20_000


def test_rounds_that_follow_one_another_keep_growing_distances_until_a_rest() -> None:
    pace = RoundPace(20_000)

    def gap_ms(now_ms: float) -> float:
        return pace.after_round(now_ms, is_balanced=True, was_asked_for=True).gap_ms

    assert [gap_ms(now_ms) for now_ms in (0, 10, 30, 70, 150, 250)] == [10, 20, 40, 80, 100, 100]
    assert gap_ms(1_250) == 10


def test_a_round_with_something_left_to_do_is_repeated_less_and_less_often() -> None:
    pace = RoundPace(20_000)
    pauses = [
        sum(pace.after_round(second * 1_000, is_balanced=False, was_asked_for=False))
        for second in range(7)
    ]

    assert pauses == [50, 100, 200, 400, 800, 1_000, 1_000]
    assert sum(pace.after_round(8_000, is_balanced=False, was_asked_for=True)) == 50
    assert sum(pace.after_round(9_000, is_balanced=True, was_asked_for=False)) == 20_000
    assert sum(pace.after_round(29_000, is_balanced=False, was_asked_for=False)) == 50


def test_an_interval_shorter_than_the_gap_does_not_wait_on() -> None:
    pace = RoundPace(5)

    assert pace.after_round(0, is_balanced=True, was_asked_for=False) == (10, 0)
