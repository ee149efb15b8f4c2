"""Whether the chunk that a killed run was sending may be sent again.

While brokers remember the name of a batch, they write it once, however often it is sent. They forget it
some time after it was written; then a chunk that they wrote looks like one that they never got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from orbitmq.client import Admin
from orbitmq.errors import QueryMissingError, ReplayDoubtError
from orbitmq.pipelines.replaying.sending import write_id
from orbitmq.protocol.requests.staged_writes import BATCH_PREFIX

if TYPE_CHECKING:
    from orbitmq.client.keywords import ClientKeywords
    from orbitmq.pipelines.replaying.state import ReplayState

Choice = Literal["", "send", "skip"]


def settle_doubt(
    state: ReplayState, target: ClientKeywords, choice: Choice, *, now_ms: int
) -> None:
    """Raise ReplayDoubtError if the next chunk may have been sent; or do as the user chose."""
    plan, progress = state.plan, state.progress
    assert plan is not None
    if plan.request.guarantee != "exactly-once" or not progress.needs_proof(now_ms):
        return
    number = progress.chunks
    if _is_known(target, write_id(plan, number)):
        return
    if choice == "skip":
        state.end(0, now_ms)
    elif choice == "send":
        progress.begun_ms = 0
    else:
        days = (now_ms - progress.begun_ms) // (24 * 3_600_000)
        raise ReplayDoubtError(
            f"chunk {number + 1} of {len(plan.chunks)} of replay {plan.id} was being sent {days} "
            f"days ago, and brokers may have forgotten whether it was: "
            f"{plan.chunks[number].messages} messages",
            hint=f"look for them in {plan.request.into}, then give --in-doubt skip if they are "
            "there, or --in-doubt send",
        )


def _is_known(target: ClientKeywords, name: str) -> bool:
    with Admin(**target) as admin:
        try:
            admin.queries.find(f"{BATCH_PREFIX}{name}")
        except QueryMissingError:
            return False
    return True
