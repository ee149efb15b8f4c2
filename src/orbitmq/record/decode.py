"""Reading records: checks, and the fields that each reader needs."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final, NamedTuple

from orbitmq.errors import ProtocolError
from orbitmq.record.compression import decompress
from orbitmq.record.hosts import decode_host
from orbitmq.record.layout import (
    BORN_HOST_AT,
    BORN_HOST_V6,
    COMPRESSED,
    CRC_AT,
    CRC_MASK,
    FIXED_BYTES,
    HOST_BYTES_V4,
    HOST_BYTES_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MAX,
    STORE_HOST_V6,
    SYSTEM_FLAG_AT,
)
from orbitmq.record.message_id import encode_message_id
from orbitmq.record.properties import decode_properties

Buffer = bytes | bytearray | memoryview

_START: Final = struct.Struct(">II")
_HEAD: Final = struct.Struct(">IIIiiqqiq")
_CRC: Final = struct.Struct(">I")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_TAIL: Final = struct.Struct(">iqi")
_BYTE: Final = struct.Struct(">b")
_SHORT: Final = struct.Struct(">h")


class Verdict(Enum):
    """What lies at a position of the log."""

    RECORD = "a record"
    BLANK = "the unused rest of a file"
    NOTHING = "nothing: zero bytes"
    CUT_OFF = "a record that goes on beyond the end"
    BROKEN = "bytes that are no record"
    BAD_BODY = "a record whose body does not fit its checksum"


@dataclass(frozen=True, slots=True)
class Found:
    """What lies at a position of the log, and how long it is."""

    verdict: Verdict
    size: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """One record, read; body and properties are unpacked when they are asked for."""

    size: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    system_flag: int
    born_ms: int
    born_host_bytes: bytes
    store_ms: int
    store_host_bytes: bytes
    reconsume_times: int
    prepared_offset: int
    stored_body: bytes
    topic: str
    properties_bytes: bytes

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties by name."""
        return decode_properties(self.properties_bytes)

    @cached_property
    def body(self) -> bytes:
        """The body as its producer wrote it."""
        # Compat: as in Java, an empty body is never unpacked, whatever the flag says.
        if self.system_flag & COMPRESSED and self.stored_body:
            return decompress(self.stored_body, self.system_flag)
        return self.stored_body

    @property
    def born_host(self) -> tuple[str, int]:
        """Address and port of the producer."""
        return decode_host(self.born_host_bytes)

    @property
    def store_host(self) -> tuple[str, int]:
        """Address and port of the broker that stored it."""
        return decode_host(self.store_host_bytes)

    @property
    def message_id(self) -> str:
        """The id that says where the record lies."""
        return encode_message_id(self.store_host_bytes, self.physical_offset)


class FieldPositions(NamedTuple):
    """Where the fields of a record lie, from the start of the buffer."""

    at: int
    magic: int
    store_ms_at: int
    store_host_at: int
    tail_at: int
    body_at: int
    body_end: int
    topic_at: int
    topic_end: int
    properties_at: int
    end: int


def examine(buffer: Buffer, at: int, end: int, *, check_body: bool) -> Found:
    """Say what lies at `buffer[at:end]`; nothing beyond `end` is looked at."""
    located = locate(buffer, at, end, check_body=check_body)
    return located if isinstance(located, Found) else Found(Verdict.RECORD, located.end - at)


def locate(  # noqa: PLR0911  # a verdict a line reads best
    buffer: Buffer, at: int, end: int, *, check_body: bool
) -> FieldPositions | Found:
    """Find the fields of the record at `buffer[at:end]`, or say what lies there instead."""
    assert at >= 0
    assert end <= len(buffer)
    if end - at < 8:
        return Found(Verdict.CUT_OFF, reason=f"{end - at} bytes are left")
    size, magic = _START.unpack_from(buffer, at)
    if magic == MAGIC_BLANK:
        return Found(Verdict.BLANK, size)
    if size == 0 and magic == 0:
        return Found(Verdict.NOTHING)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Found(Verdict.BROKEN, reason=f"magic is {magic:#010x}")
    if not FIXED_BYTES <= size <= RECORD_BYTES_MAX:
        return Found(Verdict.BROKEN, reason=f"a record cannot have {size} bytes")
    if size > end - at:
        return Found(Verdict.CUT_OFF, size, f"{size} bytes of which {end - at} are there")
    try:
        places = _places(buffer, at, size, magic)
    except ProtocolError as error:
        return Found(Verdict.BROKEN, size, f"its lengths do not add up: {error}")
    if check_body and places.body_end > places.body_at:
        (stored_crc,) = _CRC.unpack_from(buffer, at + CRC_AT)
        crc = zlib.crc32(buffer[places.body_at : places.body_end]) & CRC_MASK
        if crc != stored_crc:
            return Found(Verdict.BAD_BODY, size, f"checksum is {crc}, stored {stored_crc}")
    return places


