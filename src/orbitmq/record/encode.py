"""Writing records, singly or a batch at a time: the plain forms.

The compiled forms write the same bytes.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from orbitmq.errors import MessageError, ProtocolError
from orbitmq.record.batch import decode_batch
from orbitmq.record.layout import (
    BLANK,
    BORN_HOST_V6,
    CRC_MASK,
    HOST_BYTES_V4,
    HOST_BYTES_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_BYTES_MAX,
    RECORD_BYTES_MAX,
    STORE_HOST_V6,
    TOPIC_BYTES_MAX,
    TOPIC_BYTES_MAX_V1,
    record_bytes,
)

WritableBuffer = bytearray | memoryview

# Perf: one packing call for a record, and one for its start. Making a Struct costs more than the
# call, so recent ones are cached by their lengths (benchmarks/append.py). Lengths in the cache have
# been checked.
_STRUCTS_MAX: Final = 4096
_HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
_Lengths = tuple[int, int, int, int, int, int]
_VALUE_END: Final = b"\x02"
_structs: dict[_Lengths, struct.Struct] = {}


def encode_record(  # noqa: PLR0913, PLR0917  # Perf: an argument object costs 0.8 us
    buffer: WritableBuffer,
    at: int,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    body: bytes,
    properties: bytes,
    flag: int,
    system_flag: int,
    born_ms: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int,
) -> int:
    """Write one record at `buffer[at:]`; return its size.

    Size and magic are written last: a record exists only once the rest of it is written.
    Raises MessageError if a value does not fit its field, ValueError if the record does not fit
    the buffer; then nothing of it stays there.
    """
    lengths = (
        len(body),
        len(topic),
        len(properties),
        len(born_host),
        len(store_host),
        system_flag & _HOSTS_V6,
    )
    packer = _structs.get(lengths) or _struct_for(lengths)
    size = packer.size + BLANK.size
    if at < 0 or at + size > len(buffer):
        raise ValueError(f"{size} bytes do not fit at byte {at} of {len(buffer)}")
    try:
        packer.pack_into(
            buffer,
            at + BLANK.size,
            zlib.crc32(body) & CRC_MASK,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            system_flag,
            born_ms,
            born_host,
            store_ms,
            store_host,
            reconsume_times,
            prepared_offset,
            len(body),
            body,
            len(topic),
            topic,
            len(properties),
            properties,
        )
    except struct.error as error:
        buffer[at : at + size] = bytes(size)
        raise MessageError(f"a number does not fit its field of a record: {error}") from error
    BLANK.pack_into(buffer, at, size, MAGIC_V2 if len(topic) > TOPIC_BYTES_MAX_V1 else MAGIC_V1)
    return size


def encode_batch_records(  # noqa: PLR0913, PLR0917  # plain arguments, like the compiled form
    buffer: WritableBuffer,
    at: int,
    records_bytes: int,
    messages: bytes,
    start: int,
    end: int,
    broker_properties: bytes,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    system_flag: int,
    born_ms: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    reconsume_times: int,
) -> bytes:
    """Write the messages at `messages[start:end]` as records at `buffer[at:at + records_bytes]`.

    The messages are a batch as received (`batch`), which the caller has checked: it knows how long
    their records are. `broker_properties` are appended to the properties of each. The first eight
    bytes of the first record are written last: until then none of the records exists. Returns the
    message ids, separated by commas.

    Raises MessageError if a number does not fit its field, ValueError if there is no batch or its
    records do not fill their room; then nothing of them stays there.
    """
    if records_bytes <= 0 or not 0 <= physical_offset < 2**63 - records_bytes:
        raise MessageError(
            f"{records_bytes} bytes do not fit the log at physical offset {physical_offset}"
        )
    if at < 0 or at + records_bytes > len(buffer):
        raise ValueError(f"{records_bytes} bytes do not fit at byte {at} of {len(buffer)}")
    try:
        batch = decode_batch(messages[start:end] if start >= 0 else b"")
    except ProtocolError as error:
        raise ValueError(f"bytes {start} to {end} are not a batch: {error}") from error
    texts = [_ended(properties) + broker_properties for _, _, properties in batch]
    offsets = [0]
    for (_, body, _), properties in zip(batch, texts, strict=True):
        size = record_bytes(
            body_bytes=len(body),
            topic_bytes=len(topic),
            properties_bytes=len(properties),
            system_flag=system_flag,
        )
        offsets.append(offsets[-1] + size)
    if offsets[-1] != records_bytes or any(len(text) > PROPERTIES_BYTES_MAX for text in texts):
        raise ValueError(f"records of {offsets[-1]} bytes do not fill {records_bytes}")
    for number in range(len(batch) - 1, -1, -1):
        flag, body, _ = batch[number]
        encode_record(
            buffer,
            at + offsets[number],
            topic,
            queue_id,
            queue_offset + number,
            physical_offset + offsets[number],
            body,
            texts[number],
            flag,
            system_flag,
            born_ms,
            born_host,
            store_ms,
            store_host,
            reconsume_times,
            0,
        )
    prefix = store_host.hex().upper().encode()
    return b",".join([b"%b%016X" % (prefix, physical_offset + offset) for offset in offsets[:-1]])


def _ended(properties: bytes) -> bytes:
    """Terminate the last value of properties, so that others can follow."""
    return properties if properties.endswith(_VALUE_END) else properties + _VALUE_END


def encode_blank(buffer: WritableBuffer, at: int, rest_bytes: int) -> None:
    """Mark the rest of a log file as unused."""
    BLANK.pack_into(buffer, at, rest_bytes, MAGIC_BLANK)


def check_lengths(
    body: int, topic: int, properties: int, born_host: int, store_host: int, system_flag: int
) -> None:
    """Raise MessageError unless a record can have fields of these lengths."""
    if topic > TOPIC_BYTES_MAX:
        raise MessageError(f"a topic of {topic} bytes is above {TOPIC_BYTES_MAX}")
    if properties > PROPERTIES_BYTES_MAX:
        raise MessageError(f"properties of {properties} bytes are above {PROPERTIES_BYTES_MAX}")
    for name, host, v6_flag in (
        ("born", born_host, BORN_HOST_V6),
        ("store", store_host, STORE_HOST_V6),
    ):
        if host != (HOST_BYTES_V6 if system_flag & v6_flag else HOST_BYTES_V4):
            raise MessageError(
                f"a {name} host of {host} bytes does not fit the system flag {system_flag:#x}"
            )
    size = record_bytes(
        body_bytes=body, topic_bytes=topic, properties_bytes=properties, system_flag=system_flag
    )
    if size > RECORD_BYTES_MAX:
        raise MessageError(f"a record of {size} bytes is above {RECORD_BYTES_MAX}")


def _struct_for(lengths: _Lengths) -> struct.Struct:
    check_lengths(*lengths)
    body, topic, properties, born_host, store_host, _ = lengths
    topic_length = "H" if topic > TOPIC_BYTES_MAX_V1 else "B"
    made = struct.Struct(
        f">Iiiqqiq{born_host}sq{store_host}siqi{body}s{topic_length}{topic}sh{properties}s"
    )
    if len(_structs) >= _STRUCTS_MAX:
        _structs.clear()
    _structs[lengths] = made
    return made
