"""Rows of ordinary records, read by the compiled form (rows_cython.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from orbitmq.spark import arrow_columns
from orbitmq.spark.compiled import rows_cython
from orbitmq.spark.compiled.rows_cython import HOSTS, INTS, LONGS, Columns, columns_of
from orbitmq.spark.property_columns import Entries, find_entries
from orbitmq.spark.record_places import Mask, Positions

if TYPE_CHECKING:
    from orbitmq.spark.schema import Projection


def record_starts(records: bytes) -> tuple[Positions, int]:
    """Where records start that lie back to back, and where the last ends."""
    starts, count, end = rows_cython.record_starts(records)
    return np.frombuffer(starts, np.int64, count), end


class CompiledRows:
    """Makes rows of those records that the compiled form reads."""

    def __init__(self, projection: Projection, *, check_bodies: bool) -> None:
        self._schema = projection.arrow_schema
        names = set(projection.names)
        self._maps = self._schema.field("properties").type if projection.has_maps else None
        self._finds_entries = projection.has_entries
        self._checks_texts = projection.has_entries or not names.isdisjoint({"topic", "properties"})
        self._checks_bodies = check_bodies

    def decode(
        self, content: pa.Buffer, positions: Positions, broker_name: str
    ) -> tuple[pa.RecordBatch | None, Mask]:
        """Give the rows of the records that are read here, and which records are not."""
        columns = columns_of(
            content,
            np.ascontiguousarray(positions, np.int64).data,
            check_texts=self._checks_texts,
            find_entries=self._finds_entries,
            check_bodies=self._checks_bodies,
        )
        is_left = np.frombuffer(columns.is_left, np.bool_)
        if not columns.rows:
            return None, is_left
        maps = None
        if self._maps is not None:
            entries = find_entries(_texts(columns, "properties", pa.binary()))
            assert isinstance(entries, Entries)
            maps = entries.maps(self._maps)
            if isinstance(maps, np.ndarray):
                return self._without(content, positions, broker_name, is_left, maps)
        arrays = [self._column(columns, field, maps, broker_name) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), is_left

    def _without(
        self,
        content: pa.Buffer,
        positions: Positions,
        broker_name: str,
        is_left: Mask,
        repeats: Mask,
    ) -> tuple[pa.RecordBatch | None, Mask]:
        """Leave out rows as well that repeat a name, which no map can have."""
        others = np.flatnonzero(~is_left)[~repeats]
        batch, are_left = self.decode(content, positions[others], broker_name)
        is_left = np.ones(len(positions), np.bool_)
        is_left[others] = are_left
        return batch, is_left

    def _column(  # noqa: PLR0911  # a column a line reads best
        self, columns: Columns, field: pa.Field, maps: pa.Array | None, broker_name: str
    ) -> pa.Array:
        name = field.name
        if name in INTS:
            return _numbers(columns, columns.ints, INTS.index(name), field.type)
        if name in LONGS:
            return _numbers(columns, columns.longs, LONGS.index(name), field.type)
        if name in HOSTS:
            return _array(columns, field.type, columns.hosts(name))
        match name:
            case "brokerName":
                return arrow_columns.constant(broker_name, columns.rows)
            case "msgId":
                return _array(columns, field.type, columns.ids())
            case "keys" | "tags":
                are_there, lacking, offsets, texts = columns.optional_texts(name)
                return _array(columns, field.type, (offsets, texts), are_there, lacking)
            case "properties" if maps is not None:
                return maps
            case _:
                return _texts(columns, name, field.type)


def _numbers(columns: Columns, numbers: bytes, place: int, kind: pa.DataType) -> pa.Array:
    size = kind.bit_width // 8
    records = len(columns.is_left)
    buffer = pa.py_buffer(numbers).slice(place * records * size, columns.rows * size)
    return pa.Array.from_buffers(kind, columns.rows, [None, buffer])


def _texts(columns: Columns, name: str, kind: pa.DataType) -> pa.Array:
    return _array(columns, kind, columns.texts(name))


def _array(
    columns: Columns,
    kind: pa.DataType,
    texts: tuple[bytes, bytes],
    are_there: bytes = b"",
    lacking: int = 0,
) -> pa.Array:
    valid = pa.py_buffer(are_there) if lacking else None
    buffers = [valid, *map(pa.py_buffer, texts)]
    return pa.Array.from_buffers(kind, columns.rows, buffers, null_count=lacking)
