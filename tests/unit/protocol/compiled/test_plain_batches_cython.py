"""The compiled reader of batches: what it reads equals what the plain one reads."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.protocol import fast_forms, plain_batches
from orbitmq.record.batch import BatchedMessage, encode_batch
from tests.unit.protocol.test_plain_batches import HOST, MARKS, MESSAGES, mutated_batches

pytestmark = pytest.mark.skipif(not fast_forms.IS_COMPILED, reason="there is no compiled form here")


def _compiled(body: bytes, marks: bytes = MARKS) -> object:
    return fast_forms.read_entries(b"before" + body + b"x", 6, 6 + len(body), marks, 12, HOST, 2)


def _plain(body: bytes, marks: bytes = MARKS) -> object:
    return plain_batches.read_entries(body, 0, len(body), marks, 12, HOST, 2)


@pytest.mark.parametrize("marks", [MARKS, b""])
def test_what_clients_write_is_read(marks: bytes) -> None:
    body = encode_batch(MESSAGES)

    read = _compiled(body, marks)

    assert read is not None
    assert read == _plain(body, marks)


@pytest.mark.parametrize(
    "name",
    [
        "DELAY", "TRAN_MSG", "REPLY_TO_CLIENT", "POP_CK", "MSG_REGION", "TRACE_ON", "CLUSTER",
        "TIMER_DELAY_MS", "INNER_NUM", "__RMQ.TRANSIENT.x",
    ],
)  # fmt: skip
def test_special_messages_are_left(name: str) -> None:
    special = BatchedMessage(0, b"m", f"UNIQ_KEY\x01A1\x02{name}\x011\x02".encode())

    assert _compiled(encode_batch([*MESSAGES, special])) is None


def test_an_empty_batch_or_one_that_is_cut_off_anywhere_is_left() -> None:
    body = encode_batch(MESSAGES[:1])

    for end in range(len(body)):
        assert _compiled(body[:end]) is None


def test_a_batch_that_would_keep_others_waiting_is_left() -> None:
    assert _compiled(encode_batch(MESSAGES[:1] * plain_batches.MESSAGES_MAX)) is not None
    assert _compiled(encode_batch(MESSAGES[:1] * (plain_batches.MESSAGES_MAX + 1))) is None


def test_positions_outside_the_chunk_are_left() -> None:
    body = encode_batch(MESSAGES)

    assert fast_forms.read_entries(body, 0, len(body) + 1, MARKS, 12, HOST, 2) is None
    assert fast_forms.read_entries(body, -1, len(body), MARKS, 12, HOST, 2) is None


@pytest.mark.parametrize("seed", range(8))
def test_whatever_it_reads_of_mutated_batches_the_plain_form_reads_alike(seed: int) -> None:
    read = 0
    for body in mutated_batches(seed, 2500):
        found = _compiled(body)
        if found is not None:
            read += 1
            assert found == _plain(body), body

    assert read > 100


def _measured(form: Any, body: bytes) -> object:
    return form.measure_messages(b"before" + body + b"x", 6, 6 + len(body), MARKS)


@pytest.mark.parametrize("seed", range(8, 12))
def test_whatever_it_measures_of_mutated_batches_the_plain_form_measures_alike(seed: int) -> None:
    measured = 0
    for body in mutated_batches(seed, 2500):
        found = _measured(fast_forms, body)
        if found is not None:
            measured += 1
            assert found == _measured(plain_batches, body), body

    assert measured > 100


@pytest.mark.parametrize("value_bytes", range(32767 - 21 - len(MARKS), 32767 - 13 - len(MARKS)))
@pytest.mark.parametrize("end", [b"", b"\x02"])
def test_properties_that_just_fit_are_measured_alike(value_bytes: int, end: bytes) -> None:
    properties = b"UNIQ_KEY\x01A1\x02long\x01" + b"v" * value_bytes + end
    body = encode_batch([BatchedMessage(0, b"m", properties)])

    assert _measured(fast_forms, body) == _measured(plain_batches, body)


def test_what_cannot_be_stored_or_is_too_much_is_not_measured() -> None:
    zero = BatchedMessage(0, b"m", b"UNIQ_KEY\x01A1\x02zero\x01\0\x02")
    message = encode_batch(MESSAGES[:1])

    assert _measured(fast_forms, encode_batch([zero])) is None
    assert _measured(fast_forms, message * plain_batches.MESSAGES_MAX) is not None
    assert _measured(fast_forms, message * (plain_batches.MESSAGES_MAX + 1)) is None
    assert _measured(fast_forms, b"") is None
    for end in range(len(message)):
        assert _measured(fast_forms, message[:end]) is None
    assert fast_forms.measure_messages(message, 0, len(message) + 1, MARKS) is None
    assert fast_forms.measure_messages(message, -1, len(message), MARKS) is None
