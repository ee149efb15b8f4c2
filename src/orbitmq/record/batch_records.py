"""From a batch of messages to records: the plain form; the compiled one equals it.

A batch is written as it came (`batch`), without an object per message. Whoever asks for that has
looked at its messages before, and knows how long their records are.
"""

from __future__ import annotations

from typing import Final

from orbitmq.errors import MessageError, ProtocolError
from orbitmq.record.batch import decode_batch
from orbitmq.record.encode import WritableBuffer, encode_record
from orbitmq.record.layout import PROPERTIES_BYTES_MAX, record_bytes

_VALUE_END: Final = b"\x02"


def encode_batch_records(  # noqa: PLR0913, PLR0917  # plain arguments, as the compiled form has
    buffer: WritableBuffer,
    at: int,
    records_bytes: int,
    messages: bytes,
    start: int,
    end: int,
    marks: bytes,
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

    `marks` are properties that are added to each. The first eight bytes of the first record are
    written last: all begin to exist when they are there. Returns the message ids, with commas
    between them.

    Raises MessageError when a number does not fit its field, ValueError when there is no batch or
    its records do not fill their room; then nothing is left there.
    """
    if records_bytes <= 0 or not 0 <= physical_offset < 2**63 - records_bytes:
        raise MessageError(f"no {records_bytes} bytes lie at physical offset {physical_offset}")
    if at < 0 or at + records_bytes > len(buffer):
        raise ValueError(f"{records_bytes} bytes do not fit at byte {at} of {len(buffer)}")
    try:
        batch = decode_batch(messages[start:end] if start >= 0 else b"")
    except ProtocolError as error:
        raise ValueError(f"no batch lies at bytes {start} to {end}: {error}") from error
    texts = [_ended(properties) + marks for _, _, properties in batch]
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
    """Properties whose last value is ended, so that others can follow."""
    return properties if properties.endswith(_VALUE_END) else properties + _VALUE_END
