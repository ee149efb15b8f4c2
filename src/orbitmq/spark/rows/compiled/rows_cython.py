# distutils: libraries = z
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of decoding records into the columns of their rows.

Compiled by Cython and never run as Python. It reads nearly all records. The plain form
(plain_rows.py) reads the others: damaged ones, texts that are not UTF-8, invalid ports, and maps of
very many properties. For a record that both can read, both make the same row.

Columns are returned as Arrow stores them: numbers side by side; texts as offsets and bytes, and a
bit for each row that says whether it has one.

Invariant: nothing is read before its position was compared with the end of its record, and that
with the end of the buffer. The positions found are kept here and the buffer is held as long, so
that they stay within it even if its bytes change.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    # Before the imports below, which are C's and fail in other ways.
    raise ImportError("orbitmq.spark.rows.compiled.rows_cython runs compiled only")

from collections.abc import Callable

from cython.cimports.cpython.buffer import (
    Py_buffer,
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcmp, memcpy, memset
from cython.cimports.orbitmq.record.compiled.big_endian import get_32, get_64
from cython.cimports.orbitmq.record.compiled.utf8 import is_utf8
from cython.cimports.orbitmq.record.compiled.zlib_c import crc32
from cython.cimports.orbitmq.spark.rows.compiled.row_texts import (
    HOST_TEXT_BYTES_MAX,
    has_no_marks,
    put_host,
)

_MAGIC_V1 = cython.declare(cython.uint, 0xDAA320A7)
_MAGIC_V2 = cython.declare(cython.uint, 0xDAA320AB)
_CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)
_INT_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
_MS_MAX = cython.declare(cython.longlong, 9223372036854775)
# Bits of the system flag: a compressed body, and hosts that are IPv6.
_COMPRESSED = cython.declare(cython.uint, 0x1)
_HOSTS_V6 = cython.declare(cython.uint, 0x30)
_HOST_BYTES_V4 = cython.declare(cython.Py_ssize_t, 8)
_HOST_BYTES_V6 = cython.declare(cython.Py_ssize_t, 20)
# As long as [0000:0000:0000:0000:0000:ffff:255.255.255.255]:65535.
_HOST_TEXT_BYTES_MAX_V6 = cython.declare(cython.Py_ssize_t, 53)
_OFFSET_ID_BYTES = cython.declare(cython.Py_ssize_t, 32)
_OFFSET_ID_BYTES_MAX = cython.declare(cython.Py_ssize_t, 56)
_HEX_DIGITS = cython.declare(bytes, b"0123456789ABCDEF")
# Each property of a map is compared with those before it, so this bounds the time.
_MAP_ENTRIES_MAX = cython.declare(cython.Py_ssize_t, 64)
# Numbers of 64 bits, and of 32, in the order in which they are written.
LONGS = ("queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp")
INTS = ("queueId", "flag", "sysFlag", "reconsumeTimes")
_LONGS = cython.declare(cython.Py_ssize_t, 4)
_INTS = cython.declare(cython.Py_ssize_t, 4)
# Texts; their positions and sizes are kept.
TEXTS = ("body", "topic", "properties", "msgId", "keys", "tags")
_TEXTS = cython.declare(cython.Py_ssize_t, 6)
_BODY = cython.declare(cython.Py_ssize_t, 0)
_TOPIC = cython.declare(cython.Py_ssize_t, 1)
_PROPERTIES = cython.declare(cython.Py_ssize_t, 2)
_ID = cython.declare(cython.Py_ssize_t, 3)
_KEYS = cython.declare(cython.Py_ssize_t, 4)
_TAGS = cython.declare(cython.Py_ssize_t, 5)
# Hosts, and where they are in a record without IPv6.
HOSTS = {"bornHost": 48, "storeHost": 64}


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _born_more(system_flag: cython.uint) -> cython.Py_ssize_t:
    """How much longer the born host is than IPv4."""
    return 12 if system_flag & 0x10 else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _store_more(system_flag: cython.uint) -> cython.Py_ssize_t:
    """How much longer the store host is than IPv4."""
    return 12 if system_flag & 0x20 else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _memory_of(made: bytes) -> cython.p_uchar:
    return cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))


