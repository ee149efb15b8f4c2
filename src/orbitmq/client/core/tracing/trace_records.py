"""Trace records: what clients report about a message, in RocketMQ's text format.

A trace message holds records one after the other. The fields of a record are separated by 0x01, and
each record ends with 0x02:

    Pub             a producer has sent a message, or has failed to
    SubBefore       a consumer begins to process a message
    SubAfter        it has ended; both have the same request id
    EndTransaction  a producer has decided a transaction
    Recall          a producer has taken a delayed message back

Compat: versions differ in the last fields. A missing text is the word null: Java drops empty fields
at the end of a record, and then fails to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
# Compat: what clients assume if a message has no region.
USUAL_REGION: Final = "DefaultRegion"
# Far more than clients put into one message; the rest is counted and not read.
RECORDS_MAX: Final = 10_000
BODY_BYTES_MAX: Final = 16 * 1024 * 1024

NORMAL, HALF, COMMIT, DELAYED, ORDERED = range(5)
# How a listener ended, by Java's numbers.
CONSUME_CODES: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")

_NULL: Final = "null"
_SHOWN_CHARACTERS: Final = 80
# More than any version writes.
_FIELDS_MAX: Final = 64
_LONG_MAX: Final = 2**63 - 1


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """Pub: one attempt to send a message."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str
    # Separated by spaces.
    keys: str
    store_host: str
    body_bytes: int
    cost_ms: int
    # One of NORMAL to ORDERED; later versions may have more.
    kind: int
    offset_message_id: str
    success: bool
    client_host: str = ""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """SubBefore: a consumer begins to process a message."""

    time_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str
    client_host: str = ""


class Consumed(msgspec.Struct, frozen=True, kw_only=True):
    """SubAfter: a consumer has processed a message."""

    request_id: str
    message_id: str
    # The time of the call, divided by the number of its messages.
    cost_ms: int
    success: bool
    keys: str
    # An index into CONSUME_CODES.
    code: int = 0
    # Some versions write neither of these.
    time_ms: int = 0
    group: str = ""


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """EndTransaction: a producer has decided a transaction."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str
    keys: str
    store_host: str
    kind: int = COMMIT
    transaction_id: str
    # COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
    state: str
    from_check: bool


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """Recall: a producer has asked for a delayed message back."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    success: bool


TraceRecord = Sent | Delivered | Consumed | Decided | Recalled


@dataclass(frozen=True, slots=True)
class Malformed:
    """A part of a trace message that is no record."""

    reason: str
    # Its beginning.
    text: str


# --- writing --------------------------------------------------------------------------------------


def encode_record(record: TraceRecord) -> str:
    """Encode one record, with its end."""
    match record:
        case Sent():
            fields: Sequence[object] = (
                "Pub", record.time_ms, record.region, record.group, record.topic,
                record.message_id, record.tags, record.keys, record.store_host, record.body_bytes,
                record.cost_ms, record.kind, record.offset_message_id, record.success,
            )  # fmt: skip
        case Delivered():
            fields = (
                "SubBefore", record.time_ms, record.region, record.group, record.request_id,
                record.message_id, record.retries, record.keys,
            )  # fmt: skip
        case Consumed():
            fields = (
                "SubAfter", record.request_id, record.message_id, record.cost_ms, record.success,
                record.keys, record.code, record.time_ms, record.group,
            )  # fmt: skip
        case Decided():
            fields = (
                "EndTransaction", record.time_ms, record.region, record.group, record.topic,
                record.message_id, record.tags, record.keys, record.store_host, record.kind,
                record.transaction_id, record.state, record.from_check,
            )  # fmt: skip
        case Recalled():
            fields = (
                "Recall", record.time_ms, record.region, record.group, record.topic,
                record.message_id, record.success,
            )  # fmt: skip
        case _:
            assert_never(record)
    return FIELD_END.join(map(_field, fields)) + RECORD_END


