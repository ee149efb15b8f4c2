"""Pulls, read from a frame directly into typed fields.

This is their fast form, derived from `PullMessages`. A header that no known client would write is
left to the ordinary form, which reads the same and explains what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.java_json import JavaInt
from orbitmq.protocol import header_binary
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.frame import BINARY, JSON, PREFIX_BYTES, Encoding, header_span
from orbitmq.protocol.headers import fast_form
from orbitmq.protocol.requests.pulling import PullMessages

_MARK_BYTES: Final = len(b'{"code":361,')
_CODES: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)

if TYPE_CHECKING:
    PullFields = PullMessages
else:
    PullFields = fast_form(PullMessages)


class PullFrame(msgspec.Struct, gc=False):
    """The header of a pull."""

    code: JavaInt
    fields: PullFields = msgspec.field(name="extFields")
    flag: JavaInt = 0
    opaque: JavaInt = 0
    version: JavaInt = 0


# Compat: both Java and Go write the code first. Values of fields are strings, so numbers are read
# from strings here.
_DECODER: Final = msgspec.json.Decoder(PullFrame, strict=False)
_JSON_MARKS: Final = frozenset(b'{"code":%d,' % code for code in _CODES)
_BINARY_MARKS: Final = frozenset(code.to_bytes(2) for code in _CODES)


def read_pull(chunk: bytes, start: int, end: int) -> tuple[PullFrame, Encoding] | None:
    """Read the frame at `chunk[start:end]`; None if it is not a pull, or an unusual one."""
    header_end, encoding = header_span(chunk, start, end)
    header_start = start + PREFIX_BYTES
    try:
        if encoding is JSON:
            mark_end = chunk.find(b",", header_start, header_start + _MARK_BYTES) + 1
            if chunk[header_start:mark_end] not in _JSON_MARKS:
                return None
            return _DECODER.decode(chunk[header_start:header_end]), JSON
        if chunk[header_start : header_start + 2] not in _BINARY_MARKS:
            return None
        code, _, version, opaque, flag, _, values = header_binary.decode_header(
            chunk[header_start:header_end]
        )
        fields = msgspec.convert(values, PullFields, strict=False)
        return PullFrame(code, fields, flag, opaque, version), BINARY
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
