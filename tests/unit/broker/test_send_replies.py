"""Send replies: both encodings are equivalent, and odd regions do no harm."""

from __future__ import annotations

import pytest

from orbitmq.broker.durability import FLUSH_TIMEOUT, IN_MEMORY, ON_DISK, Durability
from orbitmq.broker.send_replies import PlainSendReply, SendReplies
from orbitmq.model.versions import OUR_VERSION
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RESPONSE_FLAG, Command, decode_command
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.requests.sending import SendReply


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("region", ["DefaultRegion", 'a "quoted" 100 % région'])
def test_a_reply_reads_like_one_written_in_the_ordinary_way(
    encoding: Encoding, region: str
) -> None:
    replies = SendReplies(region=region, trace_on=False)

    frame = replies.encode(
        ON_DISK,
        PlainSendReply(77, encoding, b"7F00000100002A9F0000000000000000", 3, 12, b"ABC"),
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
        durability="DISK",
    )


@pytest.mark.parametrize("unique_id", ["7F0001", ""])
def test_a_binary_reply_is_what_the_ordinary_encoder_writes(unique_id: str) -> None:
    fields = {
        "MSG_REGION": "région",
        "TRACE_ON": "true",
        "msgId": "7F01,7F02",
        "queueId": "12",
        "queueOffset": "9000000000",
        "transactionId": unique_id,
        "durability": "MEMORY",
    }
    ordinary = Command(
        code=10,
        fields={name: text for name, text in fields.items() if text},
        opaque=77,
        flag=RESPONSE_FLAG,
        version=OUR_VERSION,
        encoding=Encoding.BINARY,
    )

    frame = SendReplies(region="région", trace_on=True).encode(
        FLUSH_TIMEOUT,
        PlainSendReply(77, Encoding.BINARY, b"7F01,7F02", 12, 9_000_000_000, unique_id.encode()),
    )

    assert frame == ordinary.encode()


@pytest.mark.parametrize("encoding", list(Encoding))
def test_the_reply_to_a_batch_has_no_unique_id(encoding: Encoding) -> None:
    frame = SendReplies(region="r", trace_on=True).encode(
        ON_DISK, PlainSendReply(1, encoding, b"7F01,7F02", 0, 3, b"")
    )

    assert decode_command(frame, 0, len(frame)).fields == {
        "MSG_REGION": "r",
        "TRACE_ON": "true",
        "msgId": "7F01,7F02",
        "queueId": "0",
        "queueOffset": "3",
        "durability": "DISK",
    }


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_message_that_cannot_be_put_on_disk_is_refused(encoding: Encoding) -> None:
    frame = SendReplies(region="r", trace_on=True).encode(
        None, PlainSendReply(1, encoding, b"7F01", 0, 3, b"")
    )

    reply = decode_command(frame, 0, len(frame))
    assert (reply.code, reply.encoding, reply.fields) == (14, encoding, {})


@pytest.mark.parametrize(
    ("durability", "code"),
    [(ON_DISK, 0), (IN_MEMORY, 0), (FLUSH_TIMEOUT, 10)],
)
def test_a_flush_that_took_too_long_has_a_code_of_its_own(
    durability: Durability, code: int
) -> None:
    frame = SendReplies(region="r", trace_on=True).encode(
        durability,
        PlainSendReply(1, Encoding.JSON, b"0", 0, 0, b""),
    )

    reply = decode_command(frame, 0, len(frame))
    assert reply.code == code
    assert reply.fields["durability"] == ("DISK" if durability is ON_DISK else "MEMORY")


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_reply_of_a_sync_master_counts_the_copies(encoding: Encoding) -> None:
    frame = SendReplies(region="r", trace_on=True).encode(
        Durability(ResponseCode.FLUSH_SLAVE_TIMEOUT, True, 2, 1),
        PlainSendReply(1, encoding, b"7F01", 0, 3, b"ABC"),
    )

    reply = decode_command(frame, 0, len(frame))
    told = SendReply.decode(reply.fields)
    assert reply.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert (told.durability, told.copies, told.copies_on_disk) == ("DISK", 2, 1)
