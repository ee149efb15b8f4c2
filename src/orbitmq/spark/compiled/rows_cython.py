# distutils: libraries = z
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled way from records to the columns of their rows.

Compiled by Cython and never run as Python. It reads what nearly all records are: sound, with IPv4
hosts, a body as it was sent, texts in UTF-8 and properties in order. All others are left to the
plain form (rows.py), which reads every record; of those that both read, both make the same row.

Columns are handed over as Arrow has them: numbers side by side; texts as offsets and bytes, and a
bit for each row that tells whether there is one.

Invariant: nothing is read before its position was compared with the end of its record, and that
with the end of the buffer. What was found is kept here, and the buffer is held as long, so that
it stays true whatever becomes of the bytes.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    # Before the imports below, which are C's and fail in other ways.
    raise ImportError("orbitmq.spark.compiled.rows_cython runs compiled only")

from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcmp, memcpy, memset
from cython.cimports.orbitmq.record.compiled.big_endian import get_32, get_64
from cython.cimports.orbitmq.record.compiled.utf8 import is_utf8
from cython.cimports.orbitmq.record.compiled.zlib_c import crc32
from cython.cimports.orbitmq.spark.compiled.row_texts import (
    HOST_TEXT_BYTES_MAX,
    has_no_marks,
    put_host,
)

_MAGIC_V1 = cython.declare(cython.uint, 0xDAA320A7)
_MAGIC_V2 = cython.declare(cython.uint, 0xDAA320AB)
_CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)
_INT_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_MS_MAX = cython.declare(cython.longlong, 9223372036854775)
# Bits of the system flag: a packed body, or a host that is IPv6.
_COMPRESSED = cython.declare(cython.uint, 0x1)
_HOSTS_V6 = cython.declare(cython.uint, 0x30)
_HOST_BYTES = cython.declare(cython.Py_ssize_t, 8)
_OFFSET_ID_BYTES = cython.declare(cython.Py_ssize_t, 32)
_HEX_DIGITS = cython.declare(bytes, b"0123456789ABCDEF")
# Numbers of 64 bits, and of 32; what comes first is written first.
LONGS = ("queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp")
INTS = ("queueId", "flag", "sysFlag", "reconsumeTimes")
_LONGS = cython.declare(cython.Py_ssize_t, 4)
_INTS = cython.declare(cython.Py_ssize_t, 4)
# Texts, of which is kept where they begin and how long they are.
TEXTS = ("body", "topic", "properties", "msgId", "keys", "tags")
_TEXTS = cython.declare(cython.Py_ssize_t, 6)
_BODY = cython.declare(cython.Py_ssize_t, 0)
_TOPIC = cython.declare(cython.Py_ssize_t, 1)
_PROPERTIES = cython.declare(cython.Py_ssize_t, 2)
_ID = cython.declare(cython.Py_ssize_t, 3)
_KEYS = cython.declare(cython.Py_ssize_t, 4)
_TAGS = cython.declare(cython.Py_ssize_t, 5)
# Hosts, and where they lie in a record.
HOSTS = {"bornHost": 48, "storeHost": 64}


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _memory_of(made: bytes) -> cython.p_uchar:
    return cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))


