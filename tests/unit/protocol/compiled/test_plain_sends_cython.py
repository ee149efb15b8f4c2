"""The compiled reader of sends: what it reads, and what it leaves to the ordinary form.

That both do the same is the business of tests/unit/broker/test_fast_and_ordinary_sends.py.
"""

from __future__ import annotations

import pytest

from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.plain_sends import BATCH_MESSAGES_MAX, PlainBatch, PlainSend
from orbitmq.record.batch import BatchedMessage, encode_batch
from tests.unit.protocol.send_spellings import (
    FIELDS,
    MESSAGES,
    PROPERTIES,
    Spelling,
    batch_fields,
    like_java,
    like_java_in_binary,
    like_node,
)

read_send = pytest.importorskip(
    "orbitmq.protocol.compiled.plain_sends_cython", reason="not compiled", exc_type=ImportError
).read_send

BROKER_PROPERTIES = b"MSG_REGION\x01r\x02"
BOTH_FORMS = pytest.mark.parametrize("client", [like_java, like_java_in_binary])


def read(frame: bytes) -> PlainSend | PlainBatch | None:
    found: PlainSend | PlainBatch | None = read_send(
        b"before" + frame + b"behind", 6, 6 + len(frame), BROKER_PROPERTIES
    )
    return found


def read_one(client: Spelling = like_java, code: int = 310, **changes: str) -> PlainSend | None:
    send = read(client(code, {**FIELDS, **changes}, b"hello"))
    assert send is None or isinstance(send, PlainSend)
    return send


def read_batch(*messages: BatchedMessage, **changes: str) -> PlainBatch | None:
    body = encode_batch([*(messages or MESSAGES)])
    batch = read(like_java(320, batch_fields(**changes), body))
    assert batch is None or isinstance(batch, PlainBatch)
    return batch


def message(properties: bytes, body: bytes = b"m") -> BatchedMessage:
    return BatchedMessage(0, body, properties)


# --- one message -----------------------------------------------------------------------------------


@BOTH_FORMS
@pytest.mark.parametrize("code", [10, 310])
def test_a_plain_send_is_read_with_all_that_is_stored(client: Spelling, code: int) -> None:
    assert read_one(client, code, sysFlag="1") == PlainSend(
        topic=b"orders",
        queue_id=1,
        system_flag=1,
        born_ms=1_700_000_000_000,
        flag=-7,
        reconsume_times=0,
        properties=PROPERTIES.encode() + BROKER_PROPERTIES,
        unique_id=b"7F0001",
        waits=True,
        body=b"hello",
        opaque=77,
        command_flag=0,
        encoding=Encoding.BINARY if client is like_java_in_binary else Encoding.JSON,
    )


def test_a_missing_separator_is_added_before_the_properties_of_the_broker() -> None:
    send = read_one(properties="UNIQ_KEY\x01A1")

    assert send is not None
    assert send.properties == b"UNIQ_KEY\x01A1\x02" + BROKER_PROPERTIES


def test_a_producer_may_choose_not_to_wait() -> None:
    send = read_one(properties="WAIT\x01false\x02UNIQ_KEY\x01A1\x02")

    assert send is not None
    assert not send.waits


@pytest.mark.parametrize(
    "properties",
    [
        "",
        "TAGS\x01a\x02",
        "UNIQ_KEY\x01with space\x02",
        "UNIQ_KEY\x01A1\x02UNIQ_KEY\x01A2\x02",
        "UNIQ_KEY\x01A1\x02WAIT\x01maybe\x02",
        "UNIQ_KEY\x01A1\x02WAIT\x01true\x02WAIT\x01false\x02",
        "UNIQ_KEY\x01A1\x02twice\x011\x02twice\x012\x02",
        "UNIQ_KEY\x01A1\x02empty\x01\x02",
        "UNIQ_KEY\x01A1\x02\x01nameless\x02",
        "UNIQ_KEY\x01A1\x02a\x01b\x01c\x02",
        "UNIQ_KEY\x01A1\x02" + "".join(f"n{number}\x011\x02" for number in range(64)),
        *(
            f"UNIQ_KEY\x01A1\x02{name}\x011\x02"
            for name in (
                "DELAY", "TRAN_MSG", "POP_CK", "MSG_REGION", "TRACE_ON",
                "CLUSTER", "TIMER_DELAY_MS", "INNER_NUM", "__RMQ.TRANSIENT.x",
            )
        ),
    ],
)  # fmt: skip
def test_special_and_unusual_properties_are_left(properties: str) -> None:
    assert read_one(properties=properties) is None


