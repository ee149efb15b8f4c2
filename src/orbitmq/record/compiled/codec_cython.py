# distutils: libraries = z
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of `encode_record`, `is_sound`, `sound_records` and `walk`.

Compiled by Cython and never run as Python. It writes the same bytes and gives the same results as
the plain form (encode.py, scan.py); `codec` chooses between them. C handles the common case only:
the plain form examines positions without a record, and hashes text that is not ASCII.

Invariant: every position is compared with the end before anything is read or written there;
positions are signed and as wide as a pointer, lengths at most 31 bits wide, so no sum of them can
wrap.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

if not cython.compiled:
    # Before the imports below: those of C fail with other errors.
    raise ImportError("orbitmq.record.compiled.codec_cython runs compiled only")

from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytearray import (
    PyByteArray_AS_STRING,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.libc.limits import INT_MIN, LLONG_MIN
from cython.cimports.libc.string import memchr, memcmp, memcpy
from cython.cimports.orbitmq.record.compiled.big_endian import get_32, get_64, put_32, put_64
from cython.cimports.orbitmq.record.compiled.compiler_c import keep_order
from cython.cimports.orbitmq.record.compiled.record_writing import (
    RecordFields,
    begin_record,
    fields_bytes,
    put_fields,
)
from cython.cimports.orbitmq.record.compiled.zlib_c import crc32

from orbitmq.errors import MessageError
from orbitmq.record.decode import Buffer, Found, Verdict, locate, locate_at
from orbitmq.record.encode import WritableBuffer, check_lengths
from orbitmq.record.layout import LOST_FLAG
from orbitmq.record.scan import (
    DELAY_TOPIC,
    EntryRun,
    Walk,
    check_span,
    hash_key,
    hash_tag,
    record_tag_code,
)

_MAGIC_V1 = cython.declare(cython.uint, 0xDAA320A7)
_MAGIC_V2 = cython.declare(cython.uint, 0xDAA320AB)
_CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)
_ROW_BYTES = cython.declare(cython.Py_ssize_t, 20)
_LOST_FLAG = cython.declare(cython.uint, LOST_FLAG)
# A cache of recent queues, looked up without making a key for the table of all queues.
_SLOTS = cython.declare(cython.uint, 256)
# Perf: below this size one slot is enough; making all of them takes 0.4 us
# (benchmarks/store_append.py).
_ONE_SLOT_BYTES_MAX = cython.declare(cython.Py_ssize_t, 1024)
_DELAY_TOPIC = cython.declare(bytes, DELAY_TOPIC)
_END = Found(Verdict.NOTHING)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _bytes_at(text: bytes) -> cython.p_uchar:
    return cython.cast(cython.p_uchar, PyBytes_AS_STRING(text))


# --- writing ------------------------------------------------------------------------------------