@cython.final
@cython.cclass
class Columns:
    """The columns of records, without those that are left to the plain form."""

    # How many rows the columns have, and for each record whether it is left to the plain form.
    rows: cython.Py_ssize_t = cython.declare(cython.Py_ssize_t, visibility="readonly")
    is_left: bytes = cython.declare(bytes, visibility="readonly")
    # All numbers of one field after all of another, with room for all records.
    longs: bytes = cython.declare(bytes, visibility="readonly")
    ints: bytes = cython.declare(bytes, visibility="readonly")
    buffer: Py_buffer
    is_held: cython.bint
    records: cython.Py_ssize_t
    # For each row where its record starts; then for each kind of text where it starts and its
    # size, which is -1 if there is none.
    places: bytes
    # The rows with compressed bodies.
    compressed_rows: bytes
    compressed: cython.Py_ssize_t
    has_v6: cython.bint
    # Properties for maps: start and size of name and value; the first of each row.
    entries: cython.p_int
    entries_there: cython.Py_ssize_t
    entries_room: cython.Py_ssize_t
    first_entries: bytes
    is_out_of_memory: cython.bint
    check_texts: cython.bint
    find_entries: cython.bint
    find_maps: cython.bint
    check_bodies: cython.bint

    def __dealloc__(self) -> None:
        """Release the buffer."""
        free(self.entries)
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
        """Where a text of each row starts."""
        return self.starts() + (1 + 2 * text) * self.records

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def text_sizes(self, text: cython.Py_ssize_t) -> cython.p_int:
        """The size of a text of each row; -1 if there is none."""
        return self.starts() + (2 + 2 * text) * self.records

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def system_flags(self) -> cython.p_int:
        """The system flag of each row."""
        return cython.cast(cython.p_int, PyBytes_AS_STRING(self.ints)) + 2 * self.records

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
        """Keep where a text of a row is."""
        self.text_starts(text)[row] = cython.cast(cython.int, start)
        self.text_sizes(text)[row] = cython.cast(cython.int, size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def read(
        self, row: cython.Py_ssize_t, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.bint:
        """Read the record that starts at a position; False if the plain form must."""
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
        born_more: cython.Py_ssize_t = 0
        body_at: cython.Py_ssize_t = 88
        # Perf: a condition, so that the processor need not wait for the flag before it reads on; a
        # sum takes 3 ns more (benchmarks/arrow_decode.py, body only).
        if system_flag & _HOSTS_V6:
            born_more = _born_more(system_flag)
            body_at += born_more + _store_more(system_flag)
            self.has_v6 = True
        # A record of V1 without texts ends with both their lengths.
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
        # The ports of both hosts.
        if get_32(record + 52 + born_more) > 65535 or get_32(record + (body_at - 20)) > 65535:
            return False
        if self.check_texts and not (
            is_utf8(record + topic_at, topic_bytes)
            and is_utf8(record + properties_at, properties_bytes)
        ):
            return False
        if (
            self.check_bodies
            and body_bytes
            and (crc32(0, record + body_at, cython.cast(cython.uint, body_bytes)) & _CRC_MASK)
            != get_32(record + 8)
        ):
            return False
        if self.find_entries and not self.find(row, at + properties_at, at + size):
            return False
        self.starts()[row] = cython.cast(cython.int, at)
        self.keep(_BODY, row, at + body_at, body_bytes)
        self.keep(_TOPIC, row, at + topic_at, topic_bytes)
        self.keep(_PROPERTIES, row, at + properties_at, properties_bytes)
        # Compat: as in Java, an empty body is never decompressed, whatever the flag says. Java's
        # decoder clears the bit of a body that it decompresses, and leaves those of its kind.
        if system_flag & _COMPRESSED and body_bytes:
            system_flag &= ~_COMPRESSED
            cython.cast(cython.p_int, PyBytes_AS_STRING(self.compressed_rows))[self.compressed] = (
                cython.cast(cython.int, row)
            )
            self.compressed += 1
        self.read_numbers(row, record, system_flag, born_more, body_at)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def read_numbers(
        self,
        row: cython.Py_ssize_t,
        record: cython.p_uchar,
        system_flag: cython.uint,
        born_more: cython.Py_ssize_t,
        body_at: cython.Py_ssize_t,
    ) -> cython.void:
        """Write the numbers of a record where their columns have the row."""
        longs: cython.p_longlong = (
            cython.cast(cython.p_longlong, PyBytes_AS_STRING(self.longs)) + row
        )
        longs[0] = get_64(record + 20)
        longs[self.records] = get_64(record + 28)
        longs[2 * self.records] = min(max(get_64(record + 40), -_MS_MAX), _MS_MAX) * 1000
        longs[3 * self.records] = (
            min(max(get_64(record + 56 + born_more), -_MS_MAX), _MS_MAX) * 1000
        )
        ints: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(self.ints)) + row
        ints[0] = cython.cast(cython.int, get_32(record + 12))
        ints[self.records] = cython.cast(cython.int, get_32(record + 16))
        ints[2 * self.records] = cython.cast(cython.int, system_flag)
        ints[3 * self.records] = cython.cast(cython.int, get_32(record + (body_at - 16)))

    @cython.cfunc
    @cython.exceptval(check=False)
    def find(
        self, row: cython.Py_ssize_t, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
    ) -> cython.bint:
        """Find id, keys and tags among properties, or all; False if the plain form must.

        They are name, 0x01, value, 0x02, repeated, where the last 0x02 may be missing. Properties
        without a name or a value are dropped.
        """
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        first_entry: cython.Py_ssize_t = self.entries_there
        at: cython.Py_ssize_t = start
        name: cython.Py_ssize_t = start
        # Where the value starts; -1 within a name.
        value: cython.Py_ssize_t = -1
        mark: cython.uchar
        self.text_sizes(_ID)[row] = -1
        self.text_sizes(_KEYS)[row] = -1
        self.text_sizes(_TAGS)[row] = -1
        if self.find_maps:
            cython.cast(cython.p_int, PyBytes_AS_STRING(self.first_entries))[row] = cython.cast(
                cython.int, first_entry
            )
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
            if mark == 2:
                if not self.keep_entry(row, first_entry, name, value, at - 1):
                    return False
                name = at
                value = -1
            elif mark == 1 and value < 0:
                value = at
        return self.keep_entry(row, first_entry, name, value, stop)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def keep_entry(
        self,
        row: cython.Py_ssize_t,
        first_entry: cython.Py_ssize_t,
        name: cython.Py_ssize_t,
        value: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Keep a property that is a column or in a map; the last one of a name counts."""
        # The name and its end.
        size: cython.Py_ssize_t = value - name
        if size < 2 or value >= stop:
            return True
        text: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf) + name
        if size == 5:
            if memcmp(text, b"KEYS", 4) == 0:
                self.keep(_KEYS, row, value, stop - value)
            elif memcmp(text, b"TAGS", 4) == 0:
                self.keep(_TAGS, row, value, stop - value)
        elif size == 9 and memcmp(text, b"UNIQ_KEY", 8) == 0:
            self.keep(_ID, row, value, stop - value)
        return not self.find_maps or self.add_to_map(first_entry, name, value, stop)

    @cython.cfunc
    @cython.exceptval(check=False)
    def add_to_map(
        self,
        first_entry: cython.Py_ssize_t,
        name: cython.Py_ssize_t,
        value: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
    ) -> cython.bint:
        """Add a property to the map that starts with an entry; False if it has too many.

        A repeated name keeps its position and gets the new value, as in a dict.
        """
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        entry: cython.p_int
        grown: cython.p_int
        name_bytes: cython.Py_ssize_t = value - 1 - name
        number: cython.Py_ssize_t
        for number in range(first_entry, self.entries_there):
            entry = self.entries + 4 * number
            if (
                entry[1] == name_bytes
                and memcmp(content + entry[0], content + name, name_bytes) == 0
            ):
                entry[2] = cython.cast(cython.int, value)
                entry[3] = cython.cast(cython.int, stop - value)
                return True
        if self.entries_there - first_entry == _MAP_ENTRIES_MAX:
            self.entries_there = first_entry
            return False
        if self.entries_there == self.entries_room:
            room: cython.Py_ssize_t = 2 * self.entries_room + 1024
            grown = cython.cast(cython.p_int, realloc(self.entries, 16 * room))
            if grown == cython.NULL:
                self.is_out_of_memory = True
                return False
            self.entries = grown
            self.entries_room = room
        entry = self.entries + 4 * self.entries_there
        entry[0] = cython.cast(cython.int, name)
        entry[1] = cython.cast(cython.int, name_bytes)
        entry[2] = cython.cast(cython.int, value)
        entry[3] = cython.cast(cython.int, stop - value)
        self.entries_there += 1
        return True

    # --- columns ----------------------------------------------------------------------------------

    @cython.cfunc
    def sum_of(self, text: cython.Py_ssize_t, missing: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The bytes of all texts; a missing one takes `missing` bytes."""
        sizes: cython.p_int = self.text_sizes(text)
        total: cython.longlong = 0
        row: cython.Py_ssize_t
        for row in range(self.rows):
            total += sizes[row] if sizes[row] >= 0 else missing
        if total > _INT_MAX:
            raise OverflowError(f"{total} bytes are too many for a column")
        return cython.cast(cython.Py_ssize_t, total)

    def texts(self, name: str) -> tuple[bytes, bytes]:
        """Return offsets and bytes of a column that has a text in each row."""
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
        """Return a column with missing texts: a bit per row, how many, offsets and bytes."""
        text: cython.Py_ssize_t = TEXTS.index(name)
        offsets, copied = self.texts(name)
        size: cython.Py_ssize_t = (self.rows + 7) // 8
        validity: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        bits: cython.p_uchar = _memory_of(validity)
        memset(bits, 0, size)
        sizes: cython.p_int = self.text_sizes(text)
        missing: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        for row in range(self.rows):
            if sizes[row] < 0:
                missing += 1
            else:
                bits[row >> 3] |= cython.cast(cython.uchar, 1 << (row & 7))
        return validity, missing, offsets, copied

    def compressed_bodies(self) -> list[tuple[int, int, int]]:
        """Return where each compressed body starts, its size, and its system flag."""
        rows: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(self.compressed_rows))
        starts: cython.p_int = self.text_starts(_BODY)
        sizes: cython.p_int = self.text_sizes(_BODY)
        flags: cython.p_int = self.system_flags()
        return [
            (starts[rows[number]], sizes[rows[number]], flags[rows[number]])
            for number in range(self.compressed)
        ]

    def bodies(self, decompressed: list[bytes], bytes_max: cython.longlong) -> tuple[bytes, bytes]:
        """Return offsets and bytes of the bodies, with the compressed ones replaced.

        Raises OverflowError if they take more than `bytes_max`.
        """
        if len(decompressed) != self.compressed:
            raise ValueError(f"{len(decompressed)} bodies for {self.compressed} compressed ones")
        rows: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(self.compressed_rows))
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        starts: cython.p_int = self.text_starts(_BODY)
        sizes: cython.p_int = self.text_sizes(_BODY)
        body: bytes
        total: cython.longlong = self.sum_of(_BODY, 0)
        number: cython.Py_ssize_t
        for number in range(self.compressed):
            body = decompressed[number]
            total += len(body) - sizes[rows[number]]
        if total > min(bytes_max, _INT_MAX):
            raise OverflowError(f"{total} bytes are too many for a column")
        offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (self.rows + 1))
        copied: bytes = PyBytes_FromStringAndSize(
            cython.NULL, cython.cast(cython.Py_ssize_t, total)
        )
        ends: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
        to: cython.p_uchar = _memory_of(copied)
        at: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        number = 0
        for row in range(self.rows):
            ends[row] = cython.cast(cython.int, at)
            if number < self.compressed and rows[number] == row:
                body = decompressed[number]
                number += 1
                memcpy(to + at, PyBytes_AS_STRING(body), len(body))
                at += len(body)
            else:
                memcpy(to + at, content + starts[row], sizes[row])
                at += sizes[row]
        ends[self.rows] = cython.cast(cython.int, at)
        return offsets, copied

    def ids(self) -> tuple[bytes, bytes]:
        """Return offsets and bytes of the ids, the last of which may be unused.

        A record without an id has one that says where it is stored.
        """
        id_bytes: cython.Py_ssize_t = _OFFSET_ID_BYTES_MAX if self.has_v6 else _OFFSET_ID_BYTES
        size: cython.Py_ssize_t = self.sum_of(_ID, id_bytes)
        offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (self.rows + 1))
        copied: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        starts: cython.p_int = self.text_starts(_ID)
        sizes: cython.p_int = self.text_sizes(_ID)
        flags: cython.p_int = self.system_flags()
        ends: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
        to: cython.p_uchar = _memory_of(copied)
        record: cython.p_uchar
        flag: cython.uint
        at: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        for row in range(self.rows):
            ends[row] = cython.cast(cython.int, at)
            if sizes[row] >= 0:
                memcpy(to + at, content + starts[row], sizes[row])
                at += sizes[row]
                continue
            record = content + self.starts()[row]
            flag = cython.cast(cython.uint, flags[row])
            # The store host, then the physical offset.
            at += _put_digits(
                to + at, record + 64 + _born_more(flag), _HOST_BYTES_V4 + _store_more(flag)
            )
            at += _put_digits(to + at, record + 28, 8)
        ends[self.rows] = cython.cast(cython.int, at)
        return offsets, copied

    def hosts(self, name: str, text_of_v6: Callable[[bytes], str]) -> tuple[bytes, bytes]:
        """Return offsets and bytes of a column of hosts, the last of which may be unused."""
        host_at: cython.Py_ssize_t = HOSTS[name]
        is_store: cython.bint = host_at != 48
        text_bytes_max: cython.Py_ssize_t = (
            _HOST_TEXT_BYTES_MAX_V6 if self.has_v6 else HOST_TEXT_BYTES_MAX
        )
        if self.rows * text_bytes_max > _INT_MAX:
            raise OverflowError(f"{self.rows} hosts are too many for a column")
        offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (self.rows + 1))
        written: bytes = PyBytes_FromStringAndSize(cython.NULL, self.rows * text_bytes_max)
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        starts: cython.p_int = self.starts()
        flags: cython.p_int = self.system_flags()
        ends: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
        to: cython.p_uchar = _memory_of(written)
        host: cython.p_uchar
        last: cython.p_uchar = content
        flag: cython.uint
        host_bytes: cython.Py_ssize_t
        last_bytes: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t = 0
        row: cython.Py_ssize_t
        text: bytes
        for row in range(self.rows):
            ends[row] = cython.cast(cython.int, at)
            flag = cython.cast(cython.uint, flags[row])
            host = content + starts[row] + host_at
            if is_store:
                host += _born_more(flag)
                host_bytes = _HOST_BYTES_V4 + _store_more(flag)
            else:
                host_bytes = _HOST_BYTES_V4 + _born_more(flag)
            # Perf: most records come from the same host as the one before.
            if host_bytes == last_bytes and (
                get_64(host) == get_64(last)
                if host_bytes == _HOST_BYTES_V4
                else memcmp(host, last, _HOST_BYTES_V6) == 0
            ):
                memcpy(to + at, to + (at - size), size)
            elif host_bytes == _HOST_BYTES_V4:
                size = put_host(to + at, host)
            else:
                text = text_of_v6(cython.cast(cython.p_char, host)[:_HOST_BYTES_V6]).encode()
                size = len(text)
                if size > text_bytes_max:
                    raise ValueError(f"{text!r} is too long for a host")
                memcpy(to + at, PyBytes_AS_STRING(text), size)
            last = host
            last_bytes = host_bytes
            at += size
        ends[self.rows] = cython.cast(cython.int, at)
        return offsets, written

    def maps(self) -> tuple[bytes, tuple[bytes, bytes], tuple[bytes, bytes]]:
        """Return the first entry of each map, then offsets and bytes of all names and values."""
        return self.first_entries, self.entry_texts(0), self.entry_texts(2)

    @cython.cfunc
    def entry_texts(self, part: cython.Py_ssize_t) -> tuple[bytes, bytes]:
        """Copy the names of all entries (part 0), or their values (part 2)."""
        total: cython.longlong = 0
        entry: cython.p_int = self.entries + part
        number: cython.Py_ssize_t
        for number in range(self.entries_there):
            total += entry[4 * number + 1]
        # Invariant: less than the buffer has, since texts of entries do not overlap.
        offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (self.entries_there + 1))
        copied: bytes = PyBytes_FromStringAndSize(
            cython.NULL, cython.cast(cython.Py_ssize_t, total)
        )
        content: cython.p_uchar = cython.cast(cython.p_uchar, self.buffer.buf)
        ends: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
        to: cython.p_uchar = _memory_of(copied)
        at: cython.Py_ssize_t = 0
        for number in range(self.entries_there):
            ends[number] = cython.cast(cython.int, at)
            memcpy(to + at, content + entry[0], entry[1])
            at += entry[1]
            entry += 4
        ends[self.entries_there] = cython.cast(cython.int, at)
        return offsets, copied


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_digits(
    to: cython.p_uchar, octets: cython.p_uchar, count: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Write bytes as hexadecimal digits; returns how many."""
    digits: cython.p_uchar = _memory_of(_HEX_DIGITS)
    number: cython.Py_ssize_t
    for number in range(count):
        to[2 * number] = digits[octets[number] >> 4]
        to[2 * number + 1] = digits[octets[number] & 15]
    return 2 * count


def record_starts(records: bytes) -> tuple[bytes, int, int]:
    """Where records start that are back to back; how many there are, and where the last ends.

    See `record_starts` of plain_rows.py; of the starts, numbers of 64 bits, the last may be unused.
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
    find_maps: bool,
    check_bodies: bool,
) -> Columns:
    """Find the columns of the records that start at positions, numbers of 64 bits that ascend.

    Texts may be asked for if they are checked, those out of properties if entries are found, and
    maps if both they and entries are.
    """
    columns: Columns = Columns()
    columns.check_texts = check_texts
    columns.find_entries = find_entries
    columns.find_maps = find_maps
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
        columns.compressed_rows = PyBytes_FromStringAndSize(cython.NULL, 4 * records)
        columns.first_entries = PyBytes_FromStringAndSize(
            cython.NULL, 4 * (records + 1) if find_maps else 0
        )
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
        if find_maps:
            cython.cast(cython.p_int, PyBytes_AS_STRING(columns.first_entries))[row] = cython.cast(
                cython.int, columns.entries_there
            )
        if columns.is_out_of_memory:
            raise MemoryError(f"no memory for the properties of {records} records")
    finally:
        PyBuffer_Release(cython.address(view))
    return columns
