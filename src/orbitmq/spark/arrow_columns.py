"""Arrow columns out of bytes that lie elsewhere, without Python per row."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.record.hosts import decode_host
from orbitmq.spark.record_places import Mask, Positions

# What the offsets of Arrow's texts and bytes can count to.
COLUMN_BYTES_MAX: Final = 2**31 - 1
# Of columns with one text, those up to so many rows are kept.
_KEPT_ROWS_MAX: Final = 16 * 1024
_MS_MAX: Final = (2**63 - 1) // 1000
_HEX_DIGITS: Final = np.frombuffer(
    "".join(f"{byte:02X}" for byte in range(256)).encode(), dtype=np.uint16
)


def gather(content: pa.Buffer, at: Positions, lengths: Positions) -> pa.Array:
    """Copy slices into one column of bytes; they must not overlap, and must be in order."""
    # Perf: an array that has the slices in its even slots and what lies between in its odd ones
    # needs no copy, and taking from it is one copy in C++; joining slices in Python takes ten
    # times as long (benchmarks/arrow_decode.py).
    slots = between(at, lengths)
    rows = len(at)
    source = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(slots), content])
    return source.take(even_slots(rows))


def between(at: Positions, lengths: Positions) -> npt.NDArray[np.int32]:
    """Offsets of an array whose even slots are the slices, and whose odd ones are the gaps."""
    slots = np.empty(2 * len(at) + 1, dtype=np.int32)
    slots[:-1:2] = at
    slots[1::2] = at + lengths
    slots[-1] = slots[-2]
    return slots


@lru_cache(maxsize=8)  # Perf: 7 us, and most batches have as many rows as the one before
def even_slots(rows: int) -> pa.Array:
    """The numbers of the slots that `between` has slices in."""
    return pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32))


def content_of(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Offsets and bytes of a column of texts or bytes that is no slice of another."""
    assert column.offset == 0
    _, offsets_buffer, content = column.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32, count=len(column) + 1)
    if not offsets[-1]:
        return offsets, np.empty(0, dtype=np.uint8)
    return offsets, np.frombuffer(content, dtype=np.uint8, count=int(offsets[-1]))


def not_utf8(column: pa.Array) -> Mask | None:
    """Which rows are no text; None when all are."""
    _, content = content_of(column)
    # Perf: most texts are ASCII, and that is told at a fifth of the price (timeit).
    if not len(content) or content.max() < 0x80:
        return None
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([not _is_utf8(text) for text in column.to_pylist()], dtype=np.bool_)
    return None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def constant(text: str, rows: int) -> pa.Array:
    """A column that has the same text in each row."""
    if rows > _KEPT_ROWS_MAX:
        return _constant(text, rows)
    # Perf: batches differ in their rows, so that one column serves many by its beginning.
    return _kept_constant(text, 1 << (rows - 1).bit_length()).slice(0, rows)


def _constant(text: str, rows: int) -> pa.Array:
    encoded = text.encode()
    offsets = np.arange(rows + 1, dtype=np.int64) * len(encoded)
    return pa.StringArray.from_buffers(
        rows, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(encoded * rows)
    )


_kept_constant: Final = lru_cache(maxsize=16)(_constant)


def timestamps(times_ms: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Microseconds of milliseconds; what no timestamp can be is the nearest that can."""
    times_us = np.minimum(np.maximum(times_ms, -_MS_MAX), _MS_MAX) * 1000
    return pa.array(times_us).view(kind)


def timestamp_us(time_ms: int) -> int:
    """The same for one time."""
    return max(-_MS_MAX, min(time_ms, _MS_MAX)) * 1000


def hosts(heads: npt.NDArray[Any], field: str) -> pa.Array:
    """A column of hosts as text, each distinct one written once."""
    encoded = np.ascontiguousarray(heads[field])
    if (first := _repeated(encoded)) is not None:
        return constant(host_text(first), len(encoded))
    kind = pa.binary(encoded.dtype.itemsize)
    column = pa.Array.from_buffers(kind, len(encoded), [None, pa.py_buffer(encoded)])
    distinct = column.dictionary_encode()
    texts = pa.array([host_text(host) for host in distinct.dictionary.to_pylist()], pa.string())
    return texts.take(distinct.indices)


def _repeated(encoded: npt.NDArray[np.void]) -> bytes | None:
    """What all rows have in common, if they do."""
    words = encoded.view(np.uint32).reshape(len(encoded), -1)
    return encoded[0].tobytes() if (words == words[0]).all() else None


@lru_cache(maxsize=4096)
def host_text(encoded: bytes) -> str:
    """A host as people write it."""
    address, port = decode_host(encoded)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def offset_ids(heads: npt.NDArray[Any]) -> pa.Array:
    """Ids that say where messages lie: the digits of store host and physical offset."""
    rows = len(heads)
    parts = [
        np.ascontiguousarray(heads[field]).view(np.uint8).reshape(rows, -1)
        for field in ("store_host", "physical_offset")
    ]
    digits = _HEX_DIGITS[np.concatenate(parts, axis=1)]
    id_bytes = 2 * digits.shape[1]
    offsets = np.arange(rows + 1, dtype=np.int64) * id_bytes
    return pa.StringArray.from_buffers(
        rows, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(digits))
    )