def encode_record(  # noqa: PLR0913, PLR0917  # Perf: an argument object costs 0.8 us
    buffer: WritableBuffer,
    at: cython.Py_ssize_t,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    body: bytes,
    properties: bytes,
    flag: int,
    system_flag: int,
    born_ms: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int,
) -> int:
    """Write one record at `buffer[at:]`; return its size. See encode.py."""
    body_bytes: cython.Py_ssize_t = len(body)
    topic_bytes: cython.Py_ssize_t = len(topic)
    properties_bytes: cython.Py_ssize_t = len(properties)
    born_host_bytes: cython.Py_ssize_t = len(born_host)
    store_host_bytes: cython.Py_ssize_t = len(store_host)
    fields = cython.declare(RecordFields)
    try:
        fields.queue_id = queue_id
        fields.flag = flag
        fields.system_flag = system_flag
        fields.reconsume_times = reconsume_times
        fields.queue_offset = queue_offset
        fields.physical_offset = physical_offset
        fields.born_ms = born_ms
        fields.store_ms = store_ms
        fields.prepared_offset = prepared_offset
    except OverflowError as error:
        raise MessageError(f"a number does not fit its field of a record: {error}") from error
    fields.topic = _bytes_at(topic)
    fields.topic_bytes = topic_bytes
    fields.born_host = _bytes_at(born_host)
    fields.born_host_bytes = born_host_bytes
    fields.store_host = _bytes_at(store_host)
    fields.store_host_bytes = store_host_bytes
    if (
        topic_bytes > 255
        or properties_bytes > 32767
        or body_bytes > 0x7FFFFFFF - 65536
        or born_host_bytes != (20 if fields.system_flag & 0x10 else 8)
        or store_host_bytes != (20 if fields.system_flag & 0x20 else 8)
    ):
        # This test accepts what is surely good; the plain form judges the rest.
        check_lengths(
            body_bytes,
            topic_bytes,
            properties_bytes,
            born_host_bytes,
            store_host_bytes,
            fields.system_flag,
        )
    size: cython.Py_ssize_t = fields_bytes(cython.address(fields)) + body_bytes + properties_bytes
    view = cython.declare(Py_buffer)
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE | PyBUF_WRITABLE)
    if at < 0 or size > view.len - at:
        buffer_bytes: cython.Py_ssize_t = view.len
        PyBuffer_Release(cython.address(view))
        raise ValueError(f"{size} bytes do not fit at byte {at} of {buffer_bytes}")
    # Invariant: nothing below can fail, so the buffer is released and no record stays half written.
    record: cython.p_uchar = cython.cast(cython.p_uchar, view.buf) + at
    to: cython.p_uchar = put_fields(
        record, cython.address(fields), _bytes_at(body), body_bytes, properties_bytes
    )
    memcpy(to, _bytes_at(properties), properties_bytes)
    # Invariant: the start of a record is written last; until then it does not exist.
    keep_order()
    begin_record(record, cython.address(fields), size)
    PyBuffer_Release(cython.address(view))
    return size


# --- walking ------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
def _new_row(rows: bytearray) -> cython.p_uchar:
    """Append a row; return its address, which is valid until the next one is appended."""
    at: cython.Py_ssize_t = PyByteArray_GET_SIZE(rows)
    PyByteArray_Resize(rows, at + _ROW_BYTES)
    return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(rows)) + at


@cython.final
@cython.cclass
class _Queue:
    """A queue seen on a walk, and its newest run, which may grow."""

    topic: bytes
    queue_id: cython.int
    runs: list[EntryRun]
    entries: bytearray
    last_offset: cython.longlong


