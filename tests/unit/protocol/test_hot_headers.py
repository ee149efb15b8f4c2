"""Hot headers: what is read fast equals what is read in the ordinary way."""

from __future__ import annotations

import pytest

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.hot_headers import (
    LongSendFields,
    PullFields,
    SendFields,
    decode_hot_header,
)

_SHORT = {
    "a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "3", "f": "1",
    "g": "1700000000000", "h": "7", "i": "TAGS\x01TagA\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
_PULL = {
    "consumerGroup": "g", "topic": "orders", "queueId": "1", "queueOffset": "42",
    "maxMsgNums": "32", "sysFlag": "3", "commitOffset": "40", "suspendTimeoutMillis": "15000",
    "subVersion": "5", "expressionType": "TAG",
}  # fmt: skip


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_short_send_is_read(encoding: Encoding) -> None:
    frame = Command(
        code=RequestCode.SEND_MESSAGE_V2, fields=_SHORT, body=b"hi", opaque=9, encoding=encoding
    ).encode()

    decoded = decode_hot_header(frame, 0, len(frame))

    assert decoded is not None
    header, body_start, read_encoding = decoded
    fields = header.fields
    assert isinstance(fields, SendFields)
    assert (fields.topic, fields.queue_id, fields.system_flag) == ("orders", 3, 1)
    assert (fields.born_ms, fields.flag, fields.properties) == (
        1_700_000_000_000,
        7,
        "TAGS\x01TagA\x02",
    )
    assert not fields.is_batch
    assert (header.opaque, frame[body_start:], read_encoding) == (9, b"hi", encoding)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_long_send_and_a_pull_are_read(encoding: Encoding) -> None:
    long_names = {
        "producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102", "queueId": "2",
        "defaultTopicQueueNums": "4", "sysFlag": "0", "bornTimestamp": "5", "flag": "0",
        "batch": "true",
    }  # fmt: skip
    send = Command(code=10, fields=long_names, encoding=encoding).encode()
    pull = Command(code=11, fields=_PULL, encoding=encoding).encode()

    sent = decode_hot_header(send, 0, len(send))
    pulled = decode_hot_header(b"xx" + pull, 2, len(pull) + 2)

    assert sent is not None
    assert isinstance(sent[0].fields, LongSendFields)
    assert sent[0].fields.is_batch
    assert pulled is not None
    assert isinstance(pulled[0].fields, PullFields)
    assert pulled[0].fields.queue_offset == 42
    assert pulled[0].fields.suspend_timeout_ms == 15_000


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (34, {}),
        (3100, _SHORT),
        (310, {**_SHORT, "e": "three"}),
        (310, {**_SHORT, "e": str(2**31)}),
        (310, {name: text for name, text in _SHORT.items() if name != "b"}),
    ],
)
def test_what_is_no_send_or_an_odd_one_is_left_to_the_ordinary_way(
    encoding: Encoding, code: int, fields: dict[str, str]
) -> None:
    frame = Command(code=code, fields=fields, encoding=encoding).encode()

    assert decode_hot_header(frame, 0, len(frame)) is None


def test_a_header_written_in_another_order_is_left_to_the_ordinary_way() -> None:
    frame = Command(code=310, fields=_SHORT).encode()
    frame = frame.replace(b'{"code":310,', b'{"flag":10, ', 1)

    assert decode_hot_header(frame, 0, len(frame)) is None
