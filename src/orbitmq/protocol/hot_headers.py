"""Headers of sends and pulls, read from a frame straight into typed fields.

These are what a broker reads most. Everything that is not written the way known clients write it
is left to the ordinary way of a request, which reads the same and explains what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.java_json import JavaInt, JavaLong
from orbitmq.protocol import header_binary
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.frame import BINARY, JSON, PREFIX_BYTES, Encoding, header_span
from orbitmq.protocol.headers import fast_form
from orbitmq.protocol.requests.pulling import PullMessages

_MARK_BYTES: Final = len(b'{"code":310,')


class SendFields(msgspec.Struct, gc=False, kw_only=True):
    """The fields of a send, under the letters of the short spelling."""

    group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    template_topic: str = msgspec.field(default="", name="c")
    queues: JavaInt = msgspec.field(default=0, name="d")
    queue_id: JavaInt = msgspec.field(name="e")
    system_flag: JavaInt = msgspec.field(name="f")
    born_ms: JavaLong = msgspec.field(name="g")
    flag: JavaInt = msgspec.field(name="h")
    properties: str = msgspec.field(default="", name="i")
    reconsume_times: JavaInt = msgspec.field(default=0, name="j")
    is_batch: bool = msgspec.field(default=False, name="m")


class LongSendFields(msgspec.Struct, gc=False, kw_only=True):
    """The fields of a send, under their long names."""

    group: str = msgspec.field(name="producerGroup")
    topic: str
    template_topic: str = msgspec.field(default="", name="defaultTopic")
    queues: JavaInt = msgspec.field(default=0, name="defaultTopicQueueNums")
    queue_id: JavaInt = msgspec.field(name="queueId")
    system_flag: JavaInt = msgspec.field(name="sysFlag")
    born_ms: JavaLong = msgspec.field(name="bornTimestamp")
    flag: JavaInt
    properties: str = ""
    reconsume_times: JavaInt = msgspec.field(default=0, name="reconsumeTimes")
    is_batch: bool = msgspec.field(default=False, name="batch")


if TYPE_CHECKING:
    PullFields = PullMessages
else:
    PullFields = fast_form(PullMessages)

AnySendFields = SendFields | LongSendFields


class _SendHeader(msgspec.Struct, gc=False):
    code: JavaInt
    fields: SendFields = msgspec.field(name="extFields")
    flag: JavaInt = 0
    opaque: JavaInt = 0
    version: JavaInt = 0


class _LongSendHeader(msgspec.Struct, gc=False):
    code: JavaInt
    fields: LongSendFields = msgspec.field(name="extFields")
    flag: JavaInt = 0
    opaque: JavaInt = 0
    version: JavaInt = 0


class _PullHeader(msgspec.Struct, gc=False):
    code: JavaInt
    fields: PullFields = msgspec.field(name="extFields")
    flag: JavaInt = 0
    opaque: JavaInt = 0
    version: JavaInt = 0


HotHeader = _SendHeader | _LongSendHeader | _PullHeader

_HEADERS: Final = {
    RequestCode.SEND_MESSAGE: (_LongSendHeader, LongSendFields),
    RequestCode.SEND_MESSAGE_V2: (_SendHeader, SendFields),
    RequestCode.SEND_BATCH_MESSAGE: (_SendHeader, SendFields),
    RequestCode.PULL_MESSAGE: (_PullHeader, PullFields),
    RequestCode.LITE_PULL_MESSAGE: (_PullHeader, PullFields),
}
# Compat: both Java and Go write the code first. The values of fields are texts, so that numbers
# are read from texts here.
_DECODERS: Final = {
    b'{"code":%d,' % code: msgspec.json.Decoder(header, strict=False)
    for code, (header, _) in _HEADERS.items()
}
_BINARY_CODES: Final = {
    code.to_bytes(2): (header, fields) for code, (header, fields) in _HEADERS.items()
}


def decode_hot_header(chunk: bytes, start: int, end: int) -> tuple[HotHeader, int, Encoding] | None:
    """Read the header of a send or a pull; None when it is another, or an odd one.

    Returns where the body begins and how the header was written, too.
    """
    header_end, encoding = header_span(chunk, start, end)
    header_start = start + PREFIX_BYTES
    try:
        if encoding is JSON:
            mark_end = chunk.find(b",", header_start, header_start + _MARK_BYTES) + 1
            decoder = _DECODERS.get(chunk[header_start:mark_end])
            if decoder is None:
                return None
            return decoder.decode(chunk[header_start:header_end]), header_end, JSON
        kinds = _BINARY_CODES.get(chunk[header_start : header_start + 2])
        if kinds is None:
            return None
        header, fields = kinds
        code, _, version, opaque, flag, _, values = header_binary.decode_header(
            chunk[header_start:header_end]
        )
        typed = msgspec.convert(values, fields, strict=False)
        return header(code, typed, flag, opaque, version), header_end, BINARY
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
