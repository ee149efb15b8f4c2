"""Decodes records into rows with the compiled form (rows_cython.py)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.errors import BatchTooLargeError, ProtocolError
from orbitmq.record.compression import decompress
from orbitmq.spark.rows.compiled import rows_cython
from orbitmq.spark.rows.compiled.rows_cython import HOSTS, INTS, LONGS, Columns, columns_of
from orbitmq.spark.rows.plain_rows import COLUMN_BYTES_MAX, Positions, check_decompressed, host_text

if TYPE_CHECKING:
    from orbitmq.spark.rows.schema import Projection

Mask = npt.NDArray[np.bool_]

# Columns of one repeated text are cached up to this many rows.
_CACHED_ROWS_MAX: Final = 16 * 1024


def record_starts(records: bytes) -> tuple[Positions, int]:
    """Where records start that are back to back, and where the last ends."""
    starts, count, end = rows_cython.record_starts(records)
    return np.frombuffer(starts, np.int64, count), end


class CompiledRows:
    """Decodes those records that the compiled form can read."""

    def __init__(self, projection: Projection, *, check_bodies: bool) -> None:
        """Decode to the columns of the projection; with `check_bodies`, check their CRC."""
        self._schema = projection.arrow_schema
        names = set(projection.names)
        self._has_bodies = projection.has_bodies
        self._has_maps = projection.has_maps
        self._finds_entries = projection.has_entries
        self._checks_texts = projection.has_entries or not names.isdisjoint({"topic", "properties"})
        self._checks_bodies = check_bodies

    def decode(
        self, content: pa.Buffer, positions: Positions, broker_name: str
    ) -> tuple[pa.RecordBatch | None, Mask]:
        """Return the rows of the records that are read here, and which records are not.

        Raises BatchTooLargeError if bodies decompress to more than a batch should hold.
        """
        columns = columns_of(
            content,
            np.ascontiguousarray(positions, np.int64).data,
            check_texts=self._checks_texts,
            find_entries=self._finds_entries,
            find_maps=self._has_maps,
            check_bodies=self._checks_bodies,
        )
        is_left = np.frombuffer(columns.is_left, np.bool_)
        if not columns.rows:
            return None, is_left
        try:
            decompressed = _decompressed(columns, content) if self._has_bodies else []
        except ProtocolError:
            # The plain form reads all of them in order, and names the broken record.
            return None, np.ones(len(positions), np.bool_)
        arrays = [self._column(columns, field, decompressed, broker_name) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), is_left

    def _column(  # noqa: PLR0911  # a column a line reads best
        self, columns: Columns, field: pa.Field, decompressed: list[bytes], broker_name: str
    ) -> pa.Array:
        name = field.name
        if name in INTS:
            return _numbers(columns, columns.ints, INTS.index(name), field.type)
        if name in LONGS:
            return _numbers(columns, columns.longs, LONGS.index(name), field.type)
        if name in HOSTS:
            return _texts(field.type, columns.rows, columns.hosts(name, host_text))
        match name:
            case "brokerName":
                return constant(broker_name, columns.rows)
            case "msgId":
                return _texts(field.type, columns.rows, columns.ids())
            case "keys" | "tags":
                validity, missing, offsets, texts = columns.optional_texts(name)
                return _texts(field.type, columns.rows, (offsets, texts), validity, missing)
            case "body" if decompressed:
                return _texts(field.type, columns.rows, _bodies(columns, decompressed))
            case "properties" if self._has_maps:
                return _maps(field.type, columns)
            case _:
                return _texts(field.type, columns.rows, columns.texts(name))


def _decompressed(columns: Columns, content: pa.Buffer) -> list[bytes]:
    """Decompress the bodies that are compressed; raises ProtocolError if one cannot be."""
    bodies: list[bytes] = []
    decompressed_bytes = 0
    compressed = columns.compressed_bodies()
    if not compressed:
        return bodies
    records = memoryview(content)
    for at, body_bytes, system_flag in compressed:
        body = decompress(bytes(records[at : at + body_bytes]), system_flag)
        bodies.append(body)
        decompressed_bytes += len(body)
        check_decompressed(decompressed_bytes, columns.rows)
    return bodies


# --- columns ------------------------------------------------------------------------------------


def _bodies(columns: Columns, decompressed: list[bytes]) -> tuple[bytes, bytes]:
    try:
        return columns.bodies(decompressed, COLUMN_BYTES_MAX)
    except OverflowError as error:
        raise BatchTooLargeError(columns.rows, bytes_max=COLUMN_BYTES_MAX) from error


def _maps(kind: pa.DataType, columns: Columns) -> pa.Array:
    first_entries, names, values = columns.maps()
    entries = len(names[0]) // 4 - 1
    items = pa.StructArray.from_arrays(
        [_texts(pa.string(), entries, names), _texts(pa.string(), entries, values)],
        fields=[kind.key_field, kind.item_field],
    )
    return pa.Array.from_buffers(
        kind, columns.rows, [None, pa.py_buffer(first_entries)], children=[items]
    )


def _numbers(columns: Columns, numbers: bytes, place: int, kind: pa.DataType) -> pa.Array:
    size = kind.bit_width // 8
    records = len(columns.is_left)
    buffer = pa.py_buffer(numbers).slice(place * records * size, columns.rows * size)
    return pa.Array.from_buffers(kind, columns.rows, [None, buffer])


def _texts(
    kind: pa.DataType,
    rows: int,
    texts: tuple[bytes, bytes],
    validity: bytes = b"",
    missing: int = 0,
) -> pa.Array:
    valid = pa.py_buffer(validity) if missing else None
    buffers = [valid, *map(pa.py_buffer, texts)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=missing)


def constant(text: str, rows: int) -> pa.Array:
    """A column with the same text in each row."""
    if rows > _CACHED_ROWS_MAX:
        return _constant(text, rows)
    # Perf: batches differ in size, so slices of one cached column serve many of them.
    return _cached_constant(text, 1 << (rows - 1).bit_length()).slice(0, rows)


def _constant(text: str, rows: int) -> pa.Array:
    encoded = text.encode()
    offsets = np.arange(rows + 1, dtype=np.int64) * len(encoded)
    return pa.StringArray.from_buffers(
        rows, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(encoded * rows)
    )


_cached_constant: Final = lru_cache(maxsize=16)(_constant)
