"""Pull replies: both encodings are equivalent."""

from __future__ import annotations

import pytest

from orbitmq.broker.delivery.pull_replies import encode_pull_reply
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import decode_command
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.requests.pulling import PullReply


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_reply_reads_like_one_written_in_the_ordinary_way(encoding: Encoding) -> None:
    frame = encode_pull_reply(
        ResponseCode.SUCCESS,
        "FOUND",
        opaque=5,
        encoding=encoding,
        next_offset=12,
        start=1,
        end=20,
        broker_id=0,
        records=[b"one", b"two"],
        record_bytes=6,
    )

    reply = decode_command(frame, 0, len(frame))
    header = PullReply.decode(reply.fields)
    assert (reply.code, reply.remark, reply.opaque, reply.body) == (0, "FOUND", 5, b"onetwo")
    assert (header.next_offset, header.min_offset, header.max_offset) == (12, 1, 20)
    assert header.suggested_broker_id == 0
