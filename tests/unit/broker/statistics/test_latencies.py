"""Latencies: histograms of durations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.statistics.latencies import Latencies

# What RocketMQ 5.3.3 shows of a minute without messages.
NOTHING = (
    "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 "
    "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
)


def test_the_last_minute_is_shown_and_not_the_current_one() -> None:
    latencies = Latencies()
    latencies.note(0.3)
    latencies.note(9.9)
    latencies.note(10)
    latencies.note(123_456)

    assert latencies.formatted() == NOTHING
    latencies.end_minute()

    assert latencies.formatted() == NOTHING.replace("[<=0ms]:0", "[<=0ms]:1").replace(
        "[0~10ms]:0 [10~50ms]:0", "[0~10ms]:1 [10~50ms]:1"
    ).replace("[10s~]:0", "[10s~]:1")
    latencies.end_minute()
    assert latencies.formatted() == NOTHING


def test_the_longest_is_kept_forever() -> None:
    latencies = Latencies()

    latencies.note(17.8)
    latencies.end_minute()
    latencies.note(3)

    assert latencies.longest_ms == 17


def test_operations_that_took_no_time_are_added_at_the_end_of_the_minute() -> None:
    latencies = Latencies()

    latencies.end_minute(at_once=40)

    assert "[<=0ms]:40 " in latencies.formatted()


def test_a_round_is_spread_over_its_buckets() -> None:
    latencies = Latencies()

    latencies.note_round(longest_ms=19, shortest_ms=0, count=20)
    latencies.end_minute()

    assert latencies.formatted().startswith("[<=0ms]:1 [0~10ms]:9 [10~50ms]:10 ")


@given(
    st.floats(min_value=0, max_value=20_000),
    st.floats(min_value=0, max_value=20_000),
    st.integers(min_value=1, max_value=10_000),
)
def test_a_round_counts_each_operation_once(one: float, other: float, count: int) -> None:
    latencies = Latencies()

    latencies.note_round(max(one, other), min(one, other), count)

    assert latencies.count == count


def test_percentiles_are_within_their_bucket() -> None:
    latencies = Latencies()
    for took_ms in [5] * 990 + [150] * 10:
        latencies.note(took_ms)
    latencies.end_minute()

    assert 5 <= latencies.percentile_ms(0.99) <= 6
    assert 150 <= latencies.percentile_ms(0.999) <= 160
    assert Latencies().percentile_ms(0.99) == 0
