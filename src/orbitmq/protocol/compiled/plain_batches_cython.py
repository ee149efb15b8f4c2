# mypy: disable-error-code="index,attr-defined,arg-type,type-arg,valid-type"
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of `measure_messages` and `read_entries`.

Compiled by Cython and never run as Python. It returns None for what is written in an unusual way,
too; what else it returns equals what the plain form returns.

Invariant: nothing is read before its position was compared with the end; lengths are at most 31
bits wide and positions as wide as a pointer, so no sum of them can wrap.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    # Before the imports below, which are C's and fail in other ways.
    raise ImportError("orbitmq.protocol.compiled.plain_batches_cython runs compiled only")

from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memchr, memcpy
from cython.cimports.orbitmq.protocol.compiled.plain_properties import Properties, look_at
from cython.cimports.orbitmq.record.compiled.big_endian import get_32

from orbitmq.protocol.plain_batches import MESSAGES_MAX, BatchEntry

# What a message takes beside its body and its properties.
_FIXED_BYTES = cython.declare(cython.Py_ssize_t, 22)
_VALUE_END = cython.declare(cython.uchar, 2)
_MESSAGES_MAX = cython.declare(cython.Py_ssize_t, MESSAGES_MAX)

_Message = cython.struct(
    size=cython.Py_ssize_t,
    body_bytes=cython.Py_ssize_t,
    properties_bytes=cython.Py_ssize_t,
    # What its properties lack at their end.
    separator_bytes=cython.Py_ssize_t,
)


@cython.cfunc
@cython.exceptval(check=False)
def _take(
    text: cython.p_uchar, left: cython.Py_ssize_t, found: cython.pointer(_Message)
) -> cython.bint:
    """Find what lies in the message at `text`; False when it is special, odd or cut off."""
    if left < _FIXED_BYTES:
        return False
    # Unsigned: a negative length is a large one, and leaves the message.
    size: cython.Py_ssize_t = get_32(text)
    body_bytes: cython.Py_ssize_t = get_32(text + 16)
    if size > left or body_bytes > size - _FIXED_BYTES:
        return False
    behind: cython.p_uchar = text + 20 + body_bytes
    sent: cython.p_uchar = behind + 2
    properties_bytes: cython.Py_ssize_t = (cython.cast(cython.int, behind[0]) << 8) | behind[1]
    if properties_bytes > 0x7FFF or _FIXED_BYTES + body_bytes + properties_bytes != size:
        return False
    properties = cython.declare(Properties)
    if not look_at(sent, properties_bytes, cython.address(properties)):
        return False
    found.size = size
    found.body_bytes = body_bytes
    found.properties_bytes = properties_bytes
    # A message without properties has no unique id, and never comes here.
    found.separator_bytes = 0 if sent[properties_bytes - 1] == _VALUE_END else 1
    return properties.unique_start >= 0


def measure_messages(
    chunk: bytes, start: cython.Py_ssize_t, end: cython.Py_ssize_t, marks: bytes
) -> tuple[int, int] | None:
    """Look at the messages at `chunk[start:end]`. See plain_batches.py."""
    if start < 0 or end > len(chunk) or start >= end:
        return None
    text: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(chunk))
    marks_bytes: cython.Py_ssize_t = len(marks)
    message = cython.declare(_Message)
    count: cython.Py_ssize_t = 0
    whole_bytes: cython.Py_ssize_t = 0
    properties_bytes: cython.Py_ssize_t
    at: cython.Py_ssize_t = start
    while at < end:
        if count == _MESSAGES_MAX or not _take(text + at, end - at, cython.address(message)):
            return None
        properties_bytes = message.properties_bytes + message.separator_bytes + marks_bytes
        if (
            properties_bytes > 0x7FFF
            or memchr(text + at + _FIXED_BYTES + message.body_bytes, 0, message.properties_bytes)
            != cython.NULL
        ):
            return None
        count += 1
        whole_bytes += message.body_bytes + properties_bytes
        at += message.size
    return count, whole_bytes


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
    message = cython.declare(_Message)
    body: cython.p_uchar
    sent: cython.p_uchar
    to: cython.p_uchar
    flag: cython.int
    properties: bytes
    if start < 0 or end > len(chunk) or start >= end:
        return None
    entries: list[BatchEntry] = []
    at: cython.Py_ssize_t = start
    while at < end:
        if len(entries) == _MESSAGES_MAX or not _take(text + at, end - at, cython.address(message)):
            return None
        flag = cython.cast(cython.int, get_32(text + at + 12))
        body = text + at + 20
        sent = body + message.body_bytes + 2
        properties = PyBytes_FromStringAndSize(
            cython.NULL, message.properties_bytes + message.separator_bytes + marks_bytes
        )
        to = cython.cast(cython.p_uchar, PyBytes_AS_STRING(properties))
        memcpy(to, sent, message.properties_bytes)
        to = to + message.properties_bytes
        if message.separator_bytes:
            to[0] = _VALUE_END
            to = to + 1
        memcpy(to, PyBytes_AS_STRING(marks), marks_bytes)
        entries.append(
            (
                body[: message.body_bytes],
                properties,
                flag,
                0,
                born_ms,
                born_host,
                reconsume_times,
                0,
            )
        )
        at += message.size
    return entries
