"""Batches: many messages of one queue in the body of one request.

Repeated per message, big-endian:
    4  message bytes, this field included    4  magic, 0    4  CRC, 0    4  flag
    4  body bytes    n  body    2  properties bytes    n  properties
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from orbitmq.errors import MessageError, ProtocolError

_HEAD: Final = struct.Struct(">iiiii")
_SHORT: Final = struct.Struct(">h")


class BatchedMessage(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: Iterable[BatchedMessage]) -> bytes:
    """Encode a batch."""
    out: list[bytes] = []
    for flag, body, properties in messages:
        size = _HEAD.size + len(body) + _SHORT.size + len(properties)
        try:
            head = _HEAD.pack(size, 0, 0, flag, len(body))
            properties_bytes = _SHORT.pack(len(properties))
        except struct.error as error:
            raise MessageError(
                f"flag {flag}, a body of {len(body)} bytes or properties of {len(properties)} "
                f"bytes do not fit a batch: {error}"
            ) from error
        out += (head, body, properties_bytes, properties)
    return b"".join(out)


def decode_batch(batch: bytes) -> list[BatchedMessage]:
    """Decode a batch."""
    messages: list[BatchedMessage] = []
    at = 0
    while at < len(batch):
        try:
            size, _, _, flag, body_bytes = _HEAD.unpack_from(batch, at)
            body_at = at + _HEAD.size
            properties_at = body_at + body_bytes + _SHORT.size
            if body_bytes < 0 or properties_at > at + size or at + size > len(batch):
                raise ProtocolError(f"message {len(messages)} of a batch exceeds its {size} bytes")
            (properties_bytes,) = _SHORT.unpack_from(batch, properties_at - _SHORT.size)
        except struct.error as error:
            raise ProtocolError(f"a batch is cut off in message {len(messages)}") from error
        if properties_bytes < 0 or properties_at + properties_bytes != at + size:
            raise ProtocolError(
                f"message {len(messages)} of a batch does not end with its properties"
            )
        messages.append(
            BatchedMessage(
                flag,
                batch[body_at : body_at + body_bytes],
                batch[properties_at : properties_at + properties_bytes],
            )
        )
        at += size
    return messages
