"""Trace records as text: as Java and Go write them, and whatever else arrives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.tracing.trace_messages import batches_of
from orbitmq.client.core.tracing.trace_records import (
    BODY_BYTES_MAX,
    RECORDS_MAX,
    Consumed,
    Decided,
    Delivered,
    Recalled,
    Sent,
    TraceRecord,
    decode_records,
    encode_record,
    lookup_keys,
)

ID = "7F0000010001070DEA4E1A2B3C4D0000"
OFFSET_ID = "7F00000100002A9F0000000000000000"

SENT = Sent(
    time_ms=1_700_000_000_000,
    region="DefaultRegion",
    group="shop",
    topic="orders",
    message_id=ID,
    tags="paid",
    keys="k1 k2",
    store_host="127.0.0.1:10911",
    body_bytes=5,
    cost_ms=3,
    kind=0,
    offset_message_id=OFFSET_ID,
    success=True,
)
DELIVERED = Delivered(
    time_ms=1_700_000_000_005,
    region="DefaultRegion",
    group="billing",
    request_id="R1",
    message_id=ID,
    retries=2,
    keys="k1",
)
CONSUMED = Consumed(
    request_id="R1",
    message_id=ID,
    cost_ms=7,
    success=False,
    keys="k1",
    code=2,
    time_ms=1_700_000_000_012,
    group="billing",
)
DECIDED = Decided(
    time_ms=1_700_000_000_001,
    region="DefaultRegion",
    group="shop",
    topic="orders",
    message_id=ID,
    tags="",
    keys="",
    store_host="127.0.0.1:10911",
    transaction_id=ID,
    state="COMMIT_MESSAGE",
    from_check=True,
)
RECALLED = Recalled(
    time_ms=1_700_000_000_002,
    region="DefaultRegion",
    group="shop",
    topic="orders",
    message_id=ID,
    success=True,
)
ALL: list[TraceRecord] = [SENT, DELIVERED, CONSUMED, DECIDED, RECALLED]


def text(*fields: object) -> bytes:
    return ("\x01".join(map(str, fields)) + "\x02").encode()


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_a_record_is_read_as_it_was_written(record: TraceRecord) -> None:
    assert decode_records(encode_record(record).encode()) == ([record], [])


def test_a_record_has_java_s_fields_in_java_s_order() -> None:
    assert encode_record(SENT).encode() == text(
        "Pub", 1_700_000_000_000, "DefaultRegion", "shop", "orders", ID, "paid", "k1 k2",
        "127.0.0.1:10911", 5, 3, 0, OFFSET_ID, "true",
    )  # fmt: skip
    assert encode_record(DELIVERED).encode() == text(
        "SubBefore", 1_700_000_000_005, "DefaultRegion", "billing", "R1", ID, 2, "k1"
    )
    assert encode_record(CONSUMED).encode() == text(
        "SubAfter", "R1", ID, 7, "false", "k1", 2, 1_700_000_000_012, "billing"
    )
    assert encode_record(DECIDED).encode() == text(
        "EndTransaction", 1_700_000_000_001, "DefaultRegion", "shop", "orders", ID, "null",
        "null", "127.0.0.1:10911", 2, ID, "COMMIT_MESSAGE", "true",
    )  # fmt: skip


def test_no_field_is_empty_since_java_drops_empty_ones_at_the_end() -> None:
    without_keys = Delivered(
        time_ms=1, region="r", group="g", request_id="q", message_id=ID, retries=0, keys=""
    )

    assert encode_record(without_keys).endswith("\x010\x01null\x02")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (  # before 4.5: without the offset message id
            text("Pub", 1, "r", "g", "t", ID, "", "k", "b:1", 5, 3, 0, "true"),
            {"offset_message_id": "", "success": True, "client_host": ""},
        ),
        (  # Go, with its host
            text("Pub", 1, "r", "g", "t", ID, "", "k", "b:1", 5, 3, 3, OFFSET_ID, "false", "::1"),
            {"offset_message_id": OFFSET_ID, "success": False, "client_host": "::1", "kind": 3},
        ),
        (  # Go, with its host
            text("SubBefore", 1, "", "g", "R", ID, 0, "null", "10.0.0.1"),
            {"keys": "", "client_host": "10.0.0.1", "region": ""},
        ),
        (  # old, without a code
            text("SubAfter", "R", ID, 7, "true", "k"),
            {"code": 0, "time_ms": 0, "group": ""},
        ),
        (  # Java's cloud form ends with an empty field
            text("SubAfter", "R", ID, 7, "true", "k", 4, ""),
            {"code": 4, "time_ms": 0, "group": ""},
        ),
    ],
)
def test_the_forms_of_other_versions_are_read(written: bytes, expected: dict[str, Any]) -> None:
    (record,), malformed = decode_records(written)

    assert malformed == []
    assert {name: getattr(record, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (text("Pub", "soon", *SENT.__struct_fields__), "'soon' is no number"),
        (text("Pub", "9" * 30, *range(13)), "'99999999999999999999' is no number"),
        (text("Pub", 2**63, *range(13)), "'9223372036854775808' is no number"),
        (text("Pub", 1, "r"), "it has too few fields"),
        (text("SubAfter", "R", ID, 7, "maybe", "k"), "'maybe' is neither true nor false"),
        (text("Poem", "roses", "are red"), "its type 'Poem' is unknown"),
        (b"\xff\xfe", "its type '\ufffd\ufffd' is unknown"),
    ],
)
def test_what_is_no_record_is_named_and_the_others_are_read(written: bytes, reason: str) -> None:
    records, malformed = decode_records(text("Recall", 1, "r", "g", "t", ID, "true") + written)

    assert len(records) == 1
    assert [each.reason for each in malformed] == [reason]


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(body: bytes) -> None:
    records, malformed = decode_records(body)

    assert len(records) + len(malformed) <= body.count(b"\x02") + 1


def test_a_message_with_too_many_records_is_read_in_part() -> None:
    one = encode_record(RECALLED).encode()

    records, malformed = decode_records(one * (RECORDS_MAX + 5))

    assert len(records) == RECORDS_MAX
    assert [each.reason for each in malformed] == [
        f"5 records after the first {RECORDS_MAX} were not read"
    ]
    assert decode_records(one * RECORDS_MAX)[1] == []


def test_a_huge_message_is_not_read() -> None:
    records, malformed = decode_records(bytes(BODY_BYTES_MAX + 1))

    assert (records, len(malformed)) == ([], 1)


# --- messages -------------------------------------------------------------------------------------


def test_a_message_is_found_by_the_ids_and_keys_of_its_records() -> None:
    (batch,) = batches_of(ALL, count_max=50)

    assert list(batch.keys) == [ID, "k1", "k2"]
    assert decode_records(batch.body) == (ALL, [])


def test_messages_are_bounded_by_count_and_by_keys() -> None:
    long_keys = [
        Sent(**{**_fields(SENT), "message_id": f"{n:032}", "keys": f"{n}-" + "k" * 9_000})
        for n in range(3)
    ]

    assert [batch.count for batch in batches_of(ALL * 3, count_max=4)] == [4, 4, 4, 3]
    assert [batch.count for batch in batches_of(long_keys, count_max=50)] == [1, 1, 1]


def test_a_record_whose_keys_fit_into_no_message_is_found_by_its_id() -> None:
    huge = Sent(**{**_fields(SENT), "keys": " ".join(f"{n:050}" for n in range(600))})

    (batch,) = batches_of([huge], count_max=50)

    assert list(batch.keys) == [ID]
    assert decode_records(batch.body) == ([huge], [])


def test_keys_that_cannot_be_sent_are_left_out() -> None:
    torn = Sent(**{**_fields(SENT), "keys": "good \ud800"})

    (batch,) = batches_of([torn], count_max=50)

    assert list(batch.keys) == [ID, "good"]
    assert lookup_keys(torn) == [ID, "good", "\ud800"]


def _fields(record: Sent) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
