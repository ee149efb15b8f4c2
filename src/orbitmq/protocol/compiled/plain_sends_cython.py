# mypy: disable-error-code="index,attr-defined,arg-type,type-arg,valid-type"
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads plain sends and batches from frames: their fast form.

Compiled by Cython and never run as Python. It reads headers as known clients write them: JSON with
members in any order after the code, with or without spaces, escapes and unquoted numbers, and the
binary form. It returns None for everything else, and for sends that need special treatment: those
take the ordinary form. Both forms store and answer a send in the same way.

Invariant: every position is compared with the end before it is read; positions are signed and as
wide as a pointer, lengths at most 32 bits wide, so no sum of them can wrap.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    # Before the imports below, which are C imports and would fail differently.
    raise ImportError("orbitmq.protocol.compiled.plain_sends_cython runs compiled only")

from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.libc.string import memchr, memcmp, memcpy
from cython.cimports.orbitmq.protocol.compiled.plain_properties import (
    NO,
    Properties,
    look_at,
    look_at_tidy,
)
from cython.cimports.orbitmq.record.compiled.big_endian import get_32
from cython.cimports.orbitmq.record.compiled.utf8 import is_plain_text, is_utf8

from orbitmq.protocol.frame import BINARY, HEADER_BYTES_MAX, JSON
from orbitmq.protocol.plain_sends import BATCH_MESSAGES_MAX, PlainBatch, PlainSend

_JSON = cython.declare(object, JSON)
_BINARY = cython.declare(object, BINARY)
# Perf: the constructor of a named tuple is a Python function: 0.3 us more (benchmarks/read_send.py).
_new_tuple = cython.declare(object, tuple.__new__)
_HEADER_BYTES_MAX = cython.declare(cython.Py_ssize_t, HEADER_BYTES_MAX)
_VALUE_END = cython.declare(cython.uchar, 2)
_MESSAGES_MAX = cython.declare(cython.Py_ssize_t, BATCH_MESSAGES_MAX)
# The size of a message in a batch without its body and its properties.
_FIXED_BYTES = cython.declare(cython.Py_ssize_t, 22)
# The index of each field among the spans, by its letter in the short form: a is 0.
_GROUP = cython.declare(cython.int, 0)
_TOPIC = cython.declare(cython.int, 1)
_TEMPLATE_TOPIC = cython.declare(cython.int, 2)
_TEMPLATE_QUEUES = cython.declare(cython.int, 3)
_QUEUE_ID = cython.declare(cython.int, 4)
_SYSTEM_FLAG = cython.declare(cython.int, 5)
_BORN = cython.declare(cython.int, 6)
_FLAG = cython.declare(cython.int, 7)
_PROPERTIES = cython.declare(cython.int, 8)
_RECONSUME = cython.declare(cython.int, 9)
_RETRIES_MAX = cython.declare(cython.int, 11)
_BATCH = cython.declare(cython.int, 12)
_FIELDS = cython.declare(cython.int, 14)
# What else a field's name can be.
_UNKNOWN = cython.declare(cython.int, -1)
_ODD = cython.declare(cython.int, -2)
# What a value is.
_WRONG = cython.declare(cython.int, 0)
_TEXT = cython.declare(cython.int, 1)
_NULL = cython.declare(cython.int, 2)


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
@cython.inline
@cython.exceptval(check=False)
def _hex_number(digits: cython.p_uchar) -> cython.int:
    """Read four hexadecimal digits; -1 if one is invalid."""
    value: cython.int = 0
    digit: cython.int
    index: cython.int
    for index in range(4):
        digit = _hex_digit(digits[index])
        if digit < 0:
            return -1
        value = value * 16 + digit
    return value


