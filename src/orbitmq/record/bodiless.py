"""Records without their bodies, for readers that want only the rest of each.

Such a record has the layout of any other, and is as if it had been stored with an empty body: its
size, its checksum and the bit of a compressed body say so. Its positions are those of the original.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from orbitmq.record.layout import (
    BORN_HOST_V6,
    COMPRESSED,
    CRC_AT,
    FIXED_BYTES,
    HOST_BYTES_V4,
    HOST_BYTES_V6,
    STORE_HOST_V6,
    SYSTEM_FLAG_AT,
)

_NUMBER: Final = struct.Struct(">I")
# Where the body of a record with IPv4 hosts starts, after its length.
_BODY_AT: Final = 88
_MORE: Final = HOST_BYTES_V6 - HOST_BYTES_V4


def without_bodies(records: Iterable[bytes]) -> list[bytes]:
    """Copy records without their bodies; one that has no room for what it claims stays as it is."""
    return [_without_body(record) for record in records]


def _without_body(record: bytes) -> bytes:
    if len(record) < FIXED_BYTES:
        return record
    (flag,) = _NUMBER.unpack_from(record, SYSTEM_FLAG_AT)
    body_at = _BODY_AT
    body_at += _MORE if flag & BORN_HOST_V6 else 0
    body_at += _MORE if flag & STORE_HOST_V6 else 0
    if body_at > len(record):
        return record
    (body_bytes,) = _NUMBER.unpack_from(record, body_at - _NUMBER.size)
    if not 0 < body_bytes <= len(record) - body_at:
        return record
    head = bytearray(record[:body_at])
    _NUMBER.pack_into(head, 0, len(record) - body_bytes)
    _NUMBER.pack_into(head, CRC_AT, 0)
    _NUMBER.pack_into(head, SYSTEM_FLAG_AT, flag & ~COMPRESSED)
    _NUMBER.pack_into(head, body_at - _NUMBER.size, 0)
    return bytes(head + record[body_at + body_bytes :])
