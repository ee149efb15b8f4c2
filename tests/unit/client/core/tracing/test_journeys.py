"""Journeys: the records about a message, put together in order of time."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.core.tracing.journeys import Journey, Report, Step, StepKind, journeys_of
from orbitmq.client.core.tracing.trace_records import (
    Consumed,
    Decided,
    Delivered,
    Recalled,
    Sent,
    TraceRecord,
)


def sent(**fields: Any) -> Sent:
    return Sent(
        **{
            "time_ms": 10, "region": "r", "group": "shop", "topic": "orders", "message_id": "M",
            "tags": "paid", "keys": "k1 k2", "store_host": "b:1", "body_bytes": 5, "cost_ms": 3,
            "kind": 0, "offset_message_id": "O", "success": True, **fields,
        }
    )  # fmt: skip


def delivered(request_id: str, time_ms: int, **fields: Any) -> Delivered:
    return Delivered(
        **{
            "time_ms": time_ms, "region": "r", "group": "billing", "request_id": request_id,
            "message_id": "M", "retries": 0, "keys": "k1 k2", **fields,
        }
    )  # fmt: skip


def consumed(request_id: str, **fields: Any) -> Consumed:
    return Consumed(
        **{
            "request_id": request_id, "message_id": "M", "cost_ms": 7, "success": True,
            "keys": "", "time_ms": 99, "group": "billing", **fields,
        }
    )  # fmt: skip


def journey(*records: TraceRecord) -> Journey:
    (only,) = journeys_of(Report(record, "10.0.0.9", 1_000) for record in records)
    return only


def test_a_message_is_sent_then_consumed_twice() -> None:
    found = journey(
        consumed("R2"),
        delivered("R1", 20),
        sent(),
        consumed("R1", success=False, code=2),
        delivered("R2", 40, retries=1),
    )

    assert (found.message_id, found.topic, found.tags, found.keys, found.body_bytes) == (
        "M", "orders", "paid", ("k1", "k2"), 5,
    )  # fmt: skip
    assert [(step.time_ms, step.kind, step.retries, step.result) for step in found.steps] == [
        (10, StepKind.SENT, None, "ok"),
        (20, StepKind.CONSUMED, 0, "failed: it raised an exception"),
        (40, StepKind.CONSUMED, 1, "ok"),
    ]


def test_a_step_tells_who_reported_it() -> None:
    from_java, from_go = journey(sent(), sent(time_ms=11, client_host="10.0.0.7")).steps

    assert (from_java.client, from_java.broker, from_java.cost_ms) == ("10.0.0.9", "b:1", 3)
    assert from_go.client == "10.0.0.7"


def test_a_record_that_was_written_twice_is_one_step() -> None:
    assert len(journey(sent(), sent()).steps) == 1


def test_a_consumer_that_never_ended_and_an_end_without_a_begin_are_steps() -> None:
    begun, ended = journey(delivered("R1", 20), consumed("R2", time_ms=0, group="")).steps

    assert (begun.result, begun.cost_ms) == ("no end reported", None)
    # Some versions write no time at the end: when the trace was stored comes close.
    assert (ended.time_ms, ended.result, ended.cost_ms) == (1_000, "ok", 7)


@pytest.mark.parametrize(
    ("record", "kind", "result"),
    [
        (sent(kind=1), StepKind.HALF_SENT, "ok"),
        (sent(kind=3), StepKind.DELAYED, "ok"),
        (sent(kind=77, success=False), StepKind.SENT, "failed"),
        (consumed("R", code=1), StepKind.CONSUMED, "ok, but it took too long"),
        (consumed("R", code=-5, success=False), StepKind.CONSUMED, "failed"),
    ],
)
def test_kinds_and_results_are_named(record: TraceRecord, kind: StepKind, result: str) -> None:
    (step,) = journey(record).steps

    assert (step.kind, step.result) == (kind, result)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("COMMIT_MESSAGE", StepKind.COMMITTED),
        ("ROLLBACK_MESSAGE", StepKind.ROLLED_BACK),
        ("UNKNOW", StepKind.LEFT_OPEN),
    ],
)
def test_a_transaction_shows_how_it_ended(state: str, kind: StepKind) -> None:
    decided = Decided(
        time_ms=11, region="r", group="shop", topic="orders", message_id="M", tags="", keys="",
        store_host="b:1", transaction_id="T", state=state, from_check=True,
    )  # fmt: skip

    half, end = journey(decided, sent(kind=1)).steps

    assert half.kind is StepKind.HALF_SENT
    assert end == Step(
        time_ms=11, kind=kind, group="shop", client="10.0.0.9", broker="b:1", result="after a check"
    )


def test_a_recalled_message_says_so() -> None:
    recalled = Recalled(
        time_ms=12, region="r", group="shop", topic="orders", message_id="M", success=False
    )

    assert [step.kind for step in journey(sent(kind=3), recalled).steps] == [
        StepKind.DELAYED,
        StepKind.RECALLED,
    ]


def test_messages_are_told_apart() -> None:
    found = journeys_of(
        Report(record, "h", 0) for record in (sent(), sent(message_id="N"), delivered("R", 5))
    )

    assert {each.message_id: len(each.steps) for each in found} == {"M": 2, "N": 1}
