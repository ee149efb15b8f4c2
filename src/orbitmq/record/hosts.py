"""Hosts in records and message ids: an address and a port as bytes."""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache

from orbitmq.errors import ProtocolError
from orbitmq.record.layout import HOST_BYTES_V4, HOST_BYTES_V6

_PORT = struct.Struct(">i")


@lru_cache(maxsize=4096)
def encode_host(address: str, port: int) -> bytes:
    """Encode a host: 8 bytes for IPv4, 20 for IPv6."""
    return ipaddress.ip_address(address.partition("%")[0]).packed + _PORT.pack(port)


def decode_host(encoded: bytes) -> tuple[str, int]:
    """Decode a host."""
    if len(encoded) not in (HOST_BYTES_V4, HOST_BYTES_V6):
        raise ProtocolError(f"a host has 8 or 20 bytes, not {len(encoded)}")
    address = ipaddress.ip_address(encoded[:-4])
    (port,) = _PORT.unpack(encoded[-4:])
    return str(address), port
