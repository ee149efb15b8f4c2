"""Which exactly-once batches a promotion would undo, from what brokers know of queries."""

from __future__ import annotations

from orbitmq.client.aio.admin.undone_batches import UndoneBatches, undone_batches
from orbitmq.protocol.requests.staged_writes import Confirmed, QuerySummary

GROUP = "broker-a"


def state(
    coordinator: str, *, batch: int = -1, decided: int = -1, target: str = ""
) -> QuerySummary:
    return QuerySummary(
        query="q", coordinator=coordinator, batch=batch, decided=decided, target=target
    )


def confirming(batch: int) -> QuerySummary:
    """What a coordinator knows whose batches the group has rows of."""
    confirmed = {GROUP: Confirmed(batch, "d"), "broker-c": Confirmed(9, "d")}
    return QuerySummary(query="q", coordinator="broker-b", decided=9, confirmed=confirmed)


def test_a_coordinator_knows_which_batches_the_group_has_confirmed() -> None:
    here = [state("broker-b", batch=3, target="orders")]

    found = undone_batches(GROUP, here, {"broker-b": [confirming(5)]}, {})

    assert found == [UndoneBatches(query="q", kept=3, last=5, known_by="broker-b", target="orders")]


def test_a_query_that_the_slave_never_heard_of_is_undone_from_its_first_batch() -> None:
    (found,) = undone_batches(GROUP, [], {"broker-b": [confirming(0)]}, {})

    assert (found.kept, found.last) == (-1, 0)


def test_rows_elsewhere_tell_of_a_decision_that_the_slave_lacks() -> None:
    here = [state(GROUP, batch=-1, decided=6)]

    (found,) = undone_batches(GROUP, here, {"broker-b": [state(GROUP, batch=7)]}, {})

    assert (found.kept, found.last, found.known_by) == (6, 7, "broker-b")


def test_nothing_is_undone_if_the_slave_has_what_others_know() -> None:
    here = [state("broker-b", batch=5)]
    elsewhere = {"broker-b": [confirming(5)], "broker-c": [state("broker-b", batch=9)]}

    assert undone_batches(GROUP, here, elsewhere, {"10.0.0.1:1": here}) == []


def test_the_one_who_knows_of_the_newest_batch_is_named() -> None:
    beyond = {"10.0.0.1:1": [state("broker-b", batch=8)]}

    (found,) = undone_batches(GROUP, [], {"broker-b": [confirming(5)]}, beyond)

    assert (found.last, found.known_by) == (8, "10.0.0.1:1")
