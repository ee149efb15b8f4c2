# distutils: libraries = z
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of `encode_batch_records`.

Compiled by Cython and never run as Python. It writes and returns the same bytes as the plain form
(encode.py).

Invariant: every position is compared with the end before anything is read or written there;
lengths are at most 31 bits wide and positions as wide as a pointer, so no sum of them can wrap.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    # Before the imports below: those of C fail with other errors.
    raise ImportError("orbitmq.record.compiled.batch_records_cython runs compiled only")

from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.orbitmq.record.compiled.big_endian import get_32
from cython.cimports.orbitmq.record.compiled.compiler_c import keep_order
from cython.cimports.orbitmq.record.compiled.record_writing import (
    RecordFields,
    begin_record,
    fields_bytes,
    put_fields,
)

from orbitmq.errors import MessageError
from orbitmq.record.encode import WritableBuffer, check_lengths

_LONG_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
_VALUE_END = cython.declare(cython.uchar, 2)
# Bytes of a message of a batch beside its body and properties.
_FIXED_BYTES = cython.declare(cython.Py_ssize_t, 22)
_COMMA = cython.declare(cython.uchar, 44)
_OFFSET_DIGITS = cython.declare(cython.Py_ssize_t, 16)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _bytes_at(text: bytes) -> cython.p_uchar:
    return cython.cast(cython.p_uchar, PyBytes_AS_STRING(text))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_digits(to: cython.p_uchar, number: cython.ulonglong) -> cython.void:
    """Write a number as sixteen hexadecimal digits."""
    digit: cython.uint
    at: cython.int
    for at in range(15, -1, -1):
        digit = cython.cast(cython.uint, number & 15)
        to[at] = (48 if digit < 10 else 55) + digit
        number >>= 4


