# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of encoding columns into the messages of a batch.

Compiled by Cython and never run as Python. It encodes the same bytes as the plain form
(message_parts.py), row by row in one pass, and returns them as Arrow stores them: offsets and bytes.

Invariant: offsets are checked before anything is read, and stay within their buffers. Sizes are
measured from the same offsets before writing, and nothing changes those meanwhile.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    # Before the imports below, which are C's and fail in other ways.
    raise ImportError("orbitmq.spark.writing.compiled.messages_cython runs compiled only")

from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.orbitmq.record.compiled.big_endian import put_32

# Name with its terminator, offsets, index of the first offset, bytes.
Column = tuple[bytes, object, int, object]

_HEAD_BYTES = cython.declare(cython.Py_ssize_t, 20)
_LENGTH_BYTES = cython.declare(cython.Py_ssize_t, 2)
_ID_DIGITS = cython.declare(cython.Py_ssize_t, 12)
_VALUE_END = cython.declare(cython.uchar, 2)
_PROPERTIES_BYTES_MAX = cython.declare(cython.Py_ssize_t, 32767)
_INT_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)


@cython.final
@cython.cclass
class _Texts:
    """A column of texts, held while it is used."""

    name: bytes
    name_bytes: cython.Py_ssize_t
    # Where each text starts, and the last ends.
    starts: cython.p_int
    content: cython.p_uchar
    offsets_view: Py_buffer
    content_view: Py_buffer
    held: cython.int

    def __dealloc__(self) -> None:
        """Release the buffers."""
        if self.held > 0:
            PyBuffer_Release(cython.address(self.offsets_view))
        if self.held > 1:
            PyBuffer_Release(cython.address(self.content_view))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def size(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The size of a text."""
        return self.starts[row + 1] - self.starts[row]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def entry_bytes(self, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The size of a row's property; 0 if it has none."""
        size: cython.Py_ssize_t = self.size(row)
        return self.name_bytes + size + 1 if size else 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def copy(self, row: cython.Py_ssize_t, to: cython.p_uchar) -> cython.p_uchar:
        """Copy the text of a row; returns where it ends."""
        size: cython.Py_ssize_t = self.size(row)
        memcpy(to, self.content + self.starts[row], size)
        return to + size


@cython.cfunc
def _texts_of(column: tuple, rows: cython.Py_ssize_t) -> _Texts:  # type: ignore[type-arg]  # C's
    """Hold a column, and check its offsets."""
    texts: _Texts = _Texts()
    name, offsets, first, content = column
    texts.name = name
    texts.name_bytes = len(texts.name)
    at: cython.Py_ssize_t = first
    PyObject_GetBuffer(offsets, cython.address(texts.offsets_view), PyBUF_SIMPLE)
    texts.held = 1
    PyObject_GetBuffer(content, cython.address(texts.content_view), PyBUF_SIMPLE)
    texts.held = 2
    if at < 0 or rows < 0 or (texts.offsets_view.len // 4) - at < rows + 1:
        raise ValueError(f"too few offsets for {rows} texts")
    texts.starts = cython.cast(cython.p_int, texts.offsets_view.buf) + at
    texts.content = cython.cast(cython.p_uchar, texts.content_view.buf)
    row: cython.Py_ssize_t
    is_sound: cython.bint = texts.starts[0] >= 0 and texts.starts[rows] <= texts.content_view.len
    for row in range(rows):
        is_sound &= texts.starts[row] <= texts.starts[row + 1]
    if not is_sound:
        raise ValueError(f"offsets of {rows} texts are out of bounds")
    return texts


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _digits(number: cython.ulonglong) -> cython.Py_ssize_t:
    """The number of decimal digits of a number."""
    count: cython.Py_ssize_t = 1
    while number >= 10:
        number //= 10
        count += 1
    return count


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_decimal(to: cython.p_uchar, number: cython.ulonglong) -> cython.p_uchar:
    """Write a number; returns where it ends."""
    count: cython.Py_ssize_t = _digits(number)
    at: cython.Py_ssize_t
    for at in range(count - 1, -1, -1):
        to[at] = 48 + cython.cast(cython.uchar, number % 10)
        number //= 10
    return to + count


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_hexadecimal(to: cython.p_uchar, number: cython.ulonglong) -> cython.void:
    """Write the digits of an id."""
    at: cython.Py_ssize_t
    digit: cython.uint
    for at in range(_ID_DIGITS - 1, -1, -1):
        digit = cython.cast(cython.uint, number & 15)
        to[at] = (48 if digit < 10 else 55) + digit
        number >>= 4


def write_messages(  # noqa: PLR0913, PLR0917  # plain arguments, and one pass over them
    rows: cython.Py_ssize_t,
    bodies: Column,
    flags: object,
    id_prefix: bytes,
    first_id: cython.ulonglong,
    mark: bytes,
    first_sequence: cython.ulonglong,
    entries: list[Column],
    rest: Column | None,
) -> tuple[bytes, bytes, int, int]:
    """Encode messages: their offsets, their bytes, and the row and size of the longest properties.

    If those are too long, nothing is encoded.
    """
    body: _Texts = _texts_of(bodies, rows)
    columns: list[_Texts] = [_texts_of(entry, rows) for entry in entries]
    others: _Texts | None = None if rest is None else _texts_of(rest, rows)
    column: _Texts
    id_bytes: cython.Py_ssize_t = len(id_prefix)
    mark_bytes: cython.Py_ssize_t = len(mark)
    row: cython.Py_ssize_t
    size: cython.Py_ssize_t
    longest: cython.Py_ssize_t = 0
    longest_row: cython.Py_ssize_t = 0
    whole: cython.longlong = 0
    offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (rows + 1))
    starts: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
    starts[0] = 0
    for row in range(rows):
        size = id_bytes + _ID_DIGITS + mark_bytes + _digits(first_sequence + row) + 1
        for column in columns:
            size += column.entry_bytes(row)
        if others is not None:
            size += others.size(row)
        if size > longest:
            longest = size
            longest_row = row
        whole += _HEAD_BYTES + body.size(row) + _LENGTH_BYTES + size
        if whole > _INT_MAX:
            raise OverflowError(f"{rows} messages are too large for offsets of 32 bits")
        starts[row + 1] = cython.cast(cython.int, whole)
    if longest > _PROPERTIES_BYTES_MAX:
        return b"", b"", longest_row, longest

    numbers: cython.p_longlong = cython.NULL
    flags_view = cython.declare(Py_buffer)
    if flags is not None:
        PyObject_GetBuffer(flags, cython.address(flags_view), PyBUF_SIMPLE)
        if flags_view.len < 8 * rows:
            PyBuffer_Release(cython.address(flags_view))
            raise ValueError(f"too few flags for {rows} rows")
        numbers = cython.cast(cython.p_longlong, flags_view.buf)
    content: bytes = PyBytes_FromStringAndSize(cython.NULL, cython.cast(cython.Py_ssize_t, whole))
    begin: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(content))
    to: cython.p_uchar
    length: cython.p_uchar
    for row in range(rows):
        to = begin + starts[row]
        put_32(to, cython.cast(cython.uint, starts[row + 1] - starts[row]))
        memset(to + 4, 0, 12)
        if numbers != cython.NULL:
            put_32(to + 12, cython.cast(cython.uint, numbers[row]))
        put_32(to + 16, cython.cast(cython.uint, body.size(row)))
        length = body.copy(row, to + _HEAD_BYTES)
        to = length + _LENGTH_BYTES
        memcpy(to, PyBytes_AS_STRING(id_prefix), id_bytes)
        _put_hexadecimal(to + id_bytes, first_id + row)
        to = to + id_bytes + _ID_DIGITS
        memcpy(to, PyBytes_AS_STRING(mark), mark_bytes)
        to = _put_decimal(to + mark_bytes, first_sequence + row)
        to[0] = _VALUE_END
        to = to + 1
        for column in columns:
            if column.size(row):
                memcpy(to, PyBytes_AS_STRING(column.name), column.name_bytes)
                to = column.copy(row, to + column.name_bytes)
                to[0] = _VALUE_END
                to = to + 1
        if others is not None:
            to = others.copy(row, to)
        size = to - length - _LENGTH_BYTES
        length[0] = (size >> 8) & 255
        length[1] = size & 255
    if numbers != cython.NULL:
        PyBuffer_Release(cython.address(flags_view))
    return offsets, content, longest_row, longest
