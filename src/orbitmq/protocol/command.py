"""A command: one request or one response, whatever its encoding on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.model.versions import OUR_VERSION
from orbitmq.protocol import header_binary, header_json
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.frame import (
    BINARY,
    JSON,
    PREFIX_BYTES,
    Buffer,
    Encoding,
    encode_frame,
    frame_end,
    header_span,
)
from orbitmq.protocol.languages import Language

if TYPE_CHECKING:
    from orbitmq.protocol.headers import Header

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2


class Command(msgspec.Struct, kw_only=True):
    """One request or response.

    `opaque` matches a response to its request. Each direction of a connection numbers its requests
    independently; only the response flag distinguishes them.
    """

    code: int
    fields: dict[str, str] = {}
    body: bytes = b""
    remark: str = ""
    opaque: int = 0
    flag: int = 0
    version: int = OUR_VERSION
    language: Language = Language.PYTHON
    encoding: Encoding = Encoding.JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no answer, not even an error."""
        return self.flag & ONEWAY_FLAG != 0

    def reply(
        self,
        header: Header | None = None,
        *,
        code: int = ResponseCode.SUCCESS,
        remark: str = "",
        body: bytes = b"",
    ) -> Command:
        """Answer this request, in its own encoding."""
        return Command(
            code=code,
            # Compat: Java clients read fields of some responses without a null check.
            fields=header.encode() if header is not None else {},
            body=body,
            remark=remark,
            opaque=self.opaque,
            flag=RESPONSE_FLAG,
            encoding=self.encoding,
        )

    def encode(self) -> bytes:
        """Write the whole frame."""
        encoding = self.encoding
        # Compat: the binary header has 16 bits for the code; the POP codes need more.
        if encoding is BINARY and not header_binary.can_encode(self.code, self.version):
            encoding = JSON
        codec = header_binary if encoding is BINARY else header_json
        header = codec.encode_header(
            code=self.code,
            language=self.language,
            version=self.version,
            opaque=self.opaque,
            flag=self.flag,
            remark=self.remark,
            fields=self.fields,
        )
        return encode_frame(header, self.body, encoding)


def request(header: Header, body: bytes = b"", *, encoding: Encoding = Encoding.JSON) -> Command:
    """Make the request of a typed header."""
    return Command(code=header.CODE, fields=header.encode(), body=body, encoding=encoding)


def decode_command(chunk: Buffer, start: int, end: int) -> Command:
    """Read the frame at `chunk[start:end]`."""
    header_end, encoding = header_span(chunk, start, end)
    return decode_parts(
        bytes(chunk[start + PREFIX_BYTES : header_end]), bytes(chunk[header_end:end]), encoding
    )


def decode_parts(header: bytes, body: bytes, encoding: Encoding) -> Command:
    """Read a command from its header and its body."""
    codec = header_binary if encoding is BINARY else header_json
    code, language, version, opaque, flag, remark, fields = codec.decode_header(header)
    return Command(
        code=code,
        fields=fields,
        body=body,
        remark=remark,
        opaque=opaque,
        flag=flag,
        version=version,
        language=language,
        encoding=encoding,
    )


def decode_frame(frame: Buffer) -> Command:
    """Read exactly one frame."""
    end = frame_end(frame, 0)
    if end != len(frame):
        raise ProtocolError(f"expected one frame of {end} bytes, got {len(frame)}")
    return decode_command(frame, 0, end)
