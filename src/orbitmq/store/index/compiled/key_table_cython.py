# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of `put_keys` and `chain_entries`.

Compiled by Cython and never run as Python. It writes the same bytes as the plain form
(key_table.py); `fast_forms` chooses between them.

Invariant: the view and the keys have the size given, and no slot or entry beyond it is read or
written, whatever the file holds.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    # Before the imports below: those of C fail with other errors.
    raise ImportError("orbitmq.store.index.compiled.key_table_cython runs compiled only")

from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
from cython.cimports.libc.string import memcpy
from cython.cimports.orbitmq.record.compiled.big_endian import get_32, get_64, put_32, put_64
from cython.cimports.orbitmq.record.compiled.compiler_c import keep_order

from orbitmq.store.index.key_table import check_table

_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 40)
_SLOT_BYTES = cython.declare(cython.Py_ssize_t, 4)
_ROW_BYTES = cython.declare(cython.Py_ssize_t, 20)
_INT_MAX = cython.declare(cython.int, 0x7FFFFFFF)


@cython.cfunc
def _fits(view: memoryview, slots: cython.longlong, entries_max: cython.longlong) -> cython.bint:
    """Whether a table of this size fills the view."""
    return (
        0 < slots <= _INT_MAX
        and 0 < entries_max <= _INT_MAX
        and len(view) == _HEADER_BYTES + slots * _SLOT_BYTES + entries_max * _ROW_BYTES
    )


def put_keys(
    view: memoryview, slots: int, entries_max: int, keys: bytes | bytearray, at: int
) -> int:
    """Put packed keys into the table. See key_table.py."""
    position: cython.Py_ssize_t = at
    end: cython.Py_ssize_t = len(keys)
    if not _fits(view, slots, entries_max) or not 0 <= position <= end or (end - position) % 20:
        # This test accepts what is surely good; the plain form judges the rest.
        check_table(view, slots, entries_max, keys, at)
    slot_count: cython.uint = slots
    room: cython.int = entries_max
    table = cython.declare(Py_buffer)
    rows = cython.declare(Py_buffer)
    PyObject_GetBuffer(view, cython.address(table), PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(keys, cython.address(rows), PyBUF_SIMPLE)
    except BaseException:
        PyBuffer_Release(cython.address(table))
        raise
    # Invariant: nothing below can fail, so both buffers are released.
    header: cython.p_uchar = cython.cast(cython.p_uchar, table.buf)
    first: cython.p_uchar = header + _HEADER_BYTES
    entries: cython.p_uchar = first + cython.cast(cython.Py_ssize_t, slot_count) * _SLOT_BYTES
    begin_ms: cython.longlong = get_64(header)
    begin_offset: cython.longlong = get_64(header + 16)
    known: cython.longlong = get_64(header + 24)
    slots_used: cython.int = cython.cast(cython.int, get_32(header + 32))
    number: cython.int = min(max(cython.cast(cython.int, get_32(header + 36)), 1), room)
    row: cython.p_uchar
    slot: cython.p_uchar
    entry: cython.p_uchar
    hashed: cython.uint
    offset: cython.longlong
    store_ms: cython.longlong
    seconds: cython.longlong
    previous: cython.int
    while position < end:
        row = cython.cast(cython.p_uchar, rows.buf) + position
        offset = get_64(row + 4)
        if offset >= known:
            if number >= room:
                break
            hashed = get_32(row)
            store_ms = get_64(row + 12)
            slot = (
                first
                + cython.cast(cython.Py_ssize_t, (hashed & 0x7FFFFFFF) % slot_count) * _SLOT_BYTES
            )
            previous = cython.cast(cython.int, get_32(slot))
            if previous <= 0 or previous >= number:
                previous = 0
                if slots_used < _INT_MAX:
                    slots_used += 1
            seconds = 0
            # Compared first, so that the difference cannot overflow.
            if 0 < begin_ms < store_ms:
                seconds = min((store_ms - begin_ms) // 1000, _INT_MAX)
            entry = entries + cython.cast(cython.Py_ssize_t, number) * _ROW_BYTES
            put_32(entry, hashed)
            put_64(entry + 4, offset)
            put_32(entry + 12, cython.cast(cython.uint, seconds))
            put_32(entry + 16, cython.cast(cython.uint, previous))
            # Invariant: an entry is complete before its slot points at it, and both before the
            # header counts them.
            keep_order()
            put_32(slot, cython.cast(cython.uint, number))
            keep_order()
            if number <= 1:
                begin_ms, begin_offset = store_ms, offset
            number += 1
            put_64(header, begin_ms)
            put_64(header + 8, store_ms)
            put_64(header + 16, begin_offset)
            put_64(header + 24, offset)
            put_32(header + 32, cython.cast(cython.uint, slots_used))
            put_32(header + 36, cython.cast(cython.uint, number))
        position += _ROW_BYTES
    PyBuffer_Release(cython.address(rows))
    PyBuffer_Release(cython.address(table))
    return position


def chain_entries(view: memoryview, slots: int, entries_max: int, end: int) -> int | None:
    """Rebuild all slots from the entries below a number. See key_table.py."""
    check_table(view, slots, entries_max, b"", 0)
    if not 1 < end <= entries_max:
        return None
    slot_count: cython.uint = slots
    slots_bytes: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, slot_count) * _SLOT_BYTES
    made = bytearray(slots_bytes)
    chains: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(made))
    table = cython.declare(Py_buffer)
    PyObject_GetBuffer(view, cython.address(table), PyBUF_SIMPLE | PyBUF_WRITABLE)
    header: cython.p_uchar = cython.cast(cython.p_uchar, table.buf)
    entry: cython.p_uchar = header + _HEADER_BYTES + slots_bytes
    slot: cython.p_uchar
    last_offset: cython.longlong = -1
    used: cython.int = 0
    number: cython.int = 1
    count: cython.int = end
    while number < count:
        entry = entry + _ROW_BYTES
        # The check below finds a negative hash by its first bit; then the slot does not matter.
        slot = chains + cython.cast(cython.Py_ssize_t, get_32(entry) % slot_count) * _SLOT_BYTES
        if (
            entry[0] & 0x80
            or entry[12] & 0x80
            or get_64(entry + 4) < last_offset
            or get_32(entry + 16) != get_32(slot)
        ):
            break
        if get_32(slot) == 0:
            used += 1
        put_32(slot, cython.cast(cython.uint, number))
        last_offset = get_64(entry + 4)
        number += 1
    if number == count:
        memcpy(header + _HEADER_BYTES, chains, slots_bytes)
    PyBuffer_Release(cython.address(table))
    return used if number == count else None