@cython.cfunc
@cython.exceptval(check=False)
def _count(text: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Count the messages; -1 if one exceeds its bounds."""
    count: cython.int = 0
    size: cython.Py_ssize_t
    body_bytes: cython.Py_ssize_t
    properties_bytes: cython.Py_ssize_t
    while at < end:
        if end - at < _FIXED_BYTES:
            return -1
        # Unsigned: a negative length reads as a large one and exceeds the bounds.
        size = get_32(text + at)
        body_bytes = get_32(text + at + 16)
        if size > end - at or body_bytes > size - _FIXED_BYTES:
            return -1
        properties_bytes = (cython.cast(cython.Py_ssize_t, text[at + 20 + body_bytes]) << 8) | text[
            at + 21 + body_bytes
        ]
        if properties_bytes > 0x7FFF or _FIXED_BYTES + body_bytes + properties_bytes != size:
            return -1
        count += 1
        at += size
    return count


def encode_batch_records(  # noqa: PLR0913, PLR0917  # Perf: an argument object costs 0.8 us
    buffer: WritableBuffer,
    at: cython.Py_ssize_t,
    records_bytes: cython.Py_ssize_t,
    messages: bytes,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    broker_properties: bytes,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    system_flag: int,
    born_ms: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    reconsume_times: int,
) -> bytes:
    """Write messages of a batch as records; return their ids. See encode.py."""
    topic_bytes: cython.Py_ssize_t = len(topic)
    broker_properties_bytes: cython.Py_ssize_t = len(broker_properties)
    born_host_bytes: cython.Py_ssize_t = len(born_host)
    store_host_bytes: cython.Py_ssize_t = len(store_host)
    fields = cython.declare(RecordFields)
    try:
        fields.queue_id = queue_id
        fields.system_flag = system_flag
        fields.reconsume_times = reconsume_times
        fields.queue_offset = queue_offset
        fields.physical_offset = physical_offset
        fields.born_ms = born_ms
        fields.store_ms = store_ms
    except OverflowError as error:
        raise MessageError(f"a number does not fit its field of a record: {error}") from error
    fields.prepared_offset = 0
    fields.topic = _bytes_at(topic)
    fields.topic_bytes = topic_bytes
    fields.born_host = _bytes_at(born_host)
    fields.born_host_bytes = born_host_bytes
    fields.store_host = _bytes_at(store_host)
    fields.store_host_bytes = store_host_bytes
    check_lengths(
        0,
        topic_bytes,
        broker_properties_bytes,
        born_host_bytes,
        store_host_bytes,
        fields.system_flag,
    )
    text: cython.p_uchar = _bytes_at(messages)
    count: cython.Py_ssize_t = -1
    if 0 <= start <= end <= len(messages):
        count = _count(text, start, end)
    if count <= 0:
        raise ValueError(f"bytes {start} to {end} are not a batch")
    if records_bytes <= 0 or not 0 <= fields.physical_offset <= _LONG_MAX - records_bytes:
        raise MessageError(
            f"{records_bytes} bytes do not fit the log at physical offset {physical_offset}"
        )
    if fields.queue_offset > _LONG_MAX - (count - 1):
        raise MessageError(f"queue offset {queue_offset} leaves no room for {count} messages")
    id_bytes: cython.Py_ssize_t = 2 * store_host_bytes + _OFFSET_DIGITS + 1
    ids: bytes = PyBytes_FromStringAndSize(cython.NULL, count * id_bytes - 1)
    prefix: bytes = store_host.hex().upper().encode()

    view = cython.declare(Py_buffer)
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE | PyBUF_WRITABLE)
    if at < 0 or records_bytes > view.len - at:
        buffer_bytes: cython.Py_ssize_t = view.len
        PyBuffer_Release(cython.address(view))
        raise ValueError(f"{records_bytes} bytes do not fit at byte {at} of {buffer_bytes}")
    # Invariant: nothing below can raise before the buffer is released.
    first: cython.p_uchar = cython.cast(cython.p_uchar, view.buf) + at
    left: cython.Py_ssize_t = records_bytes
    record: cython.p_uchar = first
    to: cython.p_uchar
    message: cython.p_uchar = text + start
    shown: cython.p_uchar = _bytes_at(ids)
    size: cython.Py_ssize_t
    body_bytes: cython.Py_ssize_t
    sent_bytes: cython.Py_ssize_t
    separator_bytes: cython.Py_ssize_t
    properties_bytes: cython.Py_ssize_t
    beside_bytes: cython.Py_ssize_t = fields_bytes(cython.address(fields)) + broker_properties_bytes
    first_bytes: cython.Py_ssize_t = 0
    fits: cython.bint = True
    number: cython.Py_ssize_t
    for number in range(count):
        body_bytes = get_32(message + 16)
        sent_bytes = get_32(message) - _FIXED_BYTES - body_bytes
        separator_bytes = 1
        if sent_bytes and message[20 + body_bytes + 2 + sent_bytes - 1] == _VALUE_END:
            separator_bytes = 0
        properties_bytes = sent_bytes + separator_bytes + broker_properties_bytes
        size = beside_bytes + body_bytes + sent_bytes + separator_bytes
        if size > left or properties_bytes > 32767:
            fits = False
            break
        fields.flag = cython.cast(cython.int, get_32(message + 12))
        to = put_fields(record, cython.address(fields), message + 20, body_bytes, properties_bytes)
        memcpy(to, message + 22 + body_bytes, sent_bytes)
        to = to + sent_bytes
        if separator_bytes:
            to[0] = _VALUE_END
            to = to + 1
        memcpy(to, _bytes_at(broker_properties), broker_properties_bytes)
        if number:
            begin_record(record, cython.address(fields), size)
            shown[0] = _COMMA
            shown = shown + 1
        else:
            first_bytes = size
        memcpy(shown, _bytes_at(prefix), 2 * store_host_bytes)
        shown = shown + 2 * store_host_bytes
        _put_digits(shown, cython.cast(cython.ulonglong, fields.physical_offset))
        shown = shown + _OFFSET_DIGITS
        message = message + _FIXED_BYTES + body_bytes + sent_bytes
        record = record + size
        fields.queue_offset += 1
        fields.physical_offset += size
        left -= size
    if not fits or left:
        memset(first, 0, records_bytes)
        PyBuffer_Release(cython.address(view))
        raise ValueError(f"records do not fill {records_bytes} bytes")
    # Invariant: the start of the first record is written last; until then none of them exists.
    keep_order()
    begin_record(first, cython.address(fields), first_bytes)
    PyBuffer_Release(cython.address(view))
    return ids
