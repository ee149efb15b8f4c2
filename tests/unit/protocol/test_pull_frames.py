"""Pulls read from frames: the same as the ordinary form reads, or left to it."""

from __future__ import annotations

from dataclasses import asdict

import msgspec
import pytest

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.pull_frames import read_pull
from orbitmq.protocol.requests.pulling import PullMessages

FIELDS = {
    "consumerGroup": "g", "topic": "orders", "queueId": "1", "queueOffset": "42",
    "maxMsgNums": "32", "sysFlag": "3", "commitOffset": "40", "suspendTimeoutMillis": "15000",
    "subVersion": "5", "expressionType": "TAG",
}  # fmt: skip
BOTH_FORMS = pytest.mark.parametrize("encoding", list(Encoding))


@BOTH_FORMS
@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_a_pull_is_read(encoding: Encoding, code: int) -> None:
    frame = Command(code=code, fields=FIELDS, opaque=9, flag=2, encoding=encoding).encode()

    read = read_pull(b"xx" + frame, 2, len(frame) + 2)

    assert read is not None
    pull, read_encoding = read
    assert (pull.code, pull.opaque, pull.flag, read_encoding) == (code, 9, 2, encoding)
    assert isinstance(pull.fields, msgspec.Struct)
    assert msgspec.structs.asdict(pull.fields) == asdict(PullMessages.decode(FIELDS))


@BOTH_FORMS
@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (34, {}),
        (310, FIELDS),
        (11, {**FIELDS, "queueId": "three"}),
        (11, {**FIELDS, "queueId": str(2**31)}),
        *((11, {name: FIELDS[name] for name in FIELDS if name != gone}) for gone in [*FIELDS][:9]),
    ],
)
def test_other_requests_and_unusual_pulls_are_left(
    encoding: Encoding, code: int, fields: dict[str, str]
) -> None:
    frame = Command(code=code, fields=fields, encoding=encoding).encode()

    assert read_pull(frame, 0, len(frame)) is None


def test_a_header_written_in_another_order_is_left() -> None:
    frame = Command(code=11, fields=FIELDS).encode()
    frame = frame.replace(b'{"code":11,', b'{"flag":1, ', 1)

    assert read_pull(frame, 0, len(frame)) is None
