"""Stored records as rows of Arrow: the one decoder of pull replies and log files.

Records are read together, column by column, without Python per record, but for bodies that must be
unpacked: most of them by the compiled form where it is there (`compiled_rows.py`), the others
here. What is odd takes the plain decoder, record by record (`odd_records.py`): properties that
break their rules or name something twice in a map, texts that are no UTF-8, and whatever is
damaged, which is an error there. Rows keep the order of their records.

A batch copies what it holds, so that the bytes it was made of may go. One batch should have 5,000
to 10,000 rows or 1 to 5 MB of records, whichever is reached first: that is where Spark takes them
fastest. None of its columns can hold 2 GiB, and bodies of several rows may not unpack to more than
64 MiB, which is told by an error; nothing is split here but in `row_batches.py`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import BatchTooLargeError
from orbitmq.model import property_names
from orbitmq.record.decode import examine
from orbitmq.record.layout import COMPRESSED
from orbitmq.spark import arrow_columns, fast_forms
from orbitmq.spark.arrow_columns import COLUMN_BYTES_MAX, gather, not_utf8
from orbitmq.spark.body_columns import bodies, check_bodies
from orbitmq.spark.odd_records import odd_rows, unreadable
from orbitmq.spark.property_columns import Entries, find_entries
from orbitmq.spark.record_places import Located, Mask, Positions, locate_all
from orbitmq.spark.schema import Projection

_SIZE: Final = struct.Struct(">I")
# Fields that are columns as they are.
_NUMBERS: Final = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "flag": "flag",
    "reconsumeTimes": "reconsume_times",
}
_TIMES: Final = {"bornTimestamp": "born_ms", "storeTimestamp": "store_ms"}
_HOSTS: Final = {"bornHost": "born_host", "storeHost": "store_host"}
# Columns that are one property.
_PROPERTIES: Final = {
    "msgId": property_names.UNIQUE_ID.encode(),
    "keys": property_names.KEYS.encode(),
    "tags": property_names.TAGS.encode(),
}


def record_positions(records: bytes, *, broker_name: str = "") -> Positions:
    """Where the records start that lie back to back, as in the reply to a pull."""
    starts, at = fast_forms.record_starts(records)
    end = len(records)
    if at != end:
        wrong_at = at if at < end else int(starts[-1])
        found = examine(records, wrong_at, end, check_body=False)
        reason = f"at byte {wrong_at} of {end} lies {found.verdict.value}: {found.reason}"
        raise unreadable(memoryview(records), wrong_at, broker_name, reason)
    return starts


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of records; those that are not asked for are None."""

    topics: pa.Array = None
    properties: pa.Array = None
    entries: Entries | None = None
    maps: pa.Array = None


class _Part(NamedTuple):
    """Some rows of a batch, and their numbers in it."""

    rows: Positions
    batch: pa.RecordBatch


