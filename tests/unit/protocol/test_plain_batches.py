"""Plain batches: what counts as one, and what is read of it."""

from __future__ import annotations

import random

import pytest

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.plain_batches import (
    MESSAGES_MAX,
    PlainBatch,
    measure_messages,
    read_entries,
    read_plain_batch,
)
from orbitmq.record.batch import BatchedMessage, encode_batch
from tests.unit.protocol.test_plain_sends import LONG, SHORT, frame

MARKS = b"MSG_REGION\x01r\x02"
HOST = bytes(8)
HEADER = {**SHORT, "f": "0", "i": "WAIT\x01true\x02", "j": "2", "m": "true"}
LONG_HEADER = {**LONG, "sysFlag": "0", "properties": "WAIT\x01true\x02", "reconsumeTimes": "2",
    "batch": "true"}  # fmt: skip
MESSAGES = [
    BatchedMessage(-7, b"one", b"UNIQ_KEY\x01A1\x02TAGS\x01a\x02WAIT\x01true\x02"),
    BatchedMessage(0, b"", b"UNIQ_KEY\x01A2\x02n\xc3\xa4me\x01\xe5\x80\xbc"),
    BatchedMessage(2**31 - 1, b"x" * 300, b"KEYS\x01k1 k2\x02UNIQ_KEY\x01A3"),
]


def batch_frame(
    fields: dict[str, str] = HEADER,
    *,
    code: int = RequestCode.SEND_BATCH_MESSAGE,
    encoding: Encoding = Encoding.JSON,
) -> bytes:
    return frame(fields, code=code, body=encode_batch(MESSAGES), encoding=encoding)


def read(content: bytes) -> PlainBatch | None:
    return read_plain_batch(b"before" + content, 6, 6 + len(content))


def entries(body: bytes) -> object:
    return read_entries(b"before" + body + b"after", 6, 6 + len(body), MARKS, 12, HOST, 2)


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(
    ("code", "fields"), [(320, HEADER), (310, HEADER), (10, LONG_HEADER)], ids=str
)
def test_the_header_of_a_plain_batch_is_read(
    encoding: Encoding, code: int, fields: dict[str, str]
) -> None:
    content = batch_frame(fields, code=code, encoding=encoding)

    assert read(content) == PlainBatch(
        topic=b"orders",
        queue_id=3,
        born_ms=1_700_000_000_000,
        reconsume_times=2,
        waits=True,
        body_start=6 + len(content) - len(encode_batch(MESSAGES)),
        opaque=77,
        command_flag=0,
        encoding=encoding,
    )


@pytest.mark.parametrize(
    ("properties", "waits"),
    [("", True), ("WAIT\x01false\x02", False), ("a\x01b\x02WAIT\x01false", False)],
)
def test_the_header_alone_says_whether_the_answer_waits(properties: str, waits: bool) -> None:  # noqa: FBT001  # a row of the table
    batch = read(batch_frame({**HEADER, "i": properties}))

    assert batch is not None
    assert batch.waits is waits


@pytest.mark.parametrize(
    "odd",
    [
        {**HEADER, "m": "false"},
        {**HEADER, "f": "1"},
        {**HEADER, "f": "8"},
        {**HEADER, "i": "WAIT\x01TRUE\x02"},
        {**HEADER, "i": "WAIT\x01true\x02WAIT\x01false\x02"},
        {**HEADER, "e": "x"},
    ],
)
def test_what_is_compressed_odd_or_no_batch_is_left(odd: dict[str, str]) -> None:
    assert read(batch_frame(odd)) is None


def test_a_batch_without_a_body_is_left() -> None:
    assert read(frame(HEADER, body=b"")) is None


def test_messages_are_read_as_they_are_appended() -> None:
    assert entries(encode_batch(MESSAGES)) == [
        (b"one", MESSAGES[0].properties + MARKS, -7, 0, 12, HOST, 2, 0),
        (b"", MESSAGES[1].properties + b"\x02" + MARKS, 0, 0, 12, HOST, 2, 0),
        (b"x" * 300, MESSAGES[2].properties + b"\x02" + MARKS, 2**31 - 1, 0, 12, HOST, 2, 0),
    ]


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"TAGS\x01a\x02",
        b"UNIQ_KEY\x01A1\x02DELAY\x013\x02",
        b"UNIQ_KEY\x01A1\x02CLUSTER\x01c\x02",
    ],
)
def test_one_special_message_makes_the_batch_special(properties: bytes) -> None:
    special = BatchedMessage(0, b"special", properties)

    assert entries(encode_batch([*MESSAGES, special])) is None


def test_a_batch_that_would_keep_others_waiting_is_left() -> None:
    assert entries(encode_batch(MESSAGES[:1] * MESSAGES_MAX)) is not None
    assert entries(encode_batch(MESSAGES[:1] * (MESSAGES_MAX + 1))) is None


def test_an_empty_or_damaged_batch_is_left() -> None:
    body = encode_batch(MESSAGES)

    assert entries(b"") is None
    assert entries(body[:-1]) is None
    assert entries(body + b"\0") is None


def measured(body: bytes) -> object:
    return measure_messages(b"before" + body + b"after", 6, 6 + len(body), MARKS)


def test_what_messages_take_in_records_is_measured() -> None:
    read = read_entries(encode_batch(MESSAGES), 0, len(encode_batch(MESSAGES)), MARKS, 12, HOST, 2)

    assert read is not None
    whole_bytes = sum(len(body) + len(properties) for body, properties, *_ in read)
    assert measured(encode_batch(MESSAGES)) == (3, whole_bytes)


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"UNIQ_KEY\x01A1\x02DELAY\x013\x02",
        b"UNIQ_KEY\x01A1\x02zero\x01\0\x02",
        b"UNIQ_KEY\x01A1\x02long\x01" + b"v" * (32767 - 16 - len(MARKS)),
    ],
)
def test_what_is_special_or_cannot_be_stored_is_not_measured(properties: bytes) -> None:
    special = BatchedMessage(0, b"special", properties)

    assert measured(encode_batch([*MESSAGES, special])) is None


def test_properties_that_just_fit_are_measured() -> None:
    properties = b"UNIQ_KEY\x01A1\x02long\x01" + b"v" * (32767 - 18 - len(MARKS))

    assert measured(encode_batch([BatchedMessage(0, b"", properties)])) == (1, 32767)


def test_an_empty_damaged_or_very_large_batch_is_not_measured() -> None:
    body = encode_batch(MESSAGES)

    assert measured(b"") is None
    assert measured(body[:-1]) is None
    assert measured(body + b"\0") is None
    assert measured(encode_batch(MESSAGES[:1] * MESSAGES_MAX)) is not None
    assert measured(encode_batch(MESSAGES[:1] * (MESSAGES_MAX + 1))) is None


def mutated_batches(seed: int, count: int) -> list[bytes]:
    """Bodies of batches, some of them with bytes changed, cut or doubled."""
    chance = random.Random(seed)
    bodies: list[bytes] = []
    for _ in range(count):
        content = bytearray(encode_batch(chance.choices(MESSAGES, k=chance.randrange(1, 4))))
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(content))
            match chance.randrange(4):
                case 0:
                    content[at] = chance.randrange(256)
                case 1:
                    content[at] = chance.choice(b"\x00\x01\x02\x7f\x80\xff")
                case 2:
                    del content[at]
                case _:
                    content.insert(at, chance.choice(b"\x00\x01\x02A"))
        bodies.append(bytes(content))
    return bodies