def _field(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or _NULL


def lookup_keys(record: TraceRecord) -> list[str]:
    """Return what tools find the record by: the id and the keys of its message."""
    keys = [] if isinstance(record, Recalled) else record.keys.split()
    return [record.message_id, *keys]


# --- reading --------------------------------------------------------------------------------------


def decode_records(body: bytes) -> tuple[list[TraceRecord], list[Malformed]]:
    """Decode the body of a trace message; what is no record is returned beside the records."""
    if len(body) > BODY_BYTES_MAX:
        text = body[:_SHOWN_CHARACTERS].decode(errors="replace")
        return [], [Malformed(f"{len(body)} bytes are too many for a trace message", text)]
    parts = body.decode(errors="replace").split(RECORD_END, RECORDS_MAX)
    records: list[TraceRecord] = []
    malformed: list[Malformed] = []
    for part in filter(str.strip, parts[:RECORDS_MAX]):
        try:
            records.append(_decode_record(part.split(FIELD_END, _FIELDS_MAX)))
        except (ValueError, IndexError) as error:
            reason = "it has too few fields" if isinstance(error, IndexError) else str(error)
            malformed.append(Malformed(reason, part[:_SHOWN_CHARACTERS]))
    if len(parts) > RECORDS_MAX and parts[-1]:
        unread = parts[-1].count(RECORD_END)
        reason = f"{unread} records after the first {RECORDS_MAX} were not read"
        malformed.append(Malformed(reason, parts[-1][:_SHOWN_CHARACTERS]))
    return records, malformed


def _decode_record(fields: Sequence[str]) -> TraceRecord:
    decode = _DECODERS.get(fields[0])
    if decode is None:
        raise ValueError(f"its type {fields[0][:20]!r} is unknown")
    return decode(fields)


def _decode_sent(fields: Sequence[str]) -> Sent:
    # Compat: the oldest versions do not write the id that names the place in the log.
    has_offset_id = len(fields) >= 14
    return Sent(
        time_ms=_number(fields[1]),
        region=_text(fields[2]),
        group=_text(fields[3]),
        topic=_text(fields[4]),
        message_id=_text(fields[5]),
        tags=_text(fields[6]),
        keys=_text(fields[7]),
        store_host=_text(fields[8]),
        body_bytes=_number(fields[9]),
        cost_ms=_number(fields[10]),
        kind=_number(fields[11]),
        offset_message_id=_text(fields[12]) if has_offset_id else "",
        success=_flag(fields[13 if has_offset_id else 12]),
        client_host=_text(_last(fields, 14)),
    )


def _decode_delivered(fields: Sequence[str]) -> Delivered:
    return Delivered(
        time_ms=_number(fields[1]),
        region=_text(fields[2]),
        group=_text(fields[3]),
        request_id=_text(fields[4]),
        message_id=_text(fields[5]),
        retries=_number(fields[6]),
        keys=_text(_last(fields, 7)),
        client_host=_text(_last(fields, 8)),
    )


def _decode_consumed(fields: Sequence[str]) -> Consumed:
    return Consumed(
        request_id=_text(fields[1]),
        message_id=_text(fields[2]),
        cost_ms=_number(fields[3]),
        success=_flag(fields[4]),
        keys=_text(_last(fields, 5)),
        code=_number(_last(fields, 6) or "0"),
        time_ms=_number(_last(fields, 7) or "0"),
        group=_text(_last(fields, 8)),
    )


def _decode_decided(fields: Sequence[str]) -> Decided:
    return Decided(
        time_ms=_number(fields[1]),
        region=_text(fields[2]),
        group=_text(fields[3]),
        topic=_text(fields[4]),
        message_id=_text(fields[5]),
        tags=_text(fields[6]),
        keys=_text(fields[7]),
        store_host=_text(fields[8]),
        kind=_number(fields[9]),
        transaction_id=_text(fields[10]),
        state=_text(fields[11]),
        from_check=_flag(fields[12]),
    )


def _decode_recalled(fields: Sequence[str]) -> Recalled:
    return Recalled(
        time_ms=_number(fields[1]),
        region=_text(fields[2]),
        group=_text(fields[3]),
        topic=_text(fields[4]),
        message_id=_text(fields[5]),
        success=_flag(fields[6]),
    )


_DECODERS: Final[dict[str, Callable[[Sequence[str]], TraceRecord]]] = {
    "Pub": _decode_sent,
    "SubBefore": _decode_delivered,
    "SubAfter": _decode_consumed,
    "EndTransaction": _decode_decided,
    "Recall": _decode_recalled,
}


def _last(fields: Sequence[str], index: int) -> str:
    """Return a field that not every version writes."""
    return fields[index] if index < len(fields) else ""


def _text(field: str) -> str:
    return "" if field == _NULL else field


def _number(field: str) -> int:
    if not field.removeprefix("-").isdecimal() or len(field) > 20 or abs(int(field)) > _LONG_MAX:
        raise ValueError(f"{field[:20]!r} is no number")
    return int(field)


def _flag(field: str) -> bool:
    if field.lower() not in {"true", "false"}:
        raise ValueError(f"{field[:20]!r} is neither true nor false")
    return field.lower() == "true"
