"""Journeys: the steps of a message, put together from the trace records about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from orbitmq.client.core.tracing.trace_records import (
    CONSUME_CODES,
    DELAYED,
    HALF,
    Consumed,
    Decided,
    Delivered,
    Recalled,
    Sent,
    TraceRecord,
)


class StepKind(Enum):
    """What happened to a message."""

    SENT = "sent"
    HALF_SENT = "half sent"
    DELAYED = "sent with a delay"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    LEFT_OPEN = "left open"
    CONSUMED = "consumed"
    RECALLED = "recalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a message."""

    time_ms: int
    kind: StepKind
    group: str
    # The host of the client that reports the step.
    client: str
    # The address of the broker, as far as producers report it.
    broker: str = ""
    cost_ms: int | None = None
    # Of a message that is consumed: how often it was delivered before.
    retries: int | None = None
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """All that traces tell about one message."""

    message_id: str
    topic: str = ""
    tags: str = ""
    keys: tuple[str, ...] = ()
    offset_message_id: str = ""
    body_bytes: int | None = None
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A record, and the client whose trace message held it."""

    record: TraceRecord
    client: str
    # When its trace message was stored, for records without a time.
    stored_ms: int


_SENT_KINDS: Final = {HALF: StepKind.HALF_SENT, DELAYED: StepKind.DELAYED}
_DECIDED_KINDS: Final = {
    "COMMIT_MESSAGE": StepKind.COMMITTED,
    "ROLLBACK_MESSAGE": StepKind.ROLLED_BACK,
}
_OK: Final = "ok"
_FAILED: Final = "failed"
# Why a listener was not done, by the code of the record.
_CONSUME_RESULTS: Final = {
    "TIME_OUT": "took too long",
    "EXCEPTION": "raised an exception",
    "RETURNNULL": "returned null",
}


def journeys_of(reports: Iterable[Report]) -> list[Journey]:
    """Put records together by message; a record that was written twice counts once."""
    by_message: dict[str, dict[TraceRecord, Report]] = {}
    for report in reports:
        by_message.setdefault(report.record.message_id, {}).setdefault(report.record, report)
    return [_journey(message_id, list(about.values())) for message_id, about in by_message.items()]


def matches(record: TraceRecord, id_or_key: str) -> bool:
    """Whether a record is about a message with this id or key."""
    keys = () if isinstance(record, Recalled) else record.keys.split()
    return id_or_key == record.message_id or id_or_key in keys


def _journey(message_id: str, reports: list[Report]) -> Journey:
    journey = Journey(message_id=message_id, steps=tuple(_steps(reports)))
    for report in reports:
        record = report.record
        if isinstance(record, Recalled):
            journey = replace(journey, topic=journey.topic or record.topic)
            continue
        journey = replace(journey, keys=journey.keys or tuple(record.keys.split()))
        if isinstance(record, Sent | Decided):
            journey = replace(
                journey, topic=journey.topic or record.topic, tags=journey.tags or record.tags
            )
        if isinstance(record, Sent):
            journey = replace(
                journey,
                offset_message_id=journey.offset_message_id or record.offset_message_id,
                body_bytes=record.body_bytes,
            )
    return journey


def _steps(reports: list[Report]) -> list[Step]:
    """Make the steps, in order of time; the begin and the end of consuming are one step."""
    begins: dict[str, Report] = {}
    ends: dict[str, Report] = {}
    steps: list[Step] = []
    for report in reports:
        match report.record:
            case Sent() as record:
                steps.append(_sent(record, report.client))
            case Decided() as record:
                steps.append(_decided(record, report.client))
            case Recalled() as record:
                steps.append(_recalled(record, report.client))
            case Delivered() as record:
                begins[record.request_id] = report
            case Consumed() as record:
                ends[record.request_id] = report
    steps += [
        _consumed(begins.get(request_id), ends.get(request_id)) for request_id in begins | ends
    ]
    return sorted(steps, key=lambda step: step.time_ms)


def _sent(record: Sent, client: str) -> Step:
    return Step(
        time_ms=record.time_ms,
        kind=_SENT_KINDS.get(record.kind, StepKind.SENT),
        group=record.group,
        client=record.client_host or client,
        broker=record.store_host,
        cost_ms=record.cost_ms,
        result=_OK if record.success else _FAILED,
    )


def _decided(record: Decided, client: str) -> Step:
    return Step(
        time_ms=record.time_ms,
        kind=_DECIDED_KINDS.get(record.state, StepKind.LEFT_OPEN),
        group=record.group,
        client=client,
        broker=record.store_host,
        result="after a check" if record.from_check else _OK,
    )


def _recalled(record: Recalled, client: str) -> Step:
    return Step(
        time_ms=record.time_ms,
        kind=StepKind.RECALLED,
        group=record.group,
        client=client,
        result=_OK if record.success else _FAILED,
    )


def _consumed(begin: Report | None, end: Report | None) -> Step:
    before = begin.record if begin is not None else None
    after = end.record if end is not None else None
    assert before is None or isinstance(before, Delivered)
    assert after is None or isinstance(after, Consumed)
    report = begin or end
    assert report is not None
    return Step(
        time_ms=(before.time_ms if before else 0) or (after.time_ms if after else 0)
        or report.stored_ms,
        kind=StepKind.CONSUMED,
        group=(before.group if before else "") or (after.group if after else ""),
        client=(before.client_host if before else "") or report.client,
        cost_ms=after.cost_ms if after else None,
        retries=before.retries if before else None,
        result=_consume_result(after),
    )  # fmt: skip


def _consume_result(after: Consumed | None) -> str:
    if after is None:
        return "no end reported"
    name = CONSUME_CODES[after.code] if after.code in range(len(CONSUME_CODES)) else ""
    reason = _CONSUME_RESULTS.get(name, "")
    if after.success:
        return f"{_OK}, but it {reason}" if reason else _OK
    return f"{_FAILED}: it {reason}" if reason else _FAILED
