"""Tells a repeated batch from another one under the same number.

Spark repeats a batch from the same source offsets after a crash. A checkpoint that was copied, or
restored from a backup, makes other batches under numbers that are decided already: dropping their
rows as repeated would lose them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orbitmq.errors import BatchConflictError

if TYPE_CHECKING:
    from orbitmq.broker.exactly_once.query_states import QueryState
    from orbitmq.protocol.requests.staged_writes import BatchDecision


def check_decision(
    state: QueryState, decision: BatchDecision, first_batch: int | None = None
) -> None:
    """Raise if a decision cannot belong to the run of the query that the state is from.

    Args:
        state: of the query.
        decision: the one that would be next.
        first_batch: the first batch ever decided for the query; None if it is not known.
    """
    # Spark begins a batch when the one before is committed.
    if state.decided < 0 and first_batch is not None and first_batch < decision.batch:
        raise _lost(state, decision, first_batch)
    if decision.batch < state.decided:
        raise _conflict(state, decision, f"batches up to {state.decided} are decided{_when(state)}")
    if decision.batch == state.decided:
        if is_same_source(state, decision) is False:
            raise _conflict(
                state, decision, f"it was decided{_when(state)} for other rows of the source"
            )
        if decision.target != state.target and state.decided_ms:
            raise BatchConflictError(
                f"batch {decision.batch} of query {decision.query!r} was written{_when(state)} to "
                f"{_topic(state.target)}, not {_topic(decision.target)}",
                hint="complete it with the old target, then change the target; or use a new "
                "checkpoint (a new writeId for a batch)",
            )
    elif _follows(state, decision):
        return
    elif decision.batch > state.decided + 1:
        raise _lost(state, decision, state.decided + 1)
    else:
        raise _conflict(
            state,
            decision,
            f"it does not start where batch {state.decided}, decided{_when(state)}, ended",
        )


def is_same_source(state: QueryState, decision: BatchDecision) -> bool | None:
    """Whether a batch ends where the decided one does; None if one of the ends is not known."""
    if not state.source or decision.source is None:
        return None
    return decision.source.end == state.source


def _follows(state: QueryState, decision: BatchDecision) -> bool:
    """Whether a batch starts where the decided one ends, as far as that is known."""
    if not state.source or decision.source is None or not decision.source.start:
        return True
    return decision.source.start == state.source


def _lost(state: QueryState, decision: BatchDecision, first: int) -> BatchConflictError:
    batches = f"batch {first}" if first == decision.batch - 1 else f"batches {first} on"
    return BatchConflictError(
        f"batch {decision.batch} of query {decision.query!r} is not written: the coordinator "
        f"{state.coordinator!r} knows nothing of {batches}, which the query has written. A slave "
        "that did not have them was promoted, or the broker lost its store; or they were written "
        "without exactlyOnce",
        hint="their rows may be missing: compare source and topic, and write what is missing with "
        "a batch write. Then, to go on with this batch: orbitmq query forget "
        f"{state.query} --force",
    )


def _conflict(state: QueryState, decision: BatchDecision, why: str) -> BatchConflictError:
    return BatchConflictError(
        f"batch {decision.batch} of query {decision.query!r} is not written: {why}. Its checkpoint "
        "was copied, or restored from a backup, or another run uses it",
        hint="use one checkpoint per query, and its newest state; or start with a new checkpoint. "
        "To write these rows all the same, though some may be in the topic already: orbitmq query "
        f"forget {state.query}",
    )


def _when(state: QueryState) -> str:
    if not state.decided_ms:
        return ""
    moment = datetime.fromtimestamp(state.decided_ms / 1000, UTC)
    return f" at {moment:%Y-%m-%d %H:%M:%S} UTC"


def _topic(target: str) -> str:
    return f"topic {target!r}" if target else "the topics that its rows name"
