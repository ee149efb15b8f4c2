"""Requests of staged writes, as they travel."""

from __future__ import annotations

import msgspec

from orbitmq.protocol.codes import OWN_CODES
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.staged_writes import (
    AppointCoordinator,
    DecideWrites,
    Decision,
    MoveRows,
    Part,
    StageRows,
)


def test_rows_are_staged_under_the_fields_of_a_send_and_two_more() -> None:
    header = StageRows(
        producer_group="spark",
        topic="orders",
        template_topic="TBW102",
        template_queues=4,
        queue_id=3,
        system_flag=0,
        born_timestamp_ms=Long(17),
        flag=0,
        write_id="a" * 32,
        first_sequence=Long(2**40),
    )

    fields = header.encode()

    assert fields["writeId"] == "a" * 32
    assert fields["firstSequence"] == str(2**40)
    assert fields["topic"] == "orders"
    assert StageRows.decode(fields) == header


def test_a_decision_reads_back_as_it_was_written() -> None:
    parts = {"broker-a": Part(writes={"a" * 32: 5}, start=1, end=2**40)}
    decision = Decision(query="q", batch=3, parts=parts)

    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


def test_their_codes_are_our_own() -> None:
    for header in (StageRows, DecideWrites, AppointCoordinator, MoveRows):
        assert header.CODE in OWN_CODES
