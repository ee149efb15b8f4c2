"""The layout of a stored message.

Big-endian; hosts take 8 bytes (IPv4) or 20 (IPv6, as two bits of the system flag say):
    4  record bytes       whole record, this field included
    4  magic              V1, V2 (two-byte topic length) or BLANK (rest of a log file)
    4  body CRC           CRC-32 of the body as stored, 31 bits
    4  queue id           4  user flag
    8  queue offset       8  physical offset
    4  system flag        8  born time           8/20  born host
    8  store time         8/20  store host
    4  reconsume times    8  physical offset of the half message, for committed transactions
    4  body bytes         n  body
    1/2  topic bytes      n  topic
    2  properties bytes   n  properties
"""

from __future__ import annotations

import struct
from enum import IntFlag
from typing import Final

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

# A file of the log ends with a blank record of at least this size.
BLANK_BYTES_MIN: Final = 8
BLANK: Final = struct.Struct(">II")

TOPIC_BYTES_MAX_V1: Final = 127
TOPIC_BYTES_MAX: Final = 255
PROPERTIES_BYTES_MAX: Final = 32767
RECORD_BYTES_MAX: Final = 0x7FFFFFFF
CRC_MASK: Final = 0x7FFFFFFF
# The user flag of stand-ins for lost records; `store.log.stand_ins` checks the rest.
LOST_FLAG: Final = int.from_bytes(b"LOST")

# Fields before the born host, at fixed positions.
CRC_AT: Final = 8
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYSTEM_FLAG_AT: Final = 36
BORN_HOST_AT: Final = 48

HOST_BYTES_V4: Final = 8
HOST_BYTES_V6: Final = 20

# Bytes of a V1 record with IPv4 hosts beside body, topic and properties.
FIXED_BYTES: Final = 91


class SystemFlag(IntFlag):
    """The bits of the system flag."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMITTED = 0x8
    ROLLED_BACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEEDS_UNWRAPPING = 0x40
    INNER_BATCH = 0x80
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


# Perf: masking a number with a member of SystemFlag makes a SystemFlag, which takes 1.8 us; with a
# plain number it takes 0.02 (timeit). So the hot path uses plain numbers.
COMPRESSED: Final = int(SystemFlag.COMPRESSED)
BORN_HOST_V6: Final = int(SystemFlag.BORN_HOST_V6)
STORE_HOST_V6: Final = int(SystemFlag.STORE_HOST_V6)
COMMITTED: Final = int(SystemFlag.COMMITTED)
ROLLED_BACK: Final = int(SystemFlag.ROLLED_BACK)
TRANSACTION_MASK: Final = 0xC
# The bit that half and rolled-back messages share: they get no entry in their consume queue.
UNQUEUED: Final = 0x4
COMPRESSION_MASK: Final = 0x700


def record_bytes(
    *, body_bytes: int, topic_bytes: int, properties_bytes: int, system_flag: int
) -> int:
    """The size of a record; a topic too long for V1 makes it V2."""
    return (
        FIXED_BYTES
        + (HOST_BYTES_V6 - HOST_BYTES_V4) * bool(system_flag & BORN_HOST_V6)
        + (HOST_BYTES_V6 - HOST_BYTES_V4) * bool(system_flag & STORE_HOST_V6)
        + (topic_bytes > TOPIC_BYTES_MAX_V1)
        + body_bytes
        + topic_bytes
        + properties_bytes
    )


def is_queued(system_flag: int) -> bool:
    """Whether a record gets an entry in its consume queue: half and rolled-back ones do not."""
    return not system_flag & UNQUEUED
