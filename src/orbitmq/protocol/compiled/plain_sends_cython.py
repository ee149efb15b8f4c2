# mypy: disable-error-code="index,attr-defined,arg-type,type-arg,valid-type"
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The compiled form of `read_plain_send` and `read_plain_batch`.

Compiled by Cython and never run as Python. It reads what Java and Go clients write: a header whose
texts are ASCII. It returns None for everything else, and the plain form is asked then; what it
returns equals what the plain form returns.

Invariant: nothing is read before its position was compared with the end; positions are signed and
as wide as a pointer.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    # Before the imports below, which are C's and fail in other ways.
    raise ImportError("orbitmq.protocol.compiled.plain_sends_cython runs compiled only")

from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memcmp, memcpy
from cython.cimports.orbitmq.protocol.compiled.plain_properties import NO, Properties, look_at
from cython.cimports.orbitmq.record.compiled.big_endian import get_32

from orbitmq.protocol.frame import BINARY, JSON
from orbitmq.protocol.plain_batches import PlainBatch
from orbitmq.protocol.plain_sends import PlainSend

_JSON = cython.declare(object, JSON)
_BINARY = cython.declare(object, BINARY)
_VALUE_END = cython.declare(cython.uchar, 2)
# Where the fields of the short spelling stand among the spans, by their letter: a is 0.
_TOPIC = cython.declare(cython.int, 1)
_QUEUE_ID = cython.declare(cython.int, 4)
_SYSTEM_FLAG = cython.declare(cython.int, 5)
_BORN = cython.declare(cython.int, 6)
_FLAG = cython.declare(cython.int, 7)
_PROPERTIES = cython.declare(cython.int, 8)
_RECONSUME = cython.declare(cython.int, 9)
_BATCH = cython.declare(cython.int, 12)
_FIELDS = cython.declare(cython.int, 14)


