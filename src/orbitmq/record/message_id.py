"""Message ids: store host and physical offset of a message."""

from __future__ import annotations

import re
import struct

from orbitmq.errors import ProtocolError
from orbitmq.record.hosts import decode_host

_OFFSET = struct.Struct(">q")
_DIGITS = re.compile("(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")


def encode_message_id(store_host: bytes, physical_offset: int) -> str:
    """Encode the id of a message."""
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def decode_message_id(message_id: str) -> tuple[str, int, int]:
    """Decode address, port and physical offset from an id."""
    if not _DIGITS.fullmatch(message_id):
        raise ProtocolError(
            f"{message_id!r} is not a message id",
            hint="an id has 32 hexadecimal digits, or 56 for IPv6",
        )
    encoded = bytes.fromhex(message_id)
    (physical_offset,) = _OFFSET.unpack(encoded[-8:])
    address, port = decode_host(encoded[:-8])
    return address, port, physical_offset
