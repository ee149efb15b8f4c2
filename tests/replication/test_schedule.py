"""Schedules are chosen by their seed, and every fault has its end."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.replication.schedule import (
    AT_ONCE,
    LAGS,
    OF_SERVERS,
    Fate,
    Fault,
    Kind,
    promotions,
    schedule,
)

SERVERS = ["a-0", "a-1"]
LINKS = ["clients to a-0", "a-1 to a-0's log"]
SPAN_MS = 6_000


def _schedule(seed: int) -> list[Fault]:
    return schedule(seed, servers=SERVERS, links=LINKS, span_ms=SPAN_MS)


def test_a_seed_chooses_the_same_faults_each_time() -> None:
    assert _schedule(7) == _schedule(7)
    assert _schedule(7) != _schedule(8)


def test_seeds_choose_every_kind_of_fault() -> None:
    kinds = Counter(fault.kind for seed in range(100) for fault in _schedule(seed))

    assert set(kinds) == set(Kind)


def test_seeds_choose_every_kind_of_promotion() -> None:
    chosen = [
        plan
        for seed in range(200)
        for plan in promotions(seed, brokers=["a", "b"], span_ms=SPAN_MS)
    ]

    assert {plan.broker for plan in chosen} == {"a", "b"}
    assert {(plan.fate, plan.lag) for plan in chosen} == {
        (fate, lag) for fate in Fate for lag in (None, *LAGS)
    }
    assert chosen[:2] == promotions(0, brokers=["a", "b"], span_ms=SPAN_MS)


@given(st.integers(0, 2**32))
def test_faults_end_with_the_schedule_and_hit_one_subject_at_a_time(seed: int) -> None:
    busy_until: Counter[str] = Counter()
    for fault in _schedule(seed):
        assert (fault.subject in SERVERS) == (fault.kind in OF_SERVERS)
        assert (fault.lasts_ms == 0) == (fault.kind in AT_ONCE)
        assert busy_until[fault.subject] <= fault.at_ms
        assert fault.at_ms + fault.lasts_ms <= SPAN_MS
        busy_until[fault.subject] = fault.at_ms + fault.lasts_ms
