"""Frames: the layout of one command in the byte stream.

Layout, big-endian:
    4  frame bytes    how many bytes follow this field
    4  header mark    top byte: header encoding (0 JSON, 1 binary); low 24 bits: header bytes
    n  header         in that encoding, at most 512 KiB here
    m  body           the rest, opaque
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from orbitmq.errors import FrameTooLargeError, ProtocolError

Buffer = bytes | bytearray | memoryview

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
# Reading a header costs time for each field, so that 16 MiB, which fit the mark, would stall a server.
# The largest real ones have 32 KB of properties, or 64 KB of a filter, each character escaped.
HEADER_BYTES_MAX: Final = 512 * 1024
# Requests of real clients have at most about 40.
FIELDS_MAX: Final = 1000
PREFIX: Final = struct.Struct(">iI")
PREFIX_BYTES: Final = PREFIX.size
_HEADER_BYTES_MASK: Final = 0xFFFFFF
_LENGTH_MAX: Final = 2**31 - 1
# The first bytes of peers that mistook this port; as a length each would be far too large.
_FOREIGN: Final = {
    b"\x16\x03": "it begins with TLS, which is not enabled here",
    b"GE": "it looks like HTTP",
    b"PO": "it looks like HTTP",
    b"HE": "it looks like HTTP",
    b"PR": "it looks like HTTP/2 or gRPC",
}


class Encoding(IntEnum):
    """How a header is written."""

    JSON = 0
    BINARY = 1


# Perf: on Python 3.11 reading a member of an enum takes 0.1 µs, a name of a module 0.01; a request
# reads these four times (benchmarks/rpc_round_trip.py).
JSON: Final = Encoding.JSON
BINARY: Final = Encoding.BINARY


def encode_frame(header: bytes, body: bytes, encoding: Encoding) -> bytes:
    """Put a header and a body into one frame."""
    if len(header) > HEADER_BYTES_MAX:
        raise _header_too_large(len(header))
    mark = len(header) | (1 << 24 if encoding is BINARY else 0)
    try:
        prefix = PREFIX.pack(4 + len(header) + len(body), mark)
    except struct.error as error:
        raise FrameTooLargeError(PREFIX_BYTES + len(header) + len(body), _LENGTH_MAX) from error
    return prefix + header + body


def frame_end(chunk: Buffer, start: int, frame_bytes_max: int = FRAME_BYTES_MAX) -> int:
    """Return where the frame at `start` ends, or 0 while its length field is incomplete.

    The end may be beyond the chunk: then the rest of the frame has not arrived yet.
    """
    if len(chunk) - start < 4:
        return 0
    frame_bytes = int.from_bytes(chunk[start : start + 4], "big", signed=True) + 4
    if frame_bytes < PREFIX_BYTES:
        raise ProtocolError(f"a frame claims {frame_bytes - 4} bytes, fewer than its own prefix")
    if frame_bytes > frame_bytes_max:
        foreign = _FOREIGN.get(bytes(chunk[start : start + 2]))
        if foreign is not None:
            raise ProtocolError(f"the peer does not speak RocketMQ's protocol: {foreign}")
        raise FrameTooLargeError(frame_bytes, frame_bytes_max)
    return start + frame_bytes


def header_span(chunk: Buffer, start: int, end: int) -> tuple[int, Encoding]:
    """Return where the header of the frame at `start` ends, and its encoding."""
    try:
        _, mark = PREFIX.unpack_from(chunk, start)
    except struct.error as error:
        raise ProtocolError(f"a frame is cut off after {len(chunk) - start} bytes") from error
    header_bytes = mark & _HEADER_BYTES_MASK
    header_end = start + PREFIX_BYTES + header_bytes
    if header_end > end:
        raise ProtocolError(f"a header claims {header_bytes} bytes in a frame of {end - start}")
    if header_bytes > HEADER_BYTES_MAX:
        raise _header_too_large(header_bytes)
    encoding = mark >> 24
    if encoding > 1:
        raise ProtocolError(f"header encoding {encoding} is unknown; 0 is JSON, 1 is binary")
    return header_end, BINARY if encoding else JSON


def check_field_count(count: int) -> None:
    """Raise ProtocolError for a header with more fields than anybody sends."""
    if count > FIELDS_MAX:
        raise ProtocolError(
            f"a header has {count} fields, above the limit of {FIELDS_MAX}",
            hint="move lists of values to the body",
        )


def _header_too_large(header_bytes: int) -> ProtocolError:
    return ProtocolError(
        f"a header of {header_bytes} bytes is above the limit of {HEADER_BYTES_MAX}",
        hint="move large values to the body",
    )
