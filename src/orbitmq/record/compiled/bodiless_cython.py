# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of `without_bodies`.

Compiled by Cython and never run as Python. It returns the same bytes as the plain form
(bodiless.py).

Invariant: every position is compared with the end before anything is read or written there.
"""

from __future__ import annotations

from collections.abc import Iterable

import cython

if not cython.compiled:
    # Before the imports below: those of C fail with other errors.
    raise ImportError("orbitmq.record.compiled.bodiless_cython runs compiled only")

from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy
from cython.cimports.orbitmq.record.compiled.big_endian import get_32, put_32


def without_bodies(records: Iterable[bytes]) -> list[bytes]:
    """Copy records without their bodies. See bodiless.py."""
    return [_without_body(record) for record in records]


@cython.cfunc
@cython.inline
def _without_body(record: bytes) -> bytes:
    size: cython.Py_ssize_t = len(record)
    if size < 91:
        return record
    content: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(record))
    flag: cython.uint = get_32(content + 36)
    body_at: cython.Py_ssize_t = 88 + (12 if flag & 0x10 else 0) + (12 if flag & 0x20 else 0)
    if body_at > size:
        return record
    body_bytes: cython.Py_ssize_t = get_32(content + (body_at - 4))
    if body_bytes == 0 or body_bytes > size - body_at:
        return record
    copy: bytes = PyBytes_FromStringAndSize(cython.NULL, size - body_bytes)
    to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(copy))
    memcpy(to, content, body_at)
    memcpy(to + body_at, content + body_at + body_bytes, size - body_at - body_bytes)
    put_32(to, cython.cast(cython.uint, size - body_bytes))
    put_32(to + 8, 0)
    put_32(to + 36, flag & ~cython.cast(cython.uint, 1))
    put_32(to + (body_at - 4), 0)
    return copy