def test_a_name_that_only_looks_special_is_not() -> None:
    properties = "UNIQ_KEY\x01A1\x02MY_DELAY\x011\x02DELAYED\x011\x02x\x01TRAN_MSG\x02"

    assert read_one(properties=properties) is not None


@BOTH_FORMS
@pytest.mark.parametrize(
    "changes",
    [
        {"sysFlag": "4"},
        {"sysFlag": "-1"},
        {"queueId": "-1"},
        {"queueId": "x"},
        {"queueId": "01"},
        {"queueId": str(2**31)},
        {"bornTimestamp": "9" * 19},
        {"flag": "1.0"},
        {"reconsumeTimes": "-1"},
        {"maxReconsumeTimes": "many"},
        {"defaultTopicQueueNums": "four"},
        {"batch": "TRUE"},
    ],
    ids=str,
)
def test_unusual_fields_are_left(client: Spelling, changes: dict[str, str]) -> None:
    assert read_one(client, 310, **changes) is None


def test_other_requests_answers_and_messages_without_a_body_are_left() -> None:
    answer = like_java(310, FIELDS, b"hello").replace(b'"flag":0', b'"flag":1')

    assert read(answer) is None
    assert read(like_java(11, {"topic": "orders"}, b"hello")) is None
    assert read(like_java(310, FIELDS, b"")) is None


@pytest.mark.parametrize(
    ("spelled", "is_read"),
    [
        (b'"\\u00e4\\ud83d\\ude00\\n\\t\\r\\b\\f\\/\\\\\\""', True),
        ('"ä😀"'.encode(), True),
        (b"null", True),
        (b"true", True),
        (b"-12", True),
        (b'"\\ud83d"', False),
        (b'"\\ude00\\ud83d"', False),
        (b'"\\ud83dx"', False),
        (b'"\\x41"', False),
        (b'"\\u12"', False),
        (b'"\xc3"', False),
        (b'"\xed\xa0\x80"', False),
        (b'"\n"', False),
        (b"1.5", False),
        (b"{}", False),
        (b"nul", False),
        (b'"', False),
    ],
)
def test_unneeded_values_are_checked_too(spelled: bytes, *, is_read: bool) -> None:
    header = like_java(310, FIELDS, b"")[8:].replace(b'"n":"broker-a"', b'"x":' + spelled)
    frame = (len(header) + 9).to_bytes(4) + len(header).to_bytes(4) + header + b"hello"

    assert (read(frame) is not None) is is_read


def test_escapes_are_resolved_in_topics_and_properties() -> None:
    value = 'ä值😀"\\/\n\t\r\b\f'
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in "orders")
    frame = like_node(310, {**FIELDS, "properties": f"UNIQ_KEY\x01A1\x02v\x01{value}\x02"}, b"b")
    header = frame[8:-1].replace(b'"b":"orders"', f'"b":"{escaped}"'.encode())

    send = read((len(header) + 5).to_bytes(4) + len(header).to_bytes(4) + header + b"b")

    assert isinstance(send, PlainSend)
    assert send.topic == b"orders"
    assert send.properties == f"UNIQ_KEY\x01A1\x02v\x01{value}\x02".encode() + BROKER_PROPERTIES


@pytest.mark.parametrize("field", ["e", "i"])
def test_a_field_given_twice_is_left(field: str) -> None:
    header = like_java(310, FIELDS, b"")[8:].replace(b'"n":"broker-a"', f'"{field}":"1"'.encode())

    assert read((len(header) + 5).to_bytes(4) + len(header).to_bytes(4) + header + b"b") is None


