"""Batches that a broker lost are noticed at the next one, and only those."""

from __future__ import annotations

import pytest

from orbitmq.broker.exactly_once.conflicts import check_decision
from orbitmq.broker.exactly_once.query_states import QueryState
from orbitmq.errors import BatchConflictError
from orbitmq.protocol.requests.staged_writes import BatchDecision, SourceRange


def state(decided: int, source: str = "") -> QueryState:
    return QueryState(query="q", coordinator="broker-a", decided=decided, source=source)


def decision(batch: int, source: SourceRange | None = None) -> BatchDecision:
    return BatchDecision(query="q", batch=batch, parts={}, source=source)


SEVENTH = SourceRange(start="six", end="seven")


@pytest.mark.parametrize(
    ("known", "missing"),
    [(state(5, "five"), "batch 6"), (state(3, "three"), "batches 4 on")],
)
def test_a_batch_after_missing_ones_is_refused_with_advice(known: QueryState, missing: str) -> None:
    with pytest.raises(BatchConflictError, match=f"knows nothing of {missing},") as refused:
        check_decision(known, decision(7, SEVENTH))

    assert "orbitmq query forget q" in str(refused.value.hint)


@pytest.mark.parametrize("known", [state(6, "six"), state(6), state(3), state(-1)])
def test_a_batch_is_accepted_if_none_is_known_to_be_missing(known: QueryState) -> None:
    check_decision(known, decision(7, SEVENTH))
    check_decision(known, decision(7))


def test_a_query_that_the_coordinator_forgot_fails_after_its_first_batch() -> None:
    check_decision(state(-1), decision(4), first_batch=4)

    with pytest.raises(BatchConflictError, match="knows nothing of batch 4,"):
        check_decision(state(-1), decision(5), first_batch=4)