def _places(buffer: Buffer, at: int, size: int, magic: int) -> FieldPositions:
    """Find the fields of a record whose `size` bytes, at least the fixed ones, are there."""
    end = at + size
    (system_flag,) = _INT.unpack_from(buffer, at + SYSTEM_FLAG_AT)
    store_ms_at = at + BORN_HOST_AT
    store_ms_at += HOST_BYTES_V6 if system_flag & BORN_HOST_V6 else HOST_BYTES_V4
    store_host_at = store_ms_at + 8
    tail_at = store_host_at + (HOST_BYTES_V6 if system_flag & STORE_HOST_V6 else HOST_BYTES_V4)
    body_at = tail_at + _TAIL.size
    # Invariant: nothing is read before it is known to lie below `end`.
    if body_at > end:
        raise ProtocolError(f"its hosts leave the record of {size} bytes")
    (body_bytes,) = _INT.unpack_from(buffer, body_at - 4)
    topic_length = _SHORT if magic == MAGIC_V2 else _BYTE
    body_end = body_at + body_bytes
    topic_at = body_end + topic_length.size
    if body_bytes < 0 or topic_at > end:
        raise ProtocolError(f"a body of {body_bytes} bytes leaves the record of {size}")
    # Compat: lengths are signed in Java, so that a V1 topic of over 127 bytes is none.
    (topic_bytes,) = topic_length.unpack_from(buffer, body_end)
    topic_end = topic_at + topic_bytes
    properties_at = topic_end + _SHORT.size
    if topic_bytes < 0 or properties_at > end:
        raise ProtocolError(f"a topic of {topic_bytes} bytes leaves the record of {size}")
    (properties_bytes,) = _SHORT.unpack_from(buffer, topic_end)
    if properties_bytes < 0 or properties_at + properties_bytes != end:
        raise ProtocolError(f"properties of {properties_bytes} bytes do not end the record")
    return FieldPositions(
        at,
        magic,
        store_ms_at,
        store_host_at,
        tail_at,
        body_at,
        body_end,
        topic_at,
        topic_end,
        properties_at,
        end,
    )


def locate_at(
    buffer: Buffer, at: int, end: int, physical_offset: int, *, check_body: bool, check_texts: bool
) -> FieldPositions | Found:
    """Find the record at `buffer[at:end]`, which must have been written for `physical_offset`.

    With `check_texts`, a record of which a crash lost a page is told: that page reads as zero
    bytes, which topic and properties never hold.
    """
    places = locate(buffer, at, end, check_body=check_body)
    if isinstance(places, Found):
        return places
    (found,) = _LONG.unpack_from(buffer, at + PHYSICAL_OFFSET_AT)
    if found != physical_offset:
        return Found(Verdict.BROKEN, places.end - at, f"it was written for offset {found}")
    if check_texts:
        texts = bytes(buffer[places.topic_at : places.topic_end])
        texts += bytes(buffer[places.properties_at : places.end])
        if places.topic_at == places.topic_end or 0 in texts:
            return Found(Verdict.BROKEN, places.end - at, "zero bytes in topic or properties")
    return places


def decode_record(buffer: Buffer, at: int = 0) -> StoredMessage:
    """Read the record at `buffer[at:]`; raises ProtocolError when there is none."""
    places = locate(buffer, at, len(buffer), check_body=False)
    if isinstance(places, Found):
        raise ProtocolError(
            f"at byte {at} lies {places.verdict.value}{': ' if places.reason else ''}{places.reason}"
        )
    size, _, _, queue_id, flag, queue_offset, physical_offset, system_flag, born_ms = (
        _HEAD.unpack_from(buffer, at)
    )
    (store_ms,) = _LONG.unpack_from(buffer, places.store_ms_at)
    reconsume_times, prepared_offset, _ = _TAIL.unpack_from(buffer, places.tail_at)
    return StoredMessage(
        size=size,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        system_flag=system_flag,
        born_ms=born_ms,
        born_host_bytes=bytes(buffer[at + BORN_HOST_AT : places.store_ms_at]),
        store_ms=store_ms,
        store_host_bytes=bytes(buffer[places.store_host_at : places.tail_at]),
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        stored_body=bytes(buffer[places.body_at : places.body_end]),
        # Compat: as Java does, bytes that are no UTF-8 are replaced, not refused.
        topic=bytes(buffer[places.topic_at : places.topic_end]).decode(errors="replace"),
        properties_bytes=bytes(buffer[places.properties_at : places.end]),
    )


def decode_records(buffer: Buffer) -> list[StoredMessage]:
    """Read records that lie back to back."""
    messages: list[StoredMessage] = []
    at = 0
    while at < len(buffer):
        message = decode_record(buffer, at)
        messages.append(message)
        at += message.size
    return messages