@cython.final
@cython.cclass
class Columns:
    """The columns of ordinary records; those of other records are left out."""

    # How many rows the columns have, and for each record whether it is left to the plain form.
    rows: cython.Py_ssize_t = cython.declare(cython.Py_ssize_t, visibility="readonly")
    is_left: bytes = cython.declare(bytes, visibility="readonly")
    # All numbers of one field behind all of another, with room for all records.
    longs: bytes = cython.declare(bytes, visibility="readonly")
    ints: bytes = cython.declare(bytes, visibility="readonly")
    buffer: Py_buffer
    is_held: cython.bint
    records: cython.Py_ssize_t
    # For each row where its record starts; then for each kind of text where it begins, and how
    # long it is, which is -1 where there is none.
    places: bytes
    check_texts: cython.bint
    find_entries: cython.bint
    check_bodies: cython.bint

    def __dealloc__(self) -> None:
        """Let the buffer go."""
        if self.is_held:
            PyBuffer_Release(cython.address(self.buffer))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def starts(self) -> cython.p_int:
        """Where the record of each row starts."""
        return cython.cast(cython.p_int, PyBytes_AS_STRING(self.places))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def text_starts(self, text: cython.Py_ssize_t) -> cython.p_int:
        """Where a text of each row begins."""
        return self.starts() + (1 + 2 * text) * self.records

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def text_sizes(self, text: cython.Py_ssize_t) -> cython.p_int:
        """How long a text of each row is; -1 where there is none."""
        return self.starts() + (2 + 2 * text) * self.records

    # --- finding ----------------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def keep(
        self,
        text: cython.Py_ssize_t,
        row: cython.Py_ssize_t,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ) -> cython.void:
        """Keep where a text of a row lies."""
        self.text_starts(text)[row] = cython.cast(cython.int, start)
        self.text_sizes(text)[row] = cython.cast(cython.int, size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def read(
        self, row: cython.Py_ssize_t, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.bint:
        """Read the record that starts at a position; False when the plain form must."""
        if end - at < 91:
            return False
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        record: cython.p_uchar = content + at
        magic: cython.uint = get_32(record + 4)
        is_v2: cython.bint = magic == _MAGIC_V2
        size: cython.Py_ssize_t = get_32(record)
        if (magic != _MAGIC_V1 and not is_v2) or size < 91 or size > end - at:
            return False
        system_flag: cython.uint = get_32(record + 36)
        body_bytes: cython.Py_ssize_t = get_32(record + 84)
        if system_flag & _HOSTS_V6 or (system_flag & _COMPRESSED and body_bytes):
            return False
        # A record of V1 without texts takes 91 bytes, with both lengths behind the body.
        if body_bytes > size - 91 - is_v2:
            return False
        topic_at: cython.Py_ssize_t = 88 + body_bytes + 1 + is_v2
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
        if get_32(record + 52) > 65535 or get_32(record + 68) > 65535:
            return False
        if self.check_texts and not (
            is_utf8(record + topic_at, topic_bytes)
            and is_utf8(record + properties_at, properties_bytes)
        ):
            return False
        if self.find_entries and not self.find(row, at + properties_at, at + size):
            return False
        if (
            self.check_bodies
            and body_bytes
            and (crc32(0, record + 88, cython.cast(cython.uint, body_bytes)) & _CRC_MASK)
            != get_32(record + 8)
        ):
            return False
        self.starts()[row] = cython.cast(cython.int, at)
        self.keep(_BODY, row, at + 88, body_bytes)
        self.keep(_TOPIC, row, at + topic_at, topic_bytes)
        self.keep(_PROPERTIES, row, at + properties_at, properties_bytes)
        self.read_numbers(row, record)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def read_numbers(self, row: cython.Py_ssize_t, record: cython.p_uchar) -> cython.void:
        """Write the numbers of a record where their columns have the row."""
        longs: cython.p_longlong = (
            cython.cast(cython.p_longlong, PyBytes_AS_STRING(self.longs)) + row
        )
        longs[0] = get_64(record + 20)
        longs[self.records] = get_64(record + 28)
        longs[2 * self.records] = min(max(get_64(record + 40), -_MS_MAX), _MS_MAX) * 1000
        longs[3 * self.records] = min(max(get_64(record + 56), -_MS_MAX), _MS_MAX) * 1000
        ints: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(self.ints)) + row
        ints[0] = cython.cast(cython.int, get_32(record + 12))
        ints[self.records] = cython.cast(cython.int, get_32(record + 16))
        # Compat: Java's decoder clears the bit of a body that it unpacks; none of these is packed.
        ints[2 * self.records] = cython.cast(cython.int, get_32(record + 36))
        ints[3 * self.records] = cython.cast(cython.int, get_32(record + 72))

    @cython.cfunc
    @cython.exceptval(check=False)
    def find(
        self, row: cython.Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        """Find id, keys and tags among properties; False when these are not in order.

        They are name, 0x01, value, 0x02, repeated, where the last 0x02 may be missing; names and
        values are not empty and hold no byte below 0x03.
        """
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        at: cython.Py_ssize_t = start
        name: cython.Py_ssize_t = start
        value: cython.Py_ssize_t = 0
        is_value: cython.bint = False
        mark: cython.uchar
        self.text_sizes(_ID)[row] = -1
        self.text_sizes(_KEYS)[row] = -1
        self.text_sizes(_TAGS)[row] = -1
        while at < stop:
            # Perf: eight bytes at a time halve the time (benchmarks/arrow_decode.py).
            if stop - at >= 8 and has_no_marks(content + at):
                at += 8
                continue
            # One is among the next eight, or the end is near.
            mark = content[at]
            at += 1
            while mark > 2 and at < stop:
                mark = content[at]
                at += 1
            if mark > 2:
                break
            if mark == 1 and not is_value and at - 1 > name:
                value = at
            elif mark == 2 and is_value and at - 1 > value:
                self.keep_entry(row, name, value, at - 1)
                name = at
            else:
                return False
            is_value = not is_value
        if not is_value:
            return name == stop
        if value == stop:
            return False
        self.keep_entry(row, name, value, stop)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def keep_entry(
        self,
        row: cython.Py_ssize_t,
        name: cython.Py_ssize_t,
        value: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.void:
        """Keep a property that is a column; of several the last counts."""
        text: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf) + name
        # The name and its end.
        size: cython.Py_ssize_t = value - name
        if size == 5:
            if memcmp(text, b"KEYS", 4) == 0:
                self.keep(_KEYS, row, value, stop - value)
            elif memcmp(text, b"TAGS", 4) == 0:
                self.keep(_TAGS, row, value, stop - value)
        elif size == 9 and memcmp(text, b"UNIQ_KEY", 8) == 0:
            self.keep(_ID, row, value, stop - value)

    # --- columns ----------------------------------------------------------------------------------

    @cython.cfunc
    def sum_of(self, text: cython.Py_ssize_t, lacking: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """How many bytes texts take; those that are lacking take so many each."""
        sizes: cython.p_int = self.text_sizes(text)
        total: cython.longlong = 0
        row: cython.Py_ssize_t
        for row in range(self.rows):
            total += sizes[row] if sizes[row] >= 0 else lacking
        if total > _INT_MAX:
            raise OverflowError(f"{total} bytes are too many for a column")
        return cython.cast(cython.Py_ssize_t, total)

    def texts(self, name: str) -> tuple[bytes, bytes]:
        """Give offsets and bytes of a column that has a text in each row."""
        text: cython.Py_ssize_t = TEXTS.index(name)
        size: cython.Py_ssize_t = self.sum_of(text, 0)
        offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (self.rows + 1))
        copied: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        self.copy(text, offsets, copied)
        return offsets, copied

    @cython.cfunc
    @cython.exceptval(check=False)
    def copy(self, text: cython.Py_ssize_t, offsets: bytes, copied: bytes) -> cython.void:
        """Write offsets and bytes of a text of all rows."""
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        starts: cython.p_int = self.text_starts(text)
        sizes: cython.p_int = self.text_sizes(text)
        ends: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
        to: cython.p_uchar = _memory_of(copied)
        at: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        for row in range(self.rows):
            ends[row] = cython.cast(cython.int, at)
            if sizes[row] > 0:
                memcpy(to + at, content + starts[row], sizes[row])
                at += sizes[row]
        ends[self.rows] = cython.cast(cython.int, at)

    def optional_texts(self, name: str) -> tuple[bytes, int, bytes, bytes]:
        """Give a column that may lack texts: which there are, how many lack, offsets and bytes."""
        text: cython.Py_ssize_t = TEXTS.index(name)
        offsets, copied = self.texts(name)
        size: cython.Py_ssize_t = (self.rows + 7) // 8
        are_there: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        bits: cython.p_uchar = _memory_of(are_there)
        memset(bits, 0, size)
        sizes: cython.p_int = self.text_sizes(text)
        lacking: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        for row in range(self.rows):
            if sizes[row] < 0:
                lacking += 1
            else:
                bits[row >> 3] |= cython.cast(cython.uchar, 1 << (row & 7))
        return are_there, lacking, offsets, copied

    def ids(self) -> tuple[bytes, bytes]:
        """Give offsets and bytes of the ids: of a record that has none, where it lies."""
        size: cython.Py_ssize_t = self.sum_of(_ID, _OFFSET_ID_BYTES)
        offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (self.rows + 1))
        copied: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        starts: cython.p_int = self.text_starts(_ID)
        sizes: cython.p_int = self.text_sizes(_ID)
        ends: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
        digits: cython.p_uchar = _memory_of(_HEX_DIGITS)
        to: cython.p_uchar = _memory_of(copied)
        record: cython.p_uchar
        byte: cython.uchar
        at: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        number: cython.Py_ssize_t
        for row in range(self.rows):
            ends[row] = cython.cast(cython.int, at)
            if sizes[row] >= 0:
                memcpy(to + at, content + starts[row], sizes[row])
                at += sizes[row]
                continue
            record = content + self.starts()[row]
            for number in range(16):
                # The store host, then the physical offset.
                byte = record[64 + number] if number < 8 else record[20 + number]
                to[at] = digits[byte >> 4]
                to[at + 1] = digits[byte & 15]
                at += 2
        ends[self.rows] = cython.cast(cython.int, at)
        return offsets, copied

    def hosts(self, name: str) -> tuple[bytes, bytes]:
        """Give offsets and bytes of a column of hosts; of the bytes the last may not be used."""
        host_at: cython.Py_ssize_t = HOSTS[name]
        if self.rows * HOST_TEXT_BYTES_MAX > _INT_MAX:
            raise OverflowError(f"{self.rows} hosts are too many for a column")
        offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (self.rows + 1))
        written: bytes = PyBytes_FromStringAndSize(cython.NULL, self.rows * HOST_TEXT_BYTES_MAX)
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        starts: cython.p_int = self.starts()
        ends: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
        to: cython.p_uchar = _memory_of(written)
        host: cython.p_uchar
        last: cython.p_uchar = content
        size: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        for row in range(self.rows):
            ends[row] = cython.cast(cython.int, at)
            host = content + starts[row] + host_at
            # Perf: most records come from where the one before came from.
            if row > 0 and memcmp(host, last, _HOST_BYTES) == 0:
                memcpy(to + at, to + (at - size), size)
            else:
                size = put_host(to + at, host)
            last = host
            at += size
        ends[self.rows] = cython.cast(cython.int, at)
        return offsets, written