@cython.cfunc
@cython.exceptval(check=False)
def _escape_bytes(text: cython.p_uchar, left: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the length of the escape at `text`, with its backslash; 0 if invalid or unusual."""
    if left < 2:
        return 0
    letter: cython.uchar = text[1]
    if letter != 117:
        return 2 if letter in (34, 92, 47, 98, 102, 110, 114, 116) else 0
    if left < 6:
        return 0
    value: cython.int = _hex_number(text + 2)
    if value < 0xD800 or value > 0xDFFF:
        return 6 if value >= 0 else 0
    # The two halves of a character; the ordinary form replaces a single half.
    if value > 0xDBFF or left < 12 or text[6] != 92 or text[7] != 117:
        return 0
    value = _hex_number(text + 8)
    return 12 if 0xDC00 <= value <= 0xDFFF else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_character(to: cython.p_uchar, value: cython.int) -> cython.Py_ssize_t:
    """Write a character as UTF-8; returns its number of bytes."""
    if value < 0x80:
        to[0] = value & 255
        return 1
    if value < 0x800:
        to[0] = 0xC0 | (value >> 6)
        to[1] = 0x80 | (value & 63)
        return 2
    if value < 0x10000:
        to[0] = 0xE0 | (value >> 12)
        to[1] = 0x80 | ((value >> 6) & 63)
        to[2] = 0x80 | (value & 63)
        return 3
    to[0] = 0xF0 | (value >> 18)
    to[1] = 0x80 | ((value >> 12) & 63)
    to[2] = 0x80 | ((value >> 6) & 63)
    to[3] = 0x80 | (value & 63)
    return 4


@cython.cfunc
@cython.exceptval(check=False)
def _unescape(
    text: cython.p_uchar, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, to: cython.p_uchar
) -> cython.Py_ssize_t:
    """Copy a string and resolve its escapes, which were checked; returns its number of bytes.

    The result is never longer than the escaped string.
    """
    written: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = start
    letter: cython.uchar
    value: cython.int
    while at < stop:
        letter = text[at]
        if letter != 92:
            to[written] = letter
            written += 1
            at += 1
            continue
        # Invariant: `_escape_bytes` found a whole escape here, before `stop`.
        letter = text[at + 1]
        if letter == 117:
            value = _hex_number(text + at + 2)
            at += 6
            if 0xD800 <= value <= 0xDBFF:
                value = 0x10000 + ((value - 0xD800) << 10) + _hex_number(text + at + 2) - 0xDC00
                at += 6
            written += _put_character(to + written, value)
            continue
        if letter == 110:
            letter = 10
        elif letter == 116:
            letter = 9
        elif letter == 114:
            letter = 13
        elif letter == 98:
            letter = 8
        elif letter == 102:
            letter = 12
        to[written] = letter
        written += 1
        at += 2
    return written


@cython.final
@cython.cclass
class _Reader:
    """Reads one header; positions count from the start of the chunk."""

    text: cython.p_uchar
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    # The number read last.
    number: cython.longlong
    # The string read last, without its quotes, and whether it contains escapes.
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
    @cython.inline
    @cython.exceptval(check=False)
    def skip_space(self) -> cython.void:
        """Skip white space."""
        while self.at < self.end and self.text[self.at] <= 32:
            if self.text[self.at] not in (32, 10, 13, 9):
                return
            self.at += 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def take(self, letter: cython.uchar) -> cython.bint:
        """Skip a character that must come next."""
        self.skip_space()
        if self.at >= self.end or self.text[self.at] != letter:
            return False
        self.at += 1
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_digits(self, stop: cython.Py_ssize_t) -> cython.bint:
        """Read a whole number of at most 18 digits in its usual spelling."""
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
        """Read a quoted string; check its escapes and that it is UTF-8."""
        if not self.take(34):
            return False
        text: cython.p_uchar = self.text
        end: cython.Py_ssize_t = self.end
        start: cython.Py_ssize_t = self.at
        at: cython.Py_ssize_t = start
        escape_bytes: cython.Py_ssize_t
        has_escapes: cython.bint = False
        is_ascii: cython.bint = True
        letter: cython.uchar
        while at < end:
            while end - at >= 8 and is_plain_text(text + at):
                at += 8
            if at == end:
                return False
            letter = text[at]
            if letter == 34:
                self.text_start = start
                self.text_stop = at
                self.has_escapes = has_escapes
                self.at = at + 1
                return is_ascii or is_utf8(text + start, at - start)
            if letter == 92:
                has_escapes = True
                escape_bytes = _escape_bytes(text + at, end - at)
                if escape_bytes == 0:
                    return False
                at += escape_bytes
                continue
            if letter < 32:
                return False
            if letter >= 128:
                is_ascii = False
            at += 1
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_word(self, word: cython.p_char, length: cython.Py_ssize_t) -> cython.bint:
        """Skip a word, if it comes next."""
        if self.end - self.at < length or memcmp(self.text + self.at, word, length) != 0:
            return False
        self.text_start = self.at
        self.at += length
        self.text_stop = self.at
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_value(self) -> cython.int:
        """Read a string, or a number or word as a string."""
        self.skip_space()
        if self.at < self.end and self.text[self.at] == 34:
            return _TEXT if self.take_text() else _WRONG
        self.has_escapes = False
        if self.take_word(b"null", 4):
            return _NULL
        if self.take_word(b"false", 5) or self.take_word(b"true", 4):
            return _TEXT
        start: cython.Py_ssize_t = self.at
        if not self.take_digits(self.end):
            return _WRONG
        self.text_start = start
        self.text_stop = self.at
        return _TEXT

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def take_number(self) -> cython.bint:
        """Read an unquoted number."""
        self.skip_space()
        return self.take_digits(self.end)

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_text(self, wanted: cython.p_char, length: cython.Py_ssize_t) -> cython.bint:
        """Whether the string read last is this one."""
        return (
            self.text_stop - self.text_start == length
            and memcmp(self.text + self.text_start, wanted, length) == 0
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def field_named(self, is_long: cython.bint) -> cython.int:
        """Return the field that the string read last names."""
        length: cython.Py_ssize_t = self.text_stop - self.text_start
        if self.has_escapes:
            return _ODD
        if not is_long:
            letter: cython.uchar
            if length != 1:
                return _UNKNOWN
            letter = self.text[self.text_start]
            return letter - 97 if 97 <= letter < 97 + _FIELDS else _UNKNOWN
        if self.is_text(b"producerGroup", 13):
            return _GROUP
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
        if self.is_text(b"maxReconsumeTimes", 17):
            return _RETRIES_MAX
        if self.is_text(b"batch", 5):
            return _BATCH
        if self.is_text(b"defaultTopic", 12):
            return _TEMPLATE_TOPIC
        if self.is_text(b"defaultTopicQueueNums", 21):
            return _TEMPLATE_QUEUES
        return _UNKNOWN

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_fields(self) -> cython.bint:
        """Read the object of fields."""
        is_long: cython.bint = self.code == 10
        field: cython.int
        value: cython.int
        if not self.take(123):
            return False
        while True:
            if not self.take_text():
                return False
            field = self.field_named(is_long)
            if field == _ODD or not self.take(58):
                return False
            value = self.take_value()
            if value == _WRONG:
                return False
            if field >= 0:
                if self.starts[field] >= 0:
                    # Given twice: the ordinary form decides which one counts.
                    return False
                if value == _TEXT:
                    self.starts[field] = self.text_start
                    self.stops[field] = self.text_stop
            if self.take(125):
                return True
            if not self.take(44):
                return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_member(self) -> cython.bint:
        """Skip a member of the header that is not needed; the string read last is its name."""
        if self.has_escapes:
            return False
        if self.is_text(b"language", 8) or self.is_text(b"serializeTypeCurrentRPC", 23):
            return self.take(58) and self.take_text()
        if self.is_text(b"version", 7):
            return self.take(58) and self.take_number() and -0x80000000 <= self.number <= 0x7FFFFFFF
        return self.take(58) and self.take_value() != _WRONG

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_header(self) -> cython.bint:
        """Read a JSON header, whose first member is the code."""
        if not self.take(123) or not self.take_text() or not self.is_text(b"code", 4):
            return False
        if not self.take(58) or not self.take_number():
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
                if has_opaque or not self.take(58) or not self.take_number():
                    return False
                self.opaque = self.number
                has_opaque = True
            elif self.is_text(b"flag", 4):
                if has_flag or not self.take(58) or not self.take_number():
                    return False
                self.flag = self.number
                has_flag = True
            elif self.is_text(b"code", 4) or not self.take_member():
                return False
        if not has_fields or not self.take(125):
            return False
        self.skip_space()
        return (
            self.at == self.end and 0 <= self.opaque <= 0x7FFFFFFF and 0 <= self.flag <= 0x7FFFFFFF
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_span(self, length: cython.longlong) -> cython.bint:
        """Read a string of the given number of bytes."""
        if length < 0 or length > self.end - self.at:
            return False
        self.text_start = self.at
        self.at += length
        self.text_stop = self.at
        self.has_escapes = False
        return is_utf8(self.text + self.text_start, length)

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
        # Unsigned: a negative length becomes a large one, which overruns the header.
        if not self.take_span(get_32(head + 13)) or self.end - self.at < 4:
            return False
        if get_32(self.text + self.at) != self.end - self.at - 4:
            # The ordinary form allows bytes after the fields.
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
            if length > 0x7FFF or not self.take_span(length) or self.end - self.at < 4:
                return False
            field = self.field_named(is_long)
            length = get_32(self.text + self.at)
            self.at += 4
            if not self.take_span(length):
                return False
            # An empty value counts as absent.
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
    ) -> cython.bint:
        """Read the header of a frame; `end` is then where the body begins."""
        if end - start < 8 or text[start + 4] > 1:
            return False
        self.is_binary = text[start + 4] == 1
        self.text = text
        self.at = start + 8
        self.end = self.at + (get_32(text + start + 4) & 0xFFFFFF)
        if self.end >= end or self.end - self.at > _HEADER_BYTES_MAX:
            return False
        self.code = self.opaque = self.flag = 0
        field: cython.int
        for field in range(_FIELDS):
            self.starts[field] = -1
        is_read: cython.bint = self.take_binary_header() if self.is_binary else self.take_header()
        # Fields that are only checked: the ordinary form refuses malformed ones. An answer to the
        # broker's own request has the first bit of the flag set.
        return (
            is_read
            and not self.flag & 1
            and self.starts[_GROUP] >= 0
            and self.starts[_TOPIC] >= 0
            and self.starts[_TEMPLATE_TOPIC] >= 0
            and self.field_number(_TEMPLATE_QUEUES, -0x80000000)
            and (self.starts[_RETRIES_MAX] < 0 or self.field_number(_RETRIES_MAX, -0x80000000))
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def copy_field(self, field: cython.int, to: cython.p_uchar) -> cython.Py_ssize_t:
        """Copy a field and resolve its escapes; returns its number of bytes."""
        start: cython.Py_ssize_t = self.starts[field]
        size: cython.Py_ssize_t = self.stops[field] - start
        if self.is_binary or memchr(self.text + start, 92, size) == cython.NULL:
            memcpy(to, self.text + start, size)
            return size
        return _unescape(self.text, start, self.stops[field], to)

    @cython.cfunc
    def topic(self) -> bytes:
        """Return the topic as bytes."""
        start: cython.Py_ssize_t = self.starts[_TOPIC]
        size: cython.Py_ssize_t = self.stops[_TOPIC] - start
        if self.is_binary or memchr(self.text + start, 92, size) == cython.NULL:
            return self.text[start : self.stops[_TOPIC]]
        scratch: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
        to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(scratch))
        return to[: self.copy_field(_TOPIC, to)]

    @cython.cfunc
    @cython.exceptval(check=False)
    def field_is(
        self, field: cython.int, wanted: cython.p_char, length: cython.Py_ssize_t
    ) -> cython.bint:
        """Whether a field is present with this value."""
        return (
            self.starts[field] >= 0
            and self.stops[field] - self.starts[field] == length
            and memcmp(self.text + self.starts[field], wanted, length) == 0
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def field_number(self, field: cython.int, low: cython.longlong) -> cython.bint:
        """Read a field as a number of at least `low`; all but times fit 32 bits."""
        if self.starts[field] < 0:
            return False
        self.at = self.starts[field]
        return (
            self.take_digits(self.stops[field])
            and self.at == self.stops[field]
            and self.number >= low
            and (field == _BORN or self.number <= 0x7FFFFFFF)
        )


_Message = cython.struct(
    size=cython.Py_ssize_t,
    # Its body and properties, with the separator that may be missing at their end.
    content_bytes=cython.Py_ssize_t,
    properties_bytes=cython.Py_ssize_t,
)


@cython.cfunc
@cython.exceptval(check=False)
def _take_message(
    text: cython.p_uchar, left: cython.Py_ssize_t, found: cython.pointer(_Message)
) -> cython.bint:
    """Measure the message of a batch at `text`; False if special, unusual or truncated."""
    if left < _FIXED_BYTES:
        return False
    # Unsigned: a negative length becomes a large one, which overruns the message.
    size: cython.Py_ssize_t = get_32(text)
    body_bytes: cython.Py_ssize_t = get_32(text + 16)
    if size > left or size < _FIXED_BYTES or body_bytes > size - _FIXED_BYTES:
        return False
    after_body: cython.p_uchar = text + 20 + body_bytes
    sent: cython.p_uchar = after_body + 2
    sent_bytes: cython.Py_ssize_t = (cython.cast(cython.int, after_body[0]) << 8) | after_body[1]
    if sent_bytes > 0x7FFF or _FIXED_BYTES + body_bytes + sent_bytes != size:
        return False
    properties = cython.declare(Properties)
    if not look_at(sent, sent_bytes, cython.address(properties)):
        return False
    # A message without properties has no unique id.
    if properties.unique_start < 0 or memchr(sent, 0, sent_bytes) != cython.NULL:
        return False
    found.size = size
    found.properties_bytes = sent_bytes + (0 if sent[sent_bytes - 1] == _VALUE_END else 1)
    found.content_bytes = body_bytes + found.properties_bytes
    return True


@cython.cfunc
def _read_one(
    reader: _Reader,
    queue_id: cython.longlong,
    born_ms: cython.longlong,
    reconsume_times: cython.longlong,
    end: cython.Py_ssize_t,
    broker_properties: bytes,
) -> PlainSend | None:
    """Read one message; its header has been read."""
    if not reader.field_number(_SYSTEM_FLAG, 0) or reader.number & ~0x701:
        return None
    system_flag: cython.longlong = reader.number
    if reader.starts[_PROPERTIES] < 0 or not reader.field_number(_FLAG, -0x80000000):
        return None
    user_flag: cython.longlong = reader.number
    escaped_bytes: cython.Py_ssize_t = reader.stops[_PROPERTIES] - reader.starts[_PROPERTIES]
    if escaped_bytes > 200_000:
        return None
    scratch: bytes = PyBytes_FromStringAndSize(cython.NULL, escaped_bytes + 1)
    to: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(scratch))
    size: cython.Py_ssize_t = reader.copy_field(_PROPERTIES, to)
    if size == 0:
        return None
    if to[size - 1] != _VALUE_END:
        to[size] = _VALUE_END
        size += 1
    found = cython.declare(Properties)
    if not look_at_tidy(to, size, cython.address(found)) or found.unique_start < 0:
        return None
    broker_properties_bytes: cython.Py_ssize_t = len(broker_properties)
    properties: bytes = PyBytes_FromStringAndSize(cython.NULL, size + broker_properties_bytes)
    memcpy(PyBytes_AS_STRING(properties), to, size)
    memcpy(
        cython.cast(cython.p_uchar, PyBytes_AS_STRING(properties)) + size,
        PyBytes_AS_STRING(broker_properties),
        broker_properties_bytes,
    )
    send: PlainSend = _new_tuple(  # type: ignore[operator]  # an object to Cython
        PlainSend,
        (
            reader.topic(),
            queue_id,
            system_flag,
            born_ms,
            user_flag,
            reconsume_times,
            properties,
            to[found.unique_start : found.unique_stop],
            found.wait != NO,
            reader.text[reader.end : end],
            reader.opaque,
            reader.flag,
            _BINARY if reader.is_binary else _JSON,
        ),
    )
    return send


@cython.cfunc
def _read_many(
    reader: _Reader,
    queue_id: cython.longlong,
    born_ms: cython.longlong,
    reconsume_times: cython.longlong,
    end: cython.Py_ssize_t,
    broker_properties: bytes,
) -> PlainBatch | None:
    """Measure the messages of a batch; its header has been read."""
    if not reader.field_number(_SYSTEM_FLAG, 0) or reader.number != 0:
        return None
    if not reader.field_number(_FLAG, -0x80000000):
        return None
    waits: cython.bint = True
    if reader.starts[_PROPERTIES] >= 0:
        # A batch has few properties of its own; if there are more, the ordinary form reads them.
        scratch = cython.declare(cython.uchar[512])  # type: ignore[misc]  # an array of C
        if reader.stops[_PROPERTIES] - reader.starts[_PROPERTIES] > 512:
            return None
        size: cython.Py_ssize_t = reader.copy_field(_PROPERTIES, scratch)
        found = cython.declare(Properties)
        if not look_at(scratch, size, cython.address(found)):
            return None
        waits = found.wait != NO
    broker_properties_bytes: cython.Py_ssize_t = len(broker_properties)
    message = cython.declare(_Message)
    count: cython.Py_ssize_t = 0
    content_bytes: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = reader.end
    while at < end:
        if (
            count == _MESSAGES_MAX
            or not _take_message(reader.text + at, end - at, cython.address(message))
            or message.properties_bytes + broker_properties_bytes > 0x7FFF
        ):
            return None
        count += 1
        content_bytes += message.content_bytes + broker_properties_bytes
        at += message.size
    return PlainBatch(
        reader.topic(),
        queue_id,
        born_ms,
        reconsume_times,
        waits,
        reader.end,
        count,
        content_bytes,
        reader.opaque,
        reader.flag,
        _BINARY if reader.is_binary else _JSON,
    )


_reader = cython.declare(_Reader, _Reader())


def read_send(
    chunk: bytes, start: cython.Py_ssize_t, end: cython.Py_ssize_t, broker_properties: bytes
) -> PlainSend | PlainBatch | None:
    """Read the frame at `chunk[start:end]`; None if it needs the ordinary form.

    `broker_properties` are the properties that the broker adds to each message.
    """
    reader: _Reader = _reader
    text: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(chunk))
    if start < 0 or end > len(chunk) or not reader.take_frame(text, start, end):
        return None
    if not reader.field_number(_QUEUE_ID, 0):
        return None
    queue_id: cython.longlong = reader.number
    if not reader.field_number(_BORN, 0):
        return None
    born_ms: cython.longlong = reader.number
    reconsume_times: cython.longlong = 0
    if reader.starts[_RECONSUME] >= 0:
        if not reader.field_number(_RECONSUME, 0):
            return None
        reconsume_times = reader.number
    if reader.starts[_BATCH] < 0 or reader.field_is(_BATCH, b"false", 5):
        return _read_one(reader, queue_id, born_ms, reconsume_times, end, broker_properties)
    if reader.field_is(_BATCH, b"true", 4):
        return _read_many(reader, queue_id, born_ms, reconsume_times, end, broker_properties)
    return None
