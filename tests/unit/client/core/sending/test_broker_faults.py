"""Which brokers are avoided, and for how long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.sending.broker_faults import SLOW_FROM_MS, BrokerFaults, avoided_ms

MOMENTS = st.floats(min_value=0, max_value=1e6)


@pytest.mark.parametrize(
    ("latency_ms", "pause_ms"),
    [
        (0, 0),
        (549, 0),
        (550, 2000),
        (1799, 2000),
        (1800, 5000),
        (3000, 6000),
        (5000, 10_000),
        (14_999, 10_000),
        (15_000, 30_000),
        (1e9, 30_000),
    ],
)
def test_the_slower_an_answer_the_longer_its_broker_is_avoided(
    latency_ms: float, pause_ms: float
) -> None:
    assert avoided_ms(latency_ms) == pause_ms
    assert (pause_ms > 0) == (latency_ms >= SLOW_FROM_MS)


def test_a_broker_is_avoided_for_ten_seconds_after_a_failed_send() -> None:
    faults = BrokerFaults()

    faults.note_failure("a", 1000)

    assert faults
    assert faults.avoided_until_ms("a", 10_999) == 11_000
    assert faults.avoided_until_ms("a", 11_000) == 0
    assert not faults


def test_a_good_answer_does_not_end_an_earlier_pause() -> None:
    faults = BrokerFaults()
    faults.note_failure("a", 0)

    faults.note("a", 1, 500)
    faults.note("a", 600, 700)

    assert faults.avoided_until_ms("a", 800) == 10_000


def test_no_broker_is_avoided_if_switched_off() -> None:
    faults = BrokerFaults(on=False)

    faults.note_failure("a", 0)

    assert not faults
    assert faults.avoided_until_ms("a", 1) == 0


@given(
    notes=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 40_000), MOMENTS), max_size=20),
    now_ms=MOMENTS,
)
def test_a_broker_is_avoided_until_its_last_pause_is_over(
    notes: list[tuple[str, float, float]], now_ms: float
) -> None:
    faults = BrokerFaults()
    for name, latency_ms, at_ms in sorted(notes, key=lambda note: note[2]):
        faults.note(name, latency_ms, at_ms)

    for name in "abc":
        until_ms = max(
            (
                at + avoided_ms(latency)
                for who, latency, at in notes
                if who == name and avoided_ms(latency)
            ),
            default=0.0,
        )
        assert faults.avoided_until_ms(name, now_ms) == (until_ms if until_ms > now_ms else 0)