def record_starts(records: bytes) -> tuple[bytes, int, int]:
    """Where records start that lie back to back; how many there are, and where the last ends.

    See `record_starts` of record_places.py; of the starts, numbers of 64 bits, the last may not
    be used.
    """
    content: cython.p_uchar = _memory_of(records)
    end: cython.Py_ssize_t = len(records)
    # No record is shorter.
    starts: bytes = PyBytes_FromStringAndSize(cython.NULL, 8 * (end // 91))
    to: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(starts))
    count: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    while end - at >= 91:
        size = get_32(content + at)
        if size < 91:
            break
        to[count] = at
        count += 1
        at += size
    return starts, count, at


def columns_of(
    buffer: bytes | memoryview,
    positions: bytes | memoryview,
    *,
    check_texts: bool,
    find_entries: bool,
    check_bodies: bool,
) -> Columns:
    """Find the columns of the records that start at positions, numbers of 64 bits that ascend.

    Texts may be asked for if they are checked, and those out of properties if entries are found.
    """
    columns: Columns = Columns()
    columns.check_texts = check_texts
    columns.find_entries = find_entries
    columns.check_bodies = check_bodies
    PyObject_GetBuffer(buffer, cython.address(columns.buffer), PyBUF_SIMPLE)
    columns.is_held = True
    size: cython.Py_ssize_t = columns.buffer.len
    if size > _INT_MAX:
        raise OverflowError(f"{size} bytes are too many for offsets of 32 bits")
    view = cython.declare(Py_buffer)
    PyObject_GetBuffer(positions, cython.address(view), PyBUF_SIMPLE)
    try:
        records: cython.Py_ssize_t = view.len // 8
        columns.records = records
        columns.longs = PyBytes_FromStringAndSize(cython.NULL, 8 * _LONGS * records)
        columns.ints = PyBytes_FromStringAndSize(cython.NULL, 4 * _INTS * records)
        columns.places = PyBytes_FromStringAndSize(cython.NULL, 4 * (1 + 2 * _TEXTS) * records)
        columns.is_left = PyBytes_FromStringAndSize(cython.NULL, records)
        left: cython.p_uchar = _memory_of(columns.is_left)
        ats: cython.p_longlong = cython.cast(cython.p_longlong, view.buf)
        at: cython.longlong
        end: cython.longlong
        is_read: cython.bint
        row: cython.Py_ssize_t = 0
        record: cython.Py_ssize_t
        for record in range(records):
            at = ats[record]
            end = ats[record + 1] if record + 1 < records else size
            is_read = 0 <= at < end <= size and columns.read(
                row, cython.cast(cython.Py_ssize_t, at), cython.cast(cython.Py_ssize_t, end)
            )
            left[record] = not is_read
            row += is_read
        columns.rows = row
    finally:
        PyBuffer_Release(cython.address(view))
    return columns
