"""Batches of messages in one body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import MessageError, ProtocolError
from orbitmq.record.batch import BatchedMessage, decode_batch, encode_batch
from tests.unit.record.sample_records import INT_32

KNOWN = BatchedMessage(0, b"hi", b"TAGS\x01TagA\x02")
KNOWN_BYTES = bytes.fromhex(
    "00000022 00000000 00000000 00000000 00000002 6869 000a 54414753015461674102"
)
MESSAGES = st.builds(BatchedMessage, INT_32, st.binary(max_size=50), st.binary(max_size=50))


def test_the_known_batch_is_written_and_read_byte_for_byte() -> None:
    assert encode_batch([KNOWN]) == KNOWN_BYTES
    assert decode_batch(KNOWN_BYTES) == [KNOWN]


@given(st.lists(MESSAGES, max_size=6))
def test_messages_survive_a_round_trip(messages: list[BatchedMessage]) -> None:
    assert decode_batch(encode_batch(messages)) == messages


def test_the_largest_properties_fit() -> None:
    large = BatchedMessage(0, b"", b"p" * 32767)

    assert decode_batch(encode_batch([large])) == [large]


@pytest.mark.parametrize(
    "message",
    [
        BatchedMessage(0, b"", b"p" * 32768),
        BatchedMessage(2**31, b"", b""),
    ],
)
def test_what_does_not_fit_is_refused(message: BatchedMessage) -> None:
    with pytest.raises(MessageError, match="do not fit a batch"):
        encode_batch([message])


def test_a_batch_cut_off_anywhere_is_refused() -> None:
    for end in range(1, len(KNOWN_BYTES)):
        with pytest.raises(ProtocolError):
            decode_batch(KNOWN_BYTES + KNOWN_BYTES[:end])


def test_a_changed_byte_raises_a_protocol_error_or_nothing() -> None:
    batch = KNOWN_BYTES * 2
    for at in range(len(batch)):
        for value in range(256):
            changed = batch[:at] + bytes([value]) + batch[at + 1 :]
            try:
                messages = decode_batch(changed)
            except ProtocolError:
                continue
            assert [len(message.body) for message in messages] == [2, 2]


@given(st.binary(max_size=120))
def test_any_bytes_are_a_batch_or_a_protocol_error(batch: bytes) -> None:
    try:
        messages = decode_batch(batch)
    except ProtocolError:
        return
    size = sum(22 + len(message.body) + len(message.properties) for message in messages)
    assert size == len(batch)