@cython.final
@cython.cclass
class _Reader:
    """Reads one header; positions count from the start of the chunk."""

    text: cython.p_uchar
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    # The number read last.
    number: cython.longlong
    # The text read last, without its quotes, and whether something in it is escaped.
    text_start: cython.Py_ssize_t
    text_stop: cython.Py_ssize_t
    has_escapes: cython.bint
    # What was found.
    is_binary: cython.bint
    code: cython.longlong
    opaque: cython.longlong
    flag: cython.longlong
    starts: cython.Py_ssize_t[14]
    stops: cython.Py_ssize_t[14]

    @cython.cfunc
    @cython.exceptval(check=False)
    def take(self, letter: cython.uchar) -> cython.bint:
        """Go past a letter that must come next."""
        if self.at >= self.end or self.text[self.at] != letter:
            return False
        self.at += 1
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_number(self, stop: cython.Py_ssize_t) -> cython.bint:
        """Read a whole number of at most 18 digits, written in the one usual way."""
        negative: cython.bint = self.at < stop and self.text[self.at] == 45
        if negative:
            self.at += 1
        first: cython.Py_ssize_t = self.at
        value: cython.longlong = 0
        while self.at < stop and 48 <= self.text[self.at] <= 57:
            if self.at - first == 18:
                return False
            value = value * 10 + (self.text[self.at] - 48)
            self.at += 1
        digits: cython.Py_ssize_t = self.at - first
        if digits == 0 or (self.text[first] == 48 and (digits > 1 or negative)):
            return False
        self.number = -value if negative else value
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_text(self) -> cython.bint:
        """Read a text in quotes; its escapes are looked at when it is used."""
        if not self.take(34):
            return False
        self.text_start = self.at
        self.has_escapes = False
        letter: cython.uchar
        while self.at < self.end:
            letter = self.text[self.at]
            if letter == 34:
                self.text_stop = self.at
                self.at += 1
                return True
            if letter < 32 or letter >= 128:
                return False
            if letter == 92:
                self.has_escapes = True
                self.at += 1
                if self.at >= self.end:
                    return False
            self.at += 1
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_text(self, wanted: cython.p_char, length: cython.Py_ssize_t) -> cython.bint:
        """Whether the text read last is this one."""
        return (
            self.text_stop - self.text_start == length
            and not self.has_escapes
            and memcmp(self.text + self.text_start, wanted, length) == 0
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def letter_of(self, is_long: cython.bint) -> cython.int:
        """Which field the text read last names; -1 when it does not matter, -2 when it is odd."""
        length: cython.Py_ssize_t = self.text_stop - self.text_start
        if self.has_escapes or length == 0:
            return -2
        if not is_long:
            letter: cython.uchar = self.text[self.text_start]
            return letter - 97 if length == 1 and 97 <= letter < 97 + _FIELDS else -1
        if self.is_text(b"producerGroup", 13):
            return 0
        if self.is_text(b"topic", 5):
            return _TOPIC
        if self.is_text(b"queueId", 7):
            return _QUEUE_ID
        if self.is_text(b"sysFlag", 7):
            return _SYSTEM_FLAG
        if self.is_text(b"bornTimestamp", 13):
            return _BORN
        if self.is_text(b"flag", 4):
            return _FLAG
        if self.is_text(b"properties", 10):
            return _PROPERTIES
        if self.is_text(b"reconsumeTimes", 14):
            return _RECONSUME
        if self.is_text(b"batch", 5):
            return _BATCH
        if self.is_text(b"defaultTopic", 12):
            return 2
        if self.is_text(b"defaultTopicQueueNums", 21):
            return 3
        return -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_fields(self) -> cython.bint:
        """Read the object of fields, whose values are all texts."""
        is_long: cython.bint = self.code == 10
        field: cython.int
        if not self.take(123):
            return False
        while True:
            if not self.take_text():
                return False
            field = self.letter_of(is_long)
            if field == -2 or not self.take(58) or not self.take_text():
                return False
            if self.has_escapes and field != _PROPERTIES:
                # Nobody would look whether its escapes are right.
                return False
            if field >= 0:
                if self.starts[field] >= 0:
                    # Twice the same: the plain form decides which one counts.
                    return False
                self.starts[field] = self.text_start
                self.stops[field] = self.text_stop
            if self.take(125):
                return True
            if not self.take(44):
                return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_header(self) -> cython.bint:
        """Read a JSON header, whose first member is the code."""
        if not self.take(123) or not self.take_text() or not self.is_text(b"code", 4):
            return False
        if not self.take(58) or not self.take_number(self.end):
            return False
        self.code = self.number
        if self.code not in (10, 310, 320):
            return False
        has_fields: cython.bint = False
        has_opaque: cython.bint = False
        has_flag: cython.bint = False
        while self.take(44):
            if not self.take_text():
                return False
            if self.is_text(b"extFields", 9):
                if has_fields or not self.take(58) or not self.take_fields():
                    return False
                has_fields = True
            elif self.is_text(b"opaque", 6):
                if has_opaque or not self.take(58) or not self.take_number(self.end):
                    return False
                self.opaque = self.number
                has_opaque = True
            elif self.is_text(b"flag", 4):
                if has_flag or not self.take(58) or not self.take_number(self.end):
                    return False
                self.flag = self.number
                has_flag = True
            elif self.is_text(b"version", 7):
                if not self.take(58) or not self.take_number(self.end):
                    return False
                if self.number < 0 or self.number > 0x7FFFFFFF:
                    return False
            elif (
                self.is_text(b"language", 8)
                or self.is_text(b"remark", 6)
                or self.is_text(b"serializeTypeCurrentRPC", 23)
            ):
                if not self.take(58) or not self.take_text() or self.has_escapes:
                    return False
            else:
                return False
        return (
            has_fields
            and self.take(125)
            and self.at == self.end
            and 0 <= self.opaque <= 0x7FFFFFFF
            and 0 <= self.flag <= 0x7FFFFFFF
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_span(self, length: cython.longlong, stop: cython.Py_ssize_t) -> cython.bint:
        """Read a text of so many bytes that ends at `stop` or before."""
        if length < 0 or length > stop - self.at:
            return False
        self.text_start = self.at
        self.text_stop = self.at + length
        self.has_escapes = False
        while self.at < self.text_stop:
            if self.text[self.at] >= 128:
                return False
            self.at += 1
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_binary_header(self) -> cython.bint:
        """Read a binary header; see header_binary.py."""
        if self.end - self.at < 21:
            return False
        head: cython.p_uchar = self.text + self.at
        self.code = (cython.cast(cython.int, head[0]) << 8) | head[1]
        if self.code not in (10, 310, 320):
            return False
        self.opaque = get_32(head + 5)
        self.flag = get_32(head + 9)
        if self.opaque > 0x7FFFFFFF or self.flag > 0x7FFFFFFF:
            return False
        self.at += 17
        # Unsigned: a negative length is a large one, and leaves the header.
        if not self.take_span(get_32(head + 13), self.end) or self.end - self.at < 4:
            return False
        if get_32(self.text + self.at) != self.end - self.at - 4:
            # The plain form allows bytes behind the fields.
            return False
        self.at += 4
        is_long: cython.bint = self.code == 10
        field: cython.int
        length: cython.longlong
        while self.at < self.end:
            if self.end - self.at < 2:
                return False
            length = (cython.cast(cython.int, self.text[self.at]) << 8) | self.text[self.at + 1]
            self.at += 2
            if not self.take_span(length, self.end) or self.end - self.at < 4:
                return False
            field = self.letter_of(is_long)
            if field == -2:
                return False
            length = get_32(self.text + self.at)
            self.at += 4
            if not self.take_span(length, self.end):
                return False
            if field >= 0 and length > 0:
                if self.starts[field] >= 0:
                    return False
                self.starts[field] = self.text_start
                self.stops[field] = self.text_stop
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_frame(
        self, text: cython.p_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read the header of a frame; returns where the body begins, -1 when others must look."""
        if end - start < 8 or text[start + 4] > 1:
            return -1
        self.is_binary = text[start + 4] == 1
        self.text = text
        self.at = start + 8
        self.end = self.at + (get_32(text + start + 4) & 0xFFFFFF)
        if self.end >= end:
            return -1
        self.code = self.opaque = self.flag = 0
        field: cython.int
        for field in range(_FIELDS):
            self.starts[field] = -1
        is_read: cython.bint = self.take_binary_header() if self.is_binary else self.take_header()
        if not is_read or self.starts[0] < 0 or self.starts[_TOPIC] < 0:
            return -1
        # A field that is read for nothing but its form: the plain form refuses odd ones.
        if self.starts[3] >= 0 and not self.field_number(3, 0):
            return -1
        return self.end

    @cython.cfunc
    @cython.exceptval(check=False)
    def copy_properties(self, to: cython.p_uchar) -> cython.Py_ssize_t:
        """Copy the properties without escapes; returns how many bytes, -1 for odd ones."""
        start: cython.Py_ssize_t = self.starts[_PROPERTIES]
        stop: cython.Py_ssize_t = self.stops[_PROPERTIES]
        if not self.is_binary:
            return _unescape(self.text, start, stop, to)
        memcpy(to, self.text + start, stop - start)
        return stop - start

    @cython.cfunc
    @cython.exceptval(check=False)
    def field_is(
        self, field: cython.int, wanted: cython.p_char, length: cython.Py_ssize_t
    ) -> cython.bint:
        """Whether a field is there and says this."""
        return (
            self.starts[field] >= 0
            and self.stops[field] - self.starts[field] == length
            and memcmp(self.text + self.starts[field], wanted, length) == 0
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def field_number(self, field: cython.int, low: cython.longlong) -> cython.bint:
        """Read a field as a number from `low` on; a queue's or a flag's fits 32 bits."""
        if self.starts[field] < 0:
            return False
        self.at = self.starts[field]
        return (
            self.take_number(self.stops[field])
            and self.at == self.stops[field]
            and self.number >= low
            and (field == _BORN or self.number <= 0x7FFFFFFF)
        )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _hex_digit(letter: cython.uchar) -> cython.int:
    if 48 <= letter <= 57:
        return letter - 48
    if 97 <= letter <= 102:
        return letter - 87
    if 65 <= letter <= 70:
        return letter - 55
    return -1


@cython.cfunc
@cython.exceptval(check=False)
def _unescape(
    text: cython.p_uchar,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    to: cython.p_uchar,
) -> cython.Py_ssize_t:
    """Copy a text without its escapes; returns how many bytes, -1 for an escape left to others."""
    written: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = start
    letter: cython.uchar
    digit: cython.int
    value: cython.int
    index: cython.int
    while at < stop:
        letter = text[at]
        if letter != 92:
            to[written] = letter
            written += 1
            at += 1
            continue
        # Invariant: a text never ends within an escape of two letters.
        letter = text[at + 1]
        if letter == 117:
            if at + 6 > stop:
                return -1
            value = 0
            for index in range(4):
                digit = _hex_digit(text[at + 2 + index])
                if digit < 0:
                    return -1
                value = value * 16 + digit
            if value >= 128:
                return -1
            to[written] = cython.cast(cython.uchar, value)
            at += 6
        else:
            if letter in (34, 92, 47):
                to[written] = letter
            elif letter == 110:
                to[written] = 10
            elif letter == 116:
                to[written] = 9
            elif letter == 114:
                to[written] = 13
            else:
                return -1
            at += 2
        written += 1
    return written


_reader = cython.declare(_Reader, _Reader())


def read_plain_send(
    chunk: bytes, start: cython.Py_ssize_t, end: cython.Py_ssize_t, marks: bytes
) -> PlainSend | None:
    """Read the frame at `chunk[start:end]`; None when the plain form must look."""
    reader: _Reader = _reader
    text: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(chunk))
    if start < 0 or end > len(chunk):
        return None
    body_start: cython.Py_ssize_t = reader.take_frame(text, start, end)
    if body_start < 0 or reader.code == 320 or reader.starts[_PROPERTIES] < 0:
        return None
    if reader.starts[_BATCH] >= 0 and not reader.field_is(_BATCH, b"false", 5):
        return None
    if not reader.field_number(_QUEUE_ID, 0):
        return None
    queue_id: cython.longlong = reader.number
    if not reader.field_number(_SYSTEM_FLAG, 0) or reader.number & ~0x701:
        return None
    system_flag: cython.longlong = reader.number
    if not reader.field_number(_BORN, 0):
        return None
    born_ms: cython.longlong = reader.number
    if not reader.field_number(_FLAG, -0x80000000):
        return None
    user_flag: cython.longlong = reader.number
    reconsume_times: cython.longlong = 0
    if reader.starts[_RECONSUME] >= 0:
        if not reader.field_number(_RECONSUME, 0):
            return None
        reconsume_times = reader.number

    escaped_bytes: cython.Py_ssize_t = reader.stops[_PROPERTIES] - reader.starts[_PROPERTIES]
    if escaped_bytes > 200_000:
        return None
    scratch: bytes = PyBytes_FromStringAndSize(cython.NULL, escaped_bytes + 1)
    to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(scratch))
    size: cython.Py_ssize_t = reader.copy_properties(to)
    if size <= 0:
        return None
    if to[size - 1] != _VALUE_END:
        to[size] = _VALUE_END
        size += 1
    found = cython.declare(Properties)
    if not look_at(to, size, cython.address(found)) or found.unique_start < 0:
        return None
    marks_bytes: cython.Py_ssize_t = len(marks)
    properties: bytes = PyBytes_FromStringAndSize(cython.NULL, size + marks_bytes)
    memcpy(PyBytes_AS_STRING(properties), to, size)
    memcpy(
        cython.cast(cython.p_uchar, PyBytes_AS_STRING(properties)) + size,
        PyBytes_AS_STRING(marks),
        marks_bytes,
    )
    return PlainSend(
        text[reader.starts[_TOPIC] : reader.stops[_TOPIC]],
        queue_id,
        system_flag,
        born_ms,
        user_flag,
        reconsume_times,
        properties,
        to[found.unique_start : found.unique_stop],
        found.wait != NO,
        text[body_start:end],
        reader.opaque,
        reader.flag,
        _BINARY if reader.is_binary else _JSON,
    )


def read_plain_batch(
    chunk: bytes, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> PlainBatch | None:
    """Read the header of the frame at `chunk[start:end]`; None when the plain form must look."""
    reader: _Reader = _reader
    text: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(chunk))
    if start < 0 or end > len(chunk):
        return None
    body_start: cython.Py_ssize_t = reader.take_frame(text, start, end)
    if body_start < 0 or not reader.field_is(_BATCH, b"true", 4):
        return None
    if not reader.field_number(_QUEUE_ID, 0):
        return None
    queue_id: cython.longlong = reader.number
    if not reader.field_number(_SYSTEM_FLAG, 0) or reader.number != 0:
        return None
    if not reader.field_number(_BORN, 0):
        return None
    born_ms: cython.longlong = reader.number
    if not reader.field_number(_FLAG, -0x80000000):
        return None
    reconsume_times: cython.longlong = 0
    if reader.starts[_RECONSUME] >= 0:
        if not reader.field_number(_RECONSUME, 0):
            return None
        reconsume_times = reader.number
    waits: cython.bint = True
    if reader.starts[_PROPERTIES] >= 0:
        # A batch has few properties of its own; the plain form reads more of them.
        scratch = cython.declare(cython.uchar[512])  # type: ignore[misc]  # an array of C
        if reader.stops[_PROPERTIES] - reader.starts[_PROPERTIES] > 512:
            return None
        size: cython.Py_ssize_t = reader.copy_properties(scratch)
        found = cython.declare(Properties)
        if size < 0 or not look_at(scratch, size, cython.address(found)):
            return None
        waits = found.wait != NO
    return PlainBatch(
        text[reader.starts[_TOPIC] : reader.stops[_TOPIC]],
        queue_id,
        born_ms,
        reconsume_times,
        waits,
        body_start,
        reader.opaque,
        reader.flag,
        _BINARY if reader.is_binary else _JSON,
    )
