"""Java's string hash, which tag filters and the key index are built on."""

from __future__ import annotations

import struct
from typing import Final

_MASK_32: Final = 0xFFFFFFFF
_SIGN_32: Final = 0x80000000


def java_hash(text: str) -> int:
    """Hash a string as `String.hashCode` does: over UTF-16 units, as a signed 32-bit number."""
    if text.isascii():
        units: bytes | tuple[int, ...] = text.encode()
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(encoded) // 2}H", encoded)
    hashed = 0
    for unit in units:
        hashed = (31 * hashed + unit) & _MASK_32
    return (hashed ^ _SIGN_32) - _SIGN_32
