"""The compiled reader of batches: what it reads equals what the plain one reads."""

from __future__ import annotations

import pytest

from orbitmq.protocol import hot_path, plain_batches
from orbitmq.record.batch import BatchedMessage, encode_batch
from tests.unit.protocol.test_plain_batches import HOST, MARKS, MESSAGES, mutated_batches

pytestmark = pytest.mark.skipif(not hot_path.IS_COMPILED, reason="there is no compiled form here")


def _compiled(body: bytes, marks: bytes = MARKS) -> object:
    return hot_path.read_entries(b"before" + body + b"x", 6, 6 + len(body), marks, 12, HOST, 2)


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
    assert _compiled(encode_batch(MESSAGES[:1] * plain_batches.ENTRIES_MAX)) is not None
    assert _compiled(encode_batch(MESSAGES[:1] * (plain_batches.ENTRIES_MAX + 1))) is None


def test_positions_outside_the_chunk_are_left() -> None:
    body = encode_batch(MESSAGES)

    assert hot_path.read_entries(body, 0, len(body) + 1, MARKS, 12, HOST, 2) is None
    assert hot_path.read_entries(body, -1, len(body), MARKS, 12, HOST, 2) is None


@pytest.mark.parametrize("seed", range(8))
def test_whatever_it_reads_of_mutated_batches_the_plain_form_reads_alike(seed: int) -> None:
    read = 0
    for body in mutated_batches(seed, 2500):
        found = _compiled(body)
        if found is not None:
            read += 1
            assert found == _plain(body), body

    assert read > 100
