# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of `read_entries`.

Compiled by Cython and never run as Python. It returns None for what is written in an unusual way,
too; what else it returns equals what the plain form returns.

Invariant: nothing is read before its position was compared with the end; lengths are at most 31
bits wide and positions as wide as a pointer, so no sum of them can wrap.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    # Before the imports below, which are C's and fail in other ways.
    raise ImportError("orbitmq.protocol.plain_batches_native runs compiled only")

from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy
from cython.cimports.orbitmq.protocol.plain_properties import Properties, look_at
from cython.cimports.orbitmq.record.big_endian import get_32

from orbitmq.protocol.plain_batches import ENTRIES_MAX, BatchEntry

# What a message takes beside its body and its properties.
_FIXED_BYTES = cython.declare(cython.Py_ssize_t, 22)
_VALUE_END = cython.declare(cython.uchar, 2)
_ENTRIES_MAX = cython.declare(cython.Py_ssize_t, ENTRIES_MAX)


def read_entries(  # Perf: plain arguments
    chunk: bytes,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    marks: bytes,
    born_ms: int,
    born_host: bytes,
    reconsume_times: int,
) -> list[BatchEntry] | None:
    """Read the messages at `chunk[start:end]`; None when they are too many, special or odd."""
    text: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(chunk))
    marks_bytes: cython.Py_ssize_t = len(marks)
    size: cython.Py_ssize_t
    body_bytes: cython.Py_ssize_t
    properties_bytes: cython.Py_ssize_t
    separator_bytes: cython.Py_ssize_t
    body: cython.p_uchar
    sent: cython.p_uchar
    to: cython.p_uchar
    flag: cython.int
    found = cython.declare(Properties)
    properties: bytes
    if start < 0 or end > len(chunk) or start >= end:
        return None
    entries: list[BatchEntry] = []
    at: cython.Py_ssize_t = start
    while at < end:
        if end - at < _FIXED_BYTES or len(entries) == _ENTRIES_MAX:
            return None
        # Unsigned: a negative length is a large one, and leaves the message.
        size = get_32(text + at)
        body_bytes = get_32(text + at + 16)
        if size > end - at or body_bytes > size - _FIXED_BYTES:
            return None
        flag = cython.cast(cython.int, get_32(text + at + 12))
        body = text + at + 20
        sent = body + body_bytes + 2
        properties_bytes = (cython.cast(cython.int, sent[-2]) << 8) | sent[-1]
        if properties_bytes > 0x7FFF or _FIXED_BYTES + body_bytes + properties_bytes != size:
            return None
        if not look_at(sent, properties_bytes, cython.address(found)) or found.unique_start < 0:
            return None
        separator_bytes = 0 if sent[properties_bytes - 1] == _VALUE_END else 1
        properties = PyBytes_FromStringAndSize(
            cython.NULL, properties_bytes + separator_bytes + marks_bytes
        )
        to = cython.cast(cython.p_uchar, PyBytes_AS_STRING(properties))
        memcpy(to, sent, properties_bytes)
        if separator_bytes:
            to[properties_bytes] = _VALUE_END
        memcpy(to + properties_bytes + separator_bytes, PyBytes_AS_STRING(marks), marks_bytes)
        entries.append(
            (body[:body_bytes], properties, flag, 0, born_ms, born_host, reconsume_times, 0)
        )
        at += size
    return entries
