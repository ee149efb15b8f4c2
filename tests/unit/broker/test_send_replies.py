"""Send replies: both encodings say the same, and odd regions do no harm."""

from __future__ import annotations

import pytest

from orbitmq.broker.send_replies import SendReplies
from orbitmq.broker.send_replies import SendReply as Reply
from orbitmq.protocol.command import decode_command
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.requests.sending import SendReply
from orbitmq.store.draft import Durability


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("region", ["DefaultRegion", 'a "quoted" 100 % région'])
def test_a_reply_reads_like_one_written_in_the_ordinary_way(
    encoding: Encoding, region: str
) -> None:
    replies = SendReplies(region=region, trace_on=False)

    frame = replies.encode(
        Durability.DISK,
        Reply(77, encoding, b"7F00000100002A9F0000000000000000", 3, 12, b"ABC"),
    )

    reply = decode_command(frame, 0, len(frame))
    assert (reply.code, reply.opaque, reply.is_response) == (0, 77, True)
    assert SendReply.decode(reply.fields) == SendReply(
        message_id="7F00000100002A9F0000000000000000",
        queue_id=3,
        queue_offset=12,  # type: ignore[arg-type]
        transaction_id="ABC",
        region=region,
        trace=False,
    )


@pytest.mark.parametrize(
    ("durability", "code"),
    [(Durability.DISK, 0), (Durability.MEMORY, 0), (Durability.DISK_TIMEOUT, 10)],
)
def test_a_flush_that_took_too_long_has_a_code_of_its_own(
    durability: Durability, code: int
) -> None:
    frame = SendReplies(region="r", trace_on=True).encode(
        durability,
        Reply(1, Encoding.JSON, b"0", 0, 0, b""),
    )

    assert decode_command(frame, 0, len(frame)).code == code