class RowDecoder:
    """Makes rows of records."""

    def __init__(self, projection: Projection, *, check_bodies: bool = False) -> None:
        """Decode to the columns of the projection; with `check_bodies`, check their CRC."""
        self._projection = projection
        self._check_bodies = check_bodies
        self._compiled = None
        if fast_forms.ordinary_rows is not None:
            self._compiled = fast_forms.ordinary_rows(projection, check_bodies=check_bodies)
        self._wants_topic = "topic" in projection.names
        self._wants_maps = projection.has_maps
        self._wants_entries = projection.has_entries
        self._wants_properties = self._wants_entries or "properties" in projection.names

    def decode(
        self, buffer: bytes | memoryview | mmap.mmap, positions: Positions, broker_name: str
    ) -> pa.RecordBatch:
        """Read the records that start at the positions, which ascend; one row each, in order.

        Raises ProtocolError at a record that cannot be read, or whose body does not fit its
        checksum if that is checked, and BatchTooLargeError if a column would take 2 GiB or
        bodies unpack to too much for one batch.
        """
        if not len(positions):
            return pa.RecordBatch.from_pylist([], schema=self._projection.arrow_schema)
        base, end = _span(buffer, positions)
        content = pa.py_buffer(buffer).slice(base, end - base)
        places = positions - base if base else positions
        parts: list[_Part] = []
        left = np.arange(len(positions))
        if self._compiled is not None:
            batch, is_left = self._compiled.decode(content, places, broker_name)
            # Perf: what follows takes as long as the rows of ordinary records.
            if batch is not None and batch.num_rows == len(positions):
                return batch
            left = np.flatnonzero(is_left)
            if batch is not None:
                parts.append(_Part(np.flatnonzero(~is_left), batch))
        _check_positions(positions, len(buffer))
        parts += self._plain(content, places[left], left, broker_name)
        is_odd = np.ones(len(positions), dtype=np.bool_)
        for part in parts:
            is_odd[part.rows] = False
        if is_odd.any():
            odd = np.flatnonzero(is_odd)
            batch = odd_rows(
                memoryview(buffer),
                positions[odd].tolist(),
                broker_name,
                self._projection,
                check_bodies=self._check_bodies,
            )
            parts.append(_Part(odd, batch))
        return parts[0].batch if len(parts) == 1 else _in_order(parts)

    def _plain(
        self, content: pa.Buffer, places: Positions, rows: Positions, broker_name: str
    ) -> Iterator[_Part]:
        """Read records that become certain rows, without those that are odd."""
        for located in locate_all(np.frombuffer(content, dtype=np.uint8), places):
            ordinary, texts = self._ordinary(content, located)
            if len(ordinary):
                batch = self._rows(content, ordinary, texts, broker_name)
                yield _Part(rows[ordinary.rows], batch)

    # --- ordinary records -----------------------------------------------------------------------

    def _ordinary(self, content: pa.Buffer, located: Located) -> tuple[Located, _Texts]:
        """Leave out the records that are odd, and read the texts of the others."""
        while len(located):
            texts = self._texts(content, located)
            if isinstance(texts, _Texts):
                return located, texts
            located = located.select(~texts)
        return located, _Texts()

    def _texts(self, content: pa.Buffer, located: Located) -> _Texts | Mask:
        """The texts of records; or which of the records are odd."""
        topics = properties = maps = None
        entries: Entries | None = None
        if self._wants_topic:
            topics = gather(content, located.topic_at, located.topic_bytes)
            if (odd := not_utf8(topics)) is not None:
                return odd
        if self._wants_properties:
            properties = gather(content, located.properties_at, located.properties_bytes)
            if (odd := not_utf8(properties)) is not None:
                return odd
        if self._wants_entries:
            found = find_entries(properties)
            if not isinstance(found, Entries):
                return found
            entries = found
        if self._wants_maps:
            assert entries is not None
            maps = entries.maps(self._projection.arrow_schema.field("properties").type)
            if isinstance(maps, np.ndarray):
                return maps
        return _Texts(topics, properties, entries, maps)

    def _rows(
        self, content: pa.Buffer, located: Located, texts: _Texts, broker_name: str
    ) -> pa.RecordBatch:
        if self._check_bodies:
            check_bodies(content, located, broker_name)
        columns = [
            self._column(field, content, located, texts, broker_name)
            for field in self._projection.arrow_schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._projection.arrow_schema)

    def _column(  # noqa: PLR0911  # a column a line reads best
        self,
        field: pa.Field,
        content: pa.Buffer,
        located: Located,
        texts: _Texts,
        broker_name: str,
    ) -> pa.Array:
        name = field.name
        if name in _NUMBERS:
            return pa.array(located.numbers(_NUMBERS[name]))
        if name in _TIMES:
            return arrow_columns.timestamps(located.numbers(_TIMES[name]), field.type)
        if name in _HOSTS:
            return arrow_columns.hosts(located.heads, _HOSTS[name])
        if name in _PROPERTIES:
            return _property(name, located, texts)
        match name:
            case "body":
                return bodies(content, located, broker_name)
            case "topic":
                return texts.topics.view(pa.string())
            case "properties":
                return texts.maps if self._wants_maps else texts.properties.view(pa.string())
            case "brokerName":
                return arrow_columns.constant(broker_name, len(located))
            case _:
                assert name == "sysFlag"
                return _system_flags(located)


def _property(name: str, located: Located, texts: _Texts) -> pa.Array:
    assert texts.entries is not None
    values = texts.entries.values_of(_PROPERTIES[name])
    if name == "msgId" and values.null_count:
        return pc.coalesce(values, arrow_columns.offset_ids(located.heads))
    return values


def _system_flags(located: Located) -> pa.Array:
    # Compat: Java's decoder clears the bit of a body that it unpacks.
    flags = located.numbers("system_flag")
    return pa.array(np.where(located.body_bytes > 0, flags & ~COMPRESSED, flags))


# --- batches ------------------------------------------------------------------------------------


def _check_positions(positions: Positions, buffer_bytes: int) -> None:
    if positions[0] < 0 or positions[-1] >= buffer_bytes or (np.diff(positions) <= 0).any():
        raise ValueError(
            f"{len(positions)} positions from {positions[0]} to {positions[-1]} do not ascend "
            f"within {buffer_bytes} bytes"
        )


def _span(buffer: bytes | memoryview | mmap.mmap, positions: Positions) -> tuple[int, int]:
    """The part of the buffer that has the records; what Arrow's offsets cannot count is refused."""
    if len(buffer) <= COLUMN_BYTES_MAX:
        return 0, len(buffer)
    _check_positions(positions, len(buffer))
    first, last = int(positions[0]), int(positions[-1])
    end = len(buffer)
    if end - last >= _SIZE.size:
        end = min(end, last + _SIZE.unpack_from(buffer, last)[0])
    if end - first > COLUMN_BYTES_MAX:
        raise BatchTooLargeError(len(positions), bytes_max=COLUMN_BYTES_MAX)
    return first, end


def _in_order(parts: list[_Part]) -> pa.RecordBatch:
    """One batch of several, with the rows where they belong."""
    if sum(part.batch.nbytes for part in parts) > COLUMN_BYTES_MAX:
        raise BatchTooLargeError(sum(len(part.rows) for part in parts), bytes_max=COLUMN_BYTES_MAX)
    order = np.argsort(np.concatenate([part.rows for part in parts]))
    return pa.concat_batches([part.batch for part in parts]).take(pa.array(order))
