"""Windows and numbers of pulls, adapted to the replies."""

from __future__ import annotations

from orbitmq.client.core.consuming.read_pace import (
    FILTERED_WINDOW_MIN,
    PULLS_MAX,
    WINDOW_MAX,
    ReadPace,
)


def pace(*, is_filtered: bool = False) -> ReadPace:
    return ReadPace(pulls_ahead=4, pull_bytes_max=1000, is_filtered=is_filtered)


def test_one_pull_of_a_full_window_comes_first() -> None:
    assert (pace().window, pace().pulls) == (WINDOW_MAX, 1)


def test_windows_become_as_long_as_replies() -> None:
    learning = pace()

    learning.note(asked=WINDOW_MAX, covered=32, reply_bytes=100)

    assert learning.window == 32


def test_windows_grow_once_replies_have_filled_them_for_a_while() -> None:
    learning = pace()
    learning.note(asked=WINDOW_MAX, covered=32, reply_bytes=100)

    for _ in range(7):
        learning.note(asked=32, covered=32, reply_bytes=100)
    assert learning.window == 32
    learning.note(asked=32, covered=32, reply_bytes=100)
    assert learning.window == 64


def test_the_end_of_a_range_does_not_change_the_window() -> None:
    learning = pace()
    learning.note(asked=WINDOW_MAX, covered=32, reply_bytes=100)

    for _ in range(20):
        learning.note(asked=5, covered=5, reply_bytes=10)

    assert learning.window == 32


def test_small_replies_allow_many_pulls_in_flight_and_large_ones_few() -> None:
    learning = pace()

    learning.note(asked=10, covered=10, reply_bytes=500)
    assert learning.pulls == 8
    learning.note(asked=10, covered=10, reply_bytes=0)
    assert learning.pulls == PULLS_MAX
    learning.note(asked=10, covered=10, reply_bytes=5000)
    assert learning.pulls == 4


def test_a_filter_keeps_windows_as_long_as_brokers_scan() -> None:
    learning = pace(is_filtered=True)

    learning.note(asked=WINDOW_MAX, covered=40, reply_bytes=100)

    assert learning.window == FILTERED_WINDOW_MIN
