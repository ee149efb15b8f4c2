"""The plain form of decoding records into rows, by the rules of record/decode.py.

It reads every record that can be read. For one that cannot, it raises an error that says where the
record is stored. It reads what the compiled form (`compiled_rows.py`) leaves, and all records if
nothing is compiled.

Java's client drops a body that it cannot decompress, and all later messages of the reply with it,
silently. A table that silently lacks rows is worse than a query that fails, so here it is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.model import property_names
from orbitmq.record.compression import decompress
from orbitmq.record.decode import Buffer, FieldPositions, Found, Verdict, locate
from orbitmq.record.hosts import decode_host
from orbitmq.record.layout import BORN_HOST_AT, COMPRESSED, FIXED_BYTES
from orbitmq.record.message_id import encode_message_id
from orbitmq.record.properties import decode_properties
from orbitmq.spark.rows.schema import Projection

Positions = npt.NDArray[np.int64]
# The topic of the record at a position; empty if it is not known.
TopicAt = Callable[[int], str]

# The largest offset of Arrow's texts and bytes.
COLUMN_BYTES_MAX: Final = 2**31 - 1
# Bodies of several rows may decompress to this many bytes, so that small records cannot take
# unbounded memory.
DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
_MS_MAX: Final = (2**63 - 1) // 1000
_SIZE: Final = struct.Struct(">I")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
# Queue id, flag, queue offset, physical offset, system flag and born time, which have fixed
# positions in every record.
_HEAD: Final = struct.Struct(">12xiiqqiq")
# The fields that an error names.
_PLACE: Final = struct.Struct(">12xi4xqq")


def record_starts(records: bytes) -> tuple[Positions, int]:
    """Where records start that are back to back, and where the last ends.

    That is the end of the bytes unless something else follows, or the last record is cut off.
    """
    starts: list[int] = []
    at = 0
    last = len(records) - FIXED_BYTES
    size_at, append = _SIZE.unpack_from, starts.append
    # Perf: 0.13 us a record, with a minimal loop (timeit).
    while at <= last:
        (size,) = size_at(records, at)
        if size < FIXED_BYTES:
            break
        append(at)
        at += size
    return np.array(starts, dtype=np.int64), at


def unknown_topic(_at: int) -> str:
    """The topic of a record of which only the bytes are known."""
    return ""


class PlainRows:
    """Decodes records into rows."""

    def __init__(self, projection: Projection, *, check_bodies: bool) -> None:
        """Decode to the columns of the projection; with `check_bodies`, check their CRC."""
        self._projection = projection
        self._check_bodies = check_bodies

    def decode(
        self,
        buffer: Buffer,
        positions: Sequence[int],
        broker_name: str,
        topic_at: TopicAt = unknown_topic,
    ) -> pa.RecordBatch:
        """Read the records at the positions; raises ProtocolError at one that cannot be read.

        And BatchTooLargeError when several decompress to more than a batch should hold.
        """
        records = _Records(
            buffer,
            [self._located(buffer, at, broker_name, topic_at) for at in positions],
            broker_name,
            has_maps=self._projection.has_maps,
        )
        schema = self._projection.arrow_schema
        # Perf: no object per record but its places. With one that has all fields, a row takes 14 us
        # instead of 9 (benchmarks/arrow_decode.py with ORBITMQ_PURE=1).
        columns = [pa.array(_COLUMNS[field.name](records), field.type) for field in schema]
        if any(isinstance(column, pa.ChunkedArray) for column in columns):
            raise BatchTooLargeError(len(positions), bytes_max=COLUMN_BYTES_MAX)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def readable_part(
        self, buffer: Buffer, at: int, broker_name: str, topic_at: TopicAt = unknown_topic
    ) -> pa.RecordBatch:
        """Make a row of what can be read of a record, and null for the rest."""
        schema = self._projection.arrow_schema
        has_bad_body = False
        if self._check_bodies:
            found = locate(buffer, at, len(buffer), check_body=True)
            has_bad_body = isinstance(found, Found) and found.verdict is Verdict.BAD_BODY
        located = locate(buffer, at, len(buffer), check_body=False)
        places = [] if isinstance(located, Found) else [located]
        records = _Records(buffer, places, broker_name, has_maps=self._projection.has_maps)
        columns = []
        for field in schema:
            column = pa.nulls(1, field.type)
            if field.name == "brokerName":
                column = pa.array([broker_name], field.type)
            elif field.name == "topic" and not places and (topic := topic_at(at)):
                column = pa.array([topic], field.type)
            elif places and not (has_bad_body and field.name == "body"):
                with suppress(ProtocolError):
                    column = pa.array(_COLUMNS[field.name](records), field.type)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _located(
        self, buffer: Buffer, at: int, broker_name: str, topic_at: TopicAt
    ) -> FieldPositions:
        found = locate(buffer, at, len(buffer), check_body=self._check_bodies)
        if not isinstance(found, Found):
            return found
        if found.verdict is Verdict.BAD_BODY:
            reason = f"its body is damaged: {found.reason}"
        else:
            reason = f"found {found.verdict.value} at byte {at}"
            reason += f": {found.reason}" if found.reason else ""
        raise unreadable(buffer, at, broker_name, reason, topic=topic_at(at))


def unreadable(
    buffer: Buffer, at: int, broker_name: str, reason: str, *, topic: str = ""
) -> ProtocolError:
    """Make the error for a record that cannot be read: where it is, as far as that is known."""
    located = locate(buffer, at, len(buffer), check_body=False)
    if not isinstance(located, Found):
        topic = str(buffer[located.topic_at : located.topic_end], "utf-8", "replace")
    where = f"a record of broker {broker_name!r}"
    if topic:
        where = f"a record of topic {topic!r} on broker {broker_name!r}"
    if len(buffer) - at >= _PLACE.size:
        queue_id, queue_offset, physical_offset = _PLACE.unpack_from(buffer, at)
        where += f", queue {queue_id}, offset {queue_offset}, physical offset {physical_offset},"
    return ProtocolError(
        f"{where} cannot be read: {reason}",
        hint="onUnreadable=skip reads the others, onUnreadable=null also the rest of this one",
    )


def check_decompressed(decompressed_bytes: int, rows: int) -> None:
    """Raise BatchTooLargeError if bodies of several rows take too much memory for one batch."""
    if decompressed_bytes > DECOMPRESSED_BYTES_MAX and rows > 1:
        raise BatchTooLargeError(rows, bytes_max=DECOMPRESSED_BYTES_MAX)


@lru_cache(maxsize=4096)
def host_text(encoded: bytes) -> str:
    """A host as text, `address:port`."""
    address, port = decode_host(encoded)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# --- columns ------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Records:
    """Records whose fields are located, and values that several columns need."""

    buffer: Buffer
    positions: list[FieldPositions]
    broker_name: str
    has_maps: bool

    @cached_property
    def heads(self) -> list[tuple[int, ...]]:
        """The fields of the head, by column."""
        buffer, unpack = self.buffer, _HEAD.unpack_from
        return list(zip(*[unpack(buffer, p.at) for p in self.positions], strict=True))

    @cached_property
    def properties(self) -> list[dict[str, str]]:
        """The properties of each record by name."""
        buffer = self.buffer
        return [decode_properties(bytes(buffer[p.properties_at : p.end])) for p in self.positions]


def _topics(records: _Records) -> list[str]:
    # Compat: as Java does, bytes that are not UTF-8 are replaced, not refused.
    buffer = records.buffer
    return [str(buffer[p.topic_at : p.topic_end], "utf-8", "replace") for p in records.positions]


def _message_ids(records: _Records) -> list[str]:
    buffer = records.buffer
    return [
        properties.get(property_names.UNIQUE_ID)
        or encode_message_id(bytes(buffer[p.store_host_at : p.tail_at]), physical_offset)
        for p, properties, physical_offset in zip(
            records.positions, records.properties, records.heads[3], strict=True
        )
    ]


def _properties(records: _Records) -> Sequence[object]:
    if records.has_maps:
        return [list(properties.items()) for properties in records.properties]
    buffer = records.buffer
    return [str(buffer[p.properties_at : p.end], "utf-8", "replace") for p in records.positions]


def _bodies(records: _Records) -> list[bytes]:
    buffer = records.buffer
    bodies = [bytes(buffer[p.body_at : p.body_end]) for p in records.positions]
    decompressed_bytes = 0
    for row, flag in enumerate(records.heads[4]):
        # Compat: as in Java, an empty body is never decompressed, whatever the flag says.
        if flag & COMPRESSED and bodies[row]:
            try:
                bodies[row] = decompress(bodies[row], flag)
            except ProtocolError as error:
                at = records.positions[row].at
                raise unreadable(buffer, at, records.broker_name, str(error)) from error
            decompressed_bytes += len(bodies[row])
            check_decompressed(decompressed_bytes, len(bodies))
    return bodies


def _system_flags(records: _Records) -> list[int]:
    # Compat: Java's decoder clears the bit of a body that it decompresses, not those of its kind.
    return [
        flag & ~COMPRESSED if p.body_end > p.body_at else flag
        for p, flag in zip(records.positions, records.heads[4], strict=True)
    ]


def _timestamps(times_ms: Sequence[int]) -> npt.NDArray[np.int64]:
    """Milliseconds as microseconds, clamped to what a timestamp can hold."""
    return np.clip(np.array(times_ms, np.int64), -_MS_MAX, _MS_MAX) * 1000


def _store_timestamps(records: _Records) -> npt.NDArray[np.int64]:
    buffer, unpack = records.buffer, _LONG.unpack_from
    return _timestamps([unpack(buffer, p.store_ms_at)[0] for p in records.positions])


def _born_hosts(records: _Records) -> list[str]:
    buffer = records.buffer
    return [
        host_text(bytes(buffer[p.at + BORN_HOST_AT : p.store_ms_at])) for p in records.positions
    ]


def _store_hosts(records: _Records) -> list[str]:
    buffer = records.buffer
    return [host_text(bytes(buffer[p.store_host_at : p.tail_at])) for p in records.positions]


def _reconsume_times(records: _Records) -> list[int]:
    buffer = records.buffer
    return [_INT.unpack_from(buffer, p.tail_at)[0] for p in records.positions]


_COLUMNS: Final[dict[str, Callable[[_Records], Sequence[Any] | npt.NDArray[np.int64]]]] = {
    "topic": _topics,
    "brokerName": lambda records: [records.broker_name] * len(records.positions),
    "queueId": lambda records: records.heads[0],
    "queueOffset": lambda records: records.heads[2],
    "physicalOffset": lambda records: records.heads[3],
    "msgId": _message_ids,
    "keys": lambda records: [one.get(property_names.KEYS) for one in records.properties],
    "tags": lambda records: [one.get(property_names.TAGS) for one in records.properties],
    "flag": lambda records: records.heads[1],
    "properties": _properties,
    "body": _bodies,
    "bornTimestamp": lambda records: _timestamps(records.heads[5]),
    "storeTimestamp": _store_timestamps,
    "bornHost": _born_hosts,
    "storeHost": _store_hosts,
    "sysFlag": _system_flags,
    "reconsumeTimes": _reconsume_times,
}