@BOTH_FORMS
def test_a_frame_or_a_header_that_is_cut_off_anywhere_is_left(client: Spelling) -> None:
    frame = client(310, FIELDS, b"hello")

    for end in range(len(frame) - 5):
        assert read_send(frame, 0, end, BROKER_PROPERTIES) is None
    for header_bytes in range(len(frame) - 8 - len(b"hello")):
        assert read(frame[:5] + header_bytes.to_bytes(3) + frame[8:]) is None


def test_positions_outside_the_chunk_are_left() -> None:
    frame = like_java(310, FIELDS, b"hello")

    assert read_send(frame, 0, len(frame) + 1, BROKER_PROPERTIES) is None
    assert read_send(frame, -1, len(frame), BROKER_PROPERTIES) is None


# --- batches ---------------------------------------------------------------------------------------


@BOTH_FORMS
@pytest.mark.parametrize("code", [10, 310, 320])
def test_a_plain_batch_is_measured(client: Spelling, code: int) -> None:
    body = encode_batch(MESSAGES)
    frame = client(code, batch_fields(reconsumeTimes="2"), body)

    assert read(frame) == PlainBatch(
        topic=b"orders",
        queue_id=1,
        born_ms=1_700_000_000_000,
        reconsume_times=2,
        waits=True,
        body_start=6 + len(frame) - len(body),
        message_count=3,
        # Two of the messages lack the separator at the end of their properties.
        content_bytes=sum(len(each.body) + len(each.properties) for each in MESSAGES)
        + 3 * len(BROKER_PROPERTIES)
        + 2,
        opaque=77,
        command_flag=0,
        encoding=Encoding.BINARY if client is like_java_in_binary else Encoding.JSON,
    )


@pytest.mark.parametrize(
    ("properties", "waits"),
    [("", True), ("WAIT\x01false\x02", False), ("a\x01b\x02WAIT\x01false", False)],
)
def test_only_the_header_decides_whether_the_answer_waits(properties: str, *, waits: bool) -> None:
    batch = read_batch(properties=properties)

    assert batch is not None
    assert batch.waits is waits


@pytest.mark.parametrize(
    "changes",
    [
        {"sysFlag": "1"},
        {"properties": "WAIT\x01TRUE\x02"},
        {"properties": "WAIT\x01true\x02WAIT\x01false\x02"},
        {"properties": "long\x01" + "x" * 600},
        {"flag": "x"},
    ],
    ids=["compressed", "odd", "twice", "many properties", "no number"],
)
def test_unusual_headers_of_batches_are_left(changes: dict[str, str]) -> None:
    assert read_batch(**changes) is None


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"TAGS\x01a\x02",
        b"UNIQ_KEY\x01A1\x02DELAY\x013\x02",
        b"UNIQ_KEY\x01A1\x02CLUSTER\x01c\x02",
        b"UNIQ_KEY\x01A1\x02zero\x01\0\x02",
        b"UNIQ_KEY\x01A1\x02long\x01" + b"v" * (32767 - 17 - len(BROKER_PROPERTIES)),
    ],
)
def test_one_special_or_invalid_message_is_enough_to_leave_a_batch(properties: bytes) -> None:
    assert read_batch(*MESSAGES, message(properties)) is None


def test_properties_that_just_fit_are_read() -> None:
    properties = b"UNIQ_KEY\x01A1\x02long\x01" + b"v" * (32767 - 18 - len(BROKER_PROPERTIES))

    batch = read_batch(message(properties, b""))

    assert batch is not None
    assert batch.content_bytes == 32767


def test_a_batch_that_would_delay_others_is_left() -> None:
    assert read_batch(*MESSAGES[:1] * BATCH_MESSAGES_MAX) is not None
    assert read_batch(*MESSAGES[:1] * (BATCH_MESSAGES_MAX + 1)) is None


def test_messages_that_are_cut_off_anywhere_are_left() -> None:
    body = encode_batch(MESSAGES[:1])

    for end in range(len(body)):
        assert read(like_java(320, batch_fields(), body[:end])) is None
    assert read(like_java(320, batch_fields(), body + b"\0")) is None