@cython.final
@cython.cclass
class _Walker:
    """The state of a walk; positions count from the start of the buffer."""

    bytes_at: cython.p_uchar
    # The current record.
    size: cython.Py_ssize_t
    system_flag: cython.uint
    store_ms: cython.longlong
    topic_start: cython.Py_ssize_t
    topic_stop: cython.Py_ssize_t
    properties_start: cython.Py_ssize_t
    properties_stop: cython.Py_ssize_t
    # Values of its properties; an empty span where it has none.
    tag_start: cython.Py_ssize_t
    tag_stop: cython.Py_ssize_t
    unique_start: cython.Py_ssize_t
    unique_stop: cython.Py_ssize_t
    keys_start: cython.Py_ssize_t
    keys_stop: cython.Py_ssize_t
    # What was found.
    runs: dict[tuple[bytes, int], list[EntryRun]]
    queues: dict[tuple[bytes, int], _Queue]
    slots: list[_Queue | None]
    slot_mask: cython.uint
    keys: bytearray

    @cython.cfunc
    @cython.exceptval(check=False)
    def locate(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, check_body: cython.bint
    ) -> cython.bint:
        """Find the fields of the record at a position; False if the plain form must judge it."""
        if end - at < 91:
            return False
        record: cython.p_uchar = self.bytes_at + at
        magic: cython.uint = get_32(record + 4)
        is_v2: cython.bint = magic == _MAGIC_V2
        size: cython.Py_ssize_t = get_32(record)
        if (magic != _MAGIC_V1 and not is_v2) or size < 91 or size > end - at:
            return False
        system_flag: cython.uint = get_32(record + 36)
        # From here on, positions count from the start of the record.
        store_ms_at: cython.Py_ssize_t = 68 if system_flag & 0x10 else 56
        body_at: cython.Py_ssize_t = store_ms_at + (44 if system_flag & 0x20 else 32)
        if body_at + 3 + is_v2 > size:
            return False
        body_bytes: cython.Py_ssize_t = get_32(record + (body_at - 4))
        if body_bytes > size - body_at - 3 - is_v2:
            return False
        topic_at: cython.Py_ssize_t = body_at + body_bytes + 1 + is_v2
        topic_bytes: cython.Py_ssize_t = record[topic_at - 1]
        if is_v2:
            topic_bytes |= cython.cast(cython.Py_ssize_t, record[topic_at - 2]) << 8
        if topic_bytes > (32767 if is_v2 else 127) or topic_bytes > size - topic_at - 2:
            return False
        properties_at: cython.Py_ssize_t = topic_at + topic_bytes + 2
        properties_bytes: cython.Py_ssize_t = (
            cython.cast(cython.Py_ssize_t, record[properties_at - 2]) << 8
        ) | record[properties_at - 1]
        if properties_bytes > 32767 or properties_bytes != size - properties_at:
            return False
        if (
            check_body
            and body_bytes
            and (crc32(0, record + body_at, cython.cast(cython.uint, body_bytes)) & _CRC_MASK)
            != get_32(record + 8)
        ):
            return False
        self.size = size
        self.system_flag = system_flag
        self.store_ms = get_64(record + store_ms_at)
        self.topic_start = at + topic_at
        self.topic_stop = at + topic_at + topic_bytes
        self.properties_start = at + properties_at
        self.properties_stop = at + size
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def holds_zeros(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Whether there is a zero byte between two positions."""
        found: cython.p_uchar = cython.cast(
            cython.p_uchar, memchr(self.bytes_at + start, 0, stop - start)
        )
        is_there: cython.bint = found != cython.NULL
        return is_there

    @cython.cfunc
    @cython.exceptval(check=False)
    def has_whole_texts(self) -> cython.bint:
        """Whether the record has a topic, and no zero bytes in topic and properties."""
        return (
            self.topic_start < self.topic_stop
            and not self.holds_zeros(self.topic_start, self.topic_stop)
            and not self.holds_zeros(self.properties_start, self.properties_stop)
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def find_properties(self) -> cython.void:
        """Find tag, unique id and keys; of several, the last that has a value."""
        start: cython.Py_ssize_t = self.properties_start
        stop: cython.Py_ssize_t
        length: cython.Py_ssize_t
        entry: cython.p_uchar
        separator: cython.p_uchar
        self.tag_start = self.tag_stop = 0
        self.unique_start = self.unique_stop = 0
        self.keys_start = self.keys_stop = 0
        while start < self.properties_stop:
            entry = self.bytes_at + start
            separator = cython.cast(cython.p_uchar, memchr(entry, 2, self.properties_stop - start))
            stop = self.properties_stop if separator == cython.NULL else separator - self.bytes_at
            length = stop - start
            if length > 5 and memcmp(entry, b"TAGS\x01", 5) == 0:
                self.tag_start = start + 5
                self.tag_stop = stop
            elif length > 5 and memcmp(entry, b"KEYS\x01", 5) == 0:
                self.keys_start = start + 5
                self.keys_stop = stop
            elif length > 9 and memcmp(entry, b"UNIQ_KEY\x01", 9) == 0:
                self.unique_start = start + 9
                self.unique_stop = stop
            start = stop + 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_ascii(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Whether bytes are ASCII, so that each is a UTF-16 unit."""
        seen: cython.uchar = 0
        while start < stop:
            seen |= self.bytes_at[start]
            start += 1
        return seen < 128

    @cython.cfunc
    @cython.exceptval(check=False)
    def add_to_hash(
        self, hashed: cython.uint, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.uint:
        """Continue Java's hash over ASCII bytes."""
        while start < stop:
            hashed = 31 * hashed + self.bytes_at[start]
            start += 1
        return hashed

    @cython.cfunc
    def slice(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> bytes:
        """Copy bytes."""
        return self.bytes_at[start:stop]

    @cython.cfunc
    def tag_code(self, delay_levels_ms: tuple[int, ...]) -> cython.longlong:
        """The tag code of the record's queue entry."""
        topic_bytes: cython.Py_ssize_t = self.topic_stop - self.topic_start
        if (
            topic_bytes == len(_DELAY_TOPIC)
            and memcmp(self.bytes_at + self.topic_start, _bytes_at(_DELAY_TOPIC), topic_bytes) == 0
        ):
            properties: bytes = self.slice(self.properties_start, self.properties_stop)
            return record_tag_code(_DELAY_TOPIC, properties, self.store_ms, delay_levels_ms)
        if not self.is_ascii(self.tag_start, self.tag_stop):
            return hash_tag(self.slice(self.tag_start, self.tag_stop))
        return cython.cast(cython.int, self.add_to_hash(0, self.tag_start, self.tag_stop))

    @cython.cfunc
    def find_queue(self, queue_id: cython.int) -> _Queue:
        """Find the queue of the record."""
        topic_bytes: cython.Py_ssize_t = self.topic_stop - self.topic_start
        topic_at: cython.p_uchar = self.bytes_at + self.topic_start
        # Topics of one length mostly differ at their end.
        near: cython.Py_ssize_t = topic_bytes - 8 if topic_bytes > 8 else 0
        hashed: cython.uint = self.add_to_hash(
            cython.cast(cython.uint, queue_id), self.topic_start + near, self.topic_stop
        )
        slot: cython.Py_ssize_t = hashed & self.slot_mask
        known: object = self.slots[slot]
        queue: _Queue
        if known is not None:
            queue = cython.cast(_Queue, known)
            if (
                queue.queue_id == queue_id
                and len(queue.topic) == topic_bytes
                and memcmp(_bytes_at(queue.topic), topic_at, topic_bytes) == 0
            ):
                return queue
        topic: bytes = self.slice(self.topic_start, self.topic_stop)
        key: tuple[bytes, int] = (topic, queue_id)
        known = self.queues.get(key)
        if known is not None:
            queue = cython.cast(_Queue, known)
        else:
            queue = _Queue.__new__(_Queue)
            queue.topic = topic
            queue.queue_id = queue_id
            queue.runs = []
            self.queues[key] = queue
            self.runs[key] = queue.runs
        self.slots[slot] = queue
        return queue

    @cython.cfunc
    def take_entry(
        self, at: cython.Py_ssize_t, physical_offset: cython.longlong, tag_code: cython.longlong
    ) -> cython.int:
        """Collect the queue entry of the record."""
        queue_offset: cython.longlong = get_64(self.bytes_at + at + 20)
        queue: _Queue = self.find_queue(cython.cast(cython.int, get_32(self.bytes_at + at + 12)))
        if not queue.runs or queue_offset == LLONG_MIN or queue_offset - 1 != queue.last_offset:
            queue.entries = bytearray()
            queue.runs.append(EntryRun(queue_offset, queue.entries))
        queue.last_offset = queue_offset
        row: cython.p_uchar = _new_row(queue.entries)
        put_64(row, physical_offset)
        put_32(row + 8, cython.cast(cython.uint, self.size))
        put_64(row + 12, tag_code)
        return 0

    @cython.cfunc
    def take_keys(self, physical_offset: cython.longlong) -> cython.int:
        """Collect the keys of the record: its unique id, then each word of its keys."""
        start: cython.Py_ssize_t = self.keys_start
        stop: cython.Py_ssize_t
        if self.unique_start < self.unique_stop:
            self.take_key(self.unique_start, self.unique_stop, physical_offset)
        while start < self.keys_stop:
            stop = start
            while stop < self.keys_stop and self.bytes_at[stop] != 32:
                stop += 1
            if start < stop:
                self.take_key(start, stop, physical_offset)
            start = stop + 1
        return 0

    @cython.cfunc
    def take_key(
        self,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        physical_offset: cython.longlong,
    ) -> cython.int:
        """Collect one key."""
        hashed: cython.int
        if self.is_ascii(self.topic_start, self.topic_stop) and self.is_ascii(start, stop):
            hashed = cython.cast(
                cython.int,
                self.add_to_hash(
                    31 * self.add_to_hash(0, self.topic_start, self.topic_stop) + 35, start, stop
                ),
            )
            if hashed == INT_MIN:
                hashed = 0
            elif hashed < 0:
                hashed = -hashed
        else:
            hashed = hash_key(
                self.slice(self.topic_start, self.topic_stop), self.slice(start, stop)
            )
        row: cython.p_uchar = _new_row(self.keys)
        put_32(row, cython.cast(cython.uint, hashed))
        put_64(row + 4, physical_offset)
        put_64(row + 12, self.store_ms)
        return 0


def walk(  # noqa: PLR0913  # flags by name
    buffer: Buffer,
    start: int,
    end: int,
    base_offset: int,
    *,
    check_body: bool,
    delay_levels_ms: tuple[int, ...],
    with_keys: bool,
    check_places: bool = False,
    check_texts: bool = False,
) -> Walk:
    """Walk over `buffer[start:end]`. See scan.py."""
    check_span(buffer, start, end, base_offset)
    at: cython.Py_ssize_t = start
    stop: cython.Py_ssize_t = end
    base: cython.longlong = base_offset
    checks: cython.bint = check_body
    indexes: cython.bint = with_keys
    placed: cython.bint = check_places
    whole: cython.bint = check_texts
    records: cython.Py_ssize_t = 0
    first_store_ms: cython.longlong = 0
    last_store_ms: cython.longlong = 0
    newest_store_ms: cython.longlong = 0
    walker: _Walker = _Walker.__new__(_Walker)
    walker.runs = {}
    walker.queues = {}
    walker.slot_mask = 0 if stop - at <= _ONE_SLOT_BYTES_MAX else _SLOTS - 1
    walker.slots = [None] * (walker.slot_mask + 1)
    walker.keys = bytearray()
    view = cython.declare(Py_buffer)
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        # `check_span` counted items; those of a view have one byte or more.
        walker.bytes_at = cython.cast(cython.p_uchar, view.buf)
        while at < stop and walker.locate(at, stop, checks):
            if placed and (
                get_64(walker.bytes_at + at + 28) != base + at
                or (whole and not walker.has_whole_texts())
            ):
                break
            walker.find_properties()
            if not walker.system_flag & 4:
                walker.take_entry(at, base + at, walker.tag_code(delay_levels_ms))
            if indexes and walker.system_flag & 12 != 12:
                walker.take_keys(base + at)
            records += 1
            last_store_ms = walker.store_ms
            newest_store_ms = max(newest_store_ms, last_store_ms)
            if first_store_ms == 0:
                first_store_ms = last_store_ms
            at += walker.size
    finally:
        PyBuffer_Release(cython.address(view))
    stopped_by = _END
    if at < stop:
        found = (
            locate_at(buffer, at, end, base + at, check_body=check_body, check_texts=check_texts)
            if check_places
            else locate(buffer, at, end, check_body=check_body)
        )
        # Invariant: both forms agree on what is a record.
        assert isinstance(found, Found)
        stopped_by = found
    return Walk(
        at,
        stopped_by,
        records,
        first_store_ms,
        last_store_ms,
        walker.runs,
        walker.keys,
        newest_store_ms,
    )


def whole_records(
    buffer: Buffer, start: int, end: int, base_offset: int, *, check_body: bool
) -> tuple[int, int, Found]:
    """Find where the whole records of `buffer[start:end]` end. See scan.py."""
    check_span(buffer, start, end, base_offset)
    at: cython.Py_ssize_t = start
    stop: cython.Py_ssize_t = end
    base: cython.longlong = base_offset
    last: cython.Py_ssize_t = -1
    checks: cython.bint = check_body
    walker: _Walker = _Walker.__new__(_Walker)
    view = cython.declare(Py_buffer)
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        walker.bytes_at = cython.cast(cython.p_uchar, view.buf)
        while (
            at < stop
            and walker.locate(at, stop, checks)
            and get_64(walker.bytes_at + at + 28) == base + at
        ):
            last = at
            at += walker.size
    finally:
        PyBuffer_Release(cython.address(view))
    if at >= stop:
        return at, last, _END
    found = locate_at(buffer, at, end, base + at, check_body=check_body, check_texts=False)
    # Invariant: both forms agree on what is a record.
    assert isinstance(found, Found)
    return at, last, found


def is_sound(
    record: bytes, physical_offset: cython.longlong, topic: bytes | None, queue_id: int
) -> bool:
    """Whether a record is what a queue entry says. See scan.py."""
    return _is_sound(_Walker.__new__(_Walker), record, physical_offset, topic, queue_id)


@cython.cfunc
def _is_sound(
    walker: _Walker,
    record: bytes,
    physical_offset: cython.longlong,
    topic: bytes | None,
    queue_id: object,
) -> cython.bint:
    walker.bytes_at = _bytes_at(record)
    record_bytes: cython.Py_ssize_t = len(record)
    check_body: cython.bint = True
    if (
        not walker.locate(0, record_bytes, check_body)
        or walker.size != record_bytes
        or get_64(walker.bytes_at + 28) != physical_offset
    ):
        return False
    if topic is None:
        return True
    named: bytes = topic
    topic_bytes: cython.Py_ssize_t = walker.topic_stop - walker.topic_start
    return (
        topic_bytes == len(named)
        and memcmp(walker.bytes_at + walker.topic_start, _bytes_at(named), topic_bytes) == 0
        and cython.cast(cython.int, get_32(walker.bytes_at + 12)) == queue_id
    )


def sound_records(  # noqa: PLR0913, PLR0917  # Perf: plain arguments
    entries: bytes,
    content: Buffer,
    first_offset: cython.longlong,
    low: cython.longlong,
    high: cython.longlong,
    topic: bytes | None,
    queue_id: int,
    number: cython.longlong,
    count_max: cython.Py_ssize_t,
    bytes_max: cython.Py_ssize_t,
    tag_filter: Callable[[int], bool] | None,
) -> tuple[list[bytes], int, int]:
    """Copy the records that entries point to. See scan.py."""
    records: list[bytes] = []
    record: bytes
    row: cython.p_uchar = _bytes_at(entries)
    entry_count: cython.Py_ssize_t = len(entries) // _ROW_BYTES
    passed: cython.Py_ssize_t = 0
    taken: cython.Py_ssize_t = 0
    taken_bytes: cython.Py_ssize_t = 0
    record_bytes: cython.Py_ssize_t
    physical_offset: cython.longlong
    at: cython.Py_ssize_t
    content_at: cython.p_uchar
    walker: _Walker = _Walker.__new__(_Walker)
    bytes_max = max(bytes_max, 0)
    view = cython.declare(Py_buffer)
    PyObject_GetBuffer(content, cython.address(view), PyBUF_SIMPLE)
    try:
        content_at = cython.cast(cython.p_uchar, view.buf)
        low = max(low, first_offset)
        # Invariant: from here on, everything between `low` and `high` is in the view; neither a
        # difference nor the sum can wrap, since all are below `high` and none is negative.
        if first_offset < 0 or high < 0:
            high = low
        elif view.len < high - first_offset:
            high = first_offset + view.len
        while passed < entry_count:
            physical_offset = get_64(row)
            record_bytes = cython.cast(cython.int, get_32(row + 8))
            if (
                physical_offset < low
                or physical_offset >= high
                or record_bytes <= 0
                or record_bytes > high - physical_offset
                or (taken and (taken >= count_max or record_bytes > bytes_max - taken_bytes))
            ):
                break
            if tag_filter is None or tag_filter(get_64(row + 12)):
                # Invariant: the copy that is checked is the one returned, even if the content changes.
                at = physical_offset - first_offset
                record = content_at[at : at + record_bytes]
                if not _is_sound(walker, record, physical_offset, topic, queue_id):
                    break
                # The caller judges records with the flag of stand-ins, or with another number.
                if get_32(_bytes_at(record) + 16) == _LOST_FLAG or (
                    topic is not None and get_64(_bytes_at(record) + 20) != number + passed
                ):
                    break
                records.append(record)
                taken += 1
                taken_bytes += record_bytes
            passed += 1
            row = row + _ROW_BYTES
    finally:
        PyBuffer_Release(cython.address(view))
    return records, taken_bytes, passed
