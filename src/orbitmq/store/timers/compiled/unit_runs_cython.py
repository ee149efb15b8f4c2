# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of `load_units` and `chain_units`.

Compiled by Cython and never run as Python. It does the same as the plain form (unit_runs.py);
`fast_forms` chooses between them.

Invariant: nothing outside of `content` is read, and nothing outside of the wheel written, whatever
the units hold.
"""

from __future__ import annotations

from mmap import mmap

import cython

if not cython.compiled:
    # Before the imports below: those of C fail with other errors.
    raise ImportError("orbitmq.store.timers.compiled.unit_runs_cython runs compiled only")

from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.orbitmq.record.compiled.big_endian import get_32, get_64, put_32, put_64

from orbitmq.store.timers.layout import WHEEL_BYTES
from orbitmq.store.timers.unit_runs import Loaded

_UNIT_BYTES = cython.declare(cython.Py_ssize_t, 52)
_SLOT_BYTES = cython.declare(cython.Py_ssize_t, 32)
_SLOTS = cython.declare(cython.longlong, 1_209_600)
_WHEEL_BYTES = cython.declare(cython.Py_ssize_t, 38_707_200)
_PRECISION_MS = cython.declare(cython.longlong, 1000)
# Times beyond cannot be added without an overflow.
_MS_MAX = cython.declare(cython.longlong, 1 << 62)
_RECALL = cython.declare(cython.int, 4)
_MAGIC_MAX = cython.declare(cython.int, 15)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _slot_ms(unit: cython.p_uchar, position: cython.longlong) -> cython.longlong:
    """The slot of a unit; -1 if these bytes cannot be one."""
    magic: cython.int = cython.cast(cython.int, get_32(unit + 12))
    previous: cython.longlong = get_64(unit + 4)
    written_ms: cython.longlong = get_64(unit + 16)
    if (
        get_32(unit) != 52
        or not 0 < magic <= _MAGIC_MAX
        or not -1 <= previous < position
        or not -_MS_MAX < written_ms < _MS_MAX
    ):
        return -1
    slot_ms: cython.longlong = written_ms + cython.cast(cython.int, get_32(unit + 24))
    due: cython.longlong = get_64(unit + 44)
    if (
        slot_ms < 0
        or slot_ms % _PRECISION_MS != 0
        or get_64(unit + 28) < 0
        or cython.cast(cython.int, get_32(unit + 36)) <= 0
        or not 0 <= due <= _PRECISION_MS
    ):
        return -1
    return slot_ms


def load_units(
    content: bytes,
    position: cython.longlong,
    wheel: bytearray | mmap,
    read_ms: cython.longlong,
    log_start: cython.longlong,
) -> Loaded:
    """Put units into the slots of a wheel. See unit_runs.py."""
    if len(wheel) != _WHEEL_BYTES or WHEEL_BYTES != _WHEEL_BYTES:
        raise ValueError(f"a wheel of {len(wheel)} bytes")
    bytes_at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(content))
    table = cython.declare(Py_buffer)
    PyObject_GetBuffer(wheel, cython.address(table), PyBUF_SIMPLE | PyBUF_WRITABLE)
    # Invariant: nothing up to the release can fail.
    slots: cython.p_uchar = cython.cast(cython.p_uchar, table.buf)
    size: cython.Py_ssize_t = len(content)
    at: cython.Py_ssize_t = 0
    units: cython.longlong = 0
    offset_min: cython.longlong = 0
    slot_max: cython.longlong = 0
    newest: cython.longlong = 0
    is_broken: cython.bint = False
    unit: cython.p_uchar
    slot: cython.p_uchar
    slot_ms: cython.longlong
    second: cython.longlong
    previous: cython.longlong
    first: cython.longlong
    count: cython.uint
    is_empty: cython.bint
    while at + _UNIT_BYTES <= size:
        unit = bytes_at + at
        slot_ms = _slot_ms(unit, position + at)
        if slot_ms < 0:
            break
        if slot_ms >= read_ms:
            second = slot_ms // _PRECISION_MS
            slot = slots + cython.cast(cython.Py_ssize_t, second % _SLOTS) * _SLOT_BYTES
            is_empty = get_64(slot) == 0 or get_64(slot) != second
            previous = get_64(unit + 4)
            first = get_64(slot + 8)
            count = get_32(slot + 24)
            if previous == -1 or (is_empty and previous < log_start):
                first = position + at
                count = 0
            elif is_empty or previous != get_64(slot + 16):
                is_broken = True
                break
            if get_32(unit + 12) & _RECALL:
                count -= 1
            else:
                count += 1
            put_64(slot, second)
            put_64(slot + 8, first)
            put_64(slot + 16, position + at)
            put_32(slot + 24, count)
            put_32(slot + 28, 0)
        newest = get_64(unit + 28)
        if units == 0 or newest < offset_min:
            offset_min = newest
        slot_max = max(slot_max, slot_ms)
        units += 1
        at += _UNIT_BYTES
    PyBuffer_Release(cython.address(table))
    return Loaded(units, offset_min, slot_max, newest, bool(is_broken))


def chain_units(
    content: bytes,
    content_at: cython.longlong,
    position: cython.longlong,
    slot_ms: cython.longlong,
) -> tuple[list[tuple[int, int, int, int]], int]:
    """Read the units of a chain. See unit_runs.py."""
    bytes_at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(content))
    size: cython.Py_ssize_t = len(content)
    found: list[tuple[int, int, int, int]] = []
    unit: cython.p_uchar
    while position >= content_at >= 0 and position - content_at + _UNIT_BYTES <= size:
        unit = bytes_at + (position - content_at)
        if slot_ms < 0 or _slot_ms(unit, position) != slot_ms:
            break
        found.append(
            (
                get_64(unit + 44),
                get_64(unit + 28),
                cython.cast(cython.int, get_32(unit + 12)),
                cython.cast(cython.int, get_32(unit + 36)),
            )
        )
        position = get_64(unit + 4)
    return found, position
