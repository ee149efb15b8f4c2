"""Rows of records that are not ordinary, read one by one by the plain decoder.

Here also ends every record that cannot be read: the error says where it lies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.model import property_names
from orbitmq.record.decode import StoredMessage, Verdict, decode_record, examine
from orbitmq.record.layout import COMPRESSED
from orbitmq.spark.arrow_columns import COLUMN_BYTES_MAX, host_text, timestamp_us
from orbitmq.spark.schema import Projection

# Bodies of several rows unpack to so many bytes at most, so that small records take no memory
# without bound. What rows.py reads by columns is held to it, too.
UNPACKED_BYTES_MAX: Final = 64 * 1024 * 1024
# Queue id, queue offset and physical offset, which lie at the same place in every record.
_PLACE: Final = struct.Struct(">12xi4xqq")


def odd_rows(
    buffer: memoryview,
    positions: Iterable[int],
    broker_name: str,
    projection: Projection,
    *,
    check_bodies: bool,
) -> pa.RecordBatch:
    """Read the records at the positions; raises ProtocolError at the first that cannot be read.

    And BatchTooLargeError when several unpack to more than a batch should hold.
    """
    unpacked_bytes = 0
    rows: list[tuple[Any, ...]] = []
    readers = [_reader(name, broker_name, projection) for name in projection.names]
    body_column = projection.names.index("body") if "body" in projection.names else None
    for at in positions:
        try:
            message = _read(buffer, at, check_body=check_bodies)
            row = tuple(reader(message) for reader in readers)
        except ProtocolError as error:
            raise unreadable(buffer, at, broker_name, str(error)) from error
        rows.append(row)
        if body_column is not None and message.system_flag & COMPRESSED:
            unpacked_bytes += len(row[body_column])
        if unpacked_bytes > UNPACKED_BYTES_MAX and len(rows) > 1:
            raise BatchTooLargeError(len(rows), bytes_max=UNPACKED_BYTES_MAX)
    schema = projection.arrow_schema
    columns = [
        pa.array(column, kind)
        for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
    ]
    if any(isinstance(column, pa.ChunkedArray) for column in columns):
        raise BatchTooLargeError(len(rows), bytes_max=COLUMN_BYTES_MAX)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def unreadable(buffer: memoryview, at: int, broker_name: str, reason: str) -> ProtocolError:
    """Make the error for a record that cannot be read: where it lies, as far as that is known."""
    where = f"a record of broker {broker_name!r}"
    if len(buffer) - at >= _PLACE.size:
        queue_id, queue_offset, physical_offset = _PLACE.unpack_from(buffer, at)
        where += f", queue {queue_id}, offset {queue_offset}, physical offset {physical_offset},"
    return ProtocolError(
        f"{where} cannot be read: {reason}", hint="failOnDataLoss=false reads the others"
    )


def _read(buffer: memoryview, at: int, *, check_body: bool) -> StoredMessage:
    if check_body:
        found = examine(buffer, at, len(buffer), check_body=True)
        if found.verdict is Verdict.BAD_BODY:
            raise ProtocolError(f"its body does not fit: {found.reason}")
    return decode_record(buffer, at)


# --- columns ------------------------------------------------------------------------------------


def _reader(name: str, broker_name: str, projection: Projection) -> Callable[[StoredMessage], Any]:
    """What reads the value of a column from a message."""
    if name == "brokerName":
        return lambda _: broker_name
    if name == "properties" and projection.properties == "map":
        return lambda message: list(message.properties.items())
    return _READERS[name]


def _message_id(message: StoredMessage) -> str:
    return message.properties.get(property_names.UNIQUE_ID) or message.message_id


def _system_flag(message: StoredMessage) -> int:
    # Compat: Java's decoder clears the bit when it unpacks the body, and leaves those of its kind.
    return message.system_flag & ~COMPRESSED if message.stored_body else message.system_flag


_READERS: Final[dict[str, Callable[[StoredMessage], Any]]] = {
    "topic": lambda message: message.topic,
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "physicalOffset": lambda message: message.physical_offset,
    "msgId": _message_id,
    "keys": lambda message: message.properties.get(property_names.KEYS),
    "tags": lambda message: message.properties.get(property_names.TAGS),
    "flag": lambda message: message.flag,
    "properties": lambda message: message.properties_bytes.decode(errors="replace"),
    "body": lambda message: message.body,
    "bornTimestamp": lambda message: timestamp_us(message.born_ms),
    "storeTimestamp": lambda message: timestamp_us(message.store_ms),
    "bornHost": lambda message: host_text(message.born_host_bytes),
    "storeHost": lambda message: host_text(message.store_host_bytes),
    "sysFlag": _system_flag,
    "reconsumeTimes": lambda message: message.reconsume_times,
}
