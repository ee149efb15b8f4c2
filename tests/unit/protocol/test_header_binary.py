"""The binary header: its layout, and what is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.header_binary import can_encode, decode_header, encode_header
from orbitmq.protocol.languages import Language

FIXED = struct.Struct(">hBhii")


def encoded(**changes: Any) -> bytes:
    parts: dict[str, Any] = {
        "code": 105,
        "language": Language.PYTHON,
        "version": 479,
        "opaque": 1,
        "flag": 0,
        "remark": "",
        "fields": {},
    }
    return encode_header(**{**parts, **changes})


def header_of(*, remark: bytes = bytes(4), fields: bytes = bytes(4), language: int = 3) -> bytes:
    return FIXED.pack(105, language, 479, 1, 0) + remark + fields


def sized(content: bytes, size: str = ">i") -> bytes:
    return struct.pack(size, len(content)) + content


def entry(key: bytes, value: bytes) -> bytes:
    return sized(key, ">h") + sized(value)


def test_the_fixed_part_has_21_bytes() -> None:
    header = encoded(code=-2, version=-3, opaque=-4, flag=-5, language=Language.NODE_JS)

    assert header == bytes.fromhex("fffe 0d fffd fffffffc fffffffb 00000000 00000000")
    assert decode_header(header) == (-2, Language.NODE_JS, -3, -4, -5, "", {})


def test_remark_and_fields_have_their_sizes_in_bytes() -> None:
    header = encoded(remark="für", fields={"ключ": "中", "b": "x"})

    assert header[13:] == (
        sized("für".encode()) + sized(entry("ключ".encode(), "中".encode()) + entry(b"b", b"x"))
    )


@pytest.mark.parametrize(
    ("code", "version", "fits"),
    [
        (0, 0, True),
        (32_767, 32_767, True),
        (-32_768, -32_768, True),
        (32_768, 0, False),
        (-32_769, 0, False),
        (0, 32_768, False),
        (0, -32_769, False),
    ],
)
def test_code_and_version_must_fit_16_bits(code: int, version: int, *, fits: bool) -> None:
    assert can_encode(code, version) is fits


def test_a_field_name_may_have_32767_bytes_and_no_more() -> None:
    name = "a" * 32_767

    assert decode_header(encoded(fields={name: "x"}))[6] == {name: "x"}
    with pytest.raises(ProtocolError, match="32768 bytes is too long"):
        encoded(fields={name + "a": "x"})


def test_an_empty_value_is_a_missing_field() -> None:
    header = header_of(fields=sized(entry(b"a", b"") + entry(b"b", b"x")))

    assert decode_header(header)[6] == {"b": "x"}


def test_of_a_field_given_twice_the_last_counts() -> None:
    header = header_of(fields=sized(entry(b"a", b"1") + entry(b"a", b"2")))

    assert decode_header(header)[6] == {"a": "2"}


@pytest.mark.parametrize("language", [14, 100, 255])
def test_an_unknown_language_counts_as_other(language: int) -> None:
    assert decode_header(header_of(language=language))[1] is Language.OTHER


def test_invalid_utf_8_is_replaced_as_in_java() -> None:
    header = header_of(remark=sized(b"\xd6\xd0"), fields=sized(entry(b"k\xff", b"\xc3")))

    decoded = decode_header(header)

    assert decoded[5] == "\ufffd\ufffd"
    assert decoded[6] == {"k\ufffd": "\ufffd"}


def test_bytes_after_the_fields_are_ignored() -> None:
    header = header_of(fields=sized(entry(b"a", b"1")) + b"more")

    assert decode_header(header)[6] == {"a": "1"}


def test_a_header_that_is_cut_off_anywhere_is_refused() -> None:
    header = encoded(remark="r", fields={"topic": "T"})

    for kept in range(len(header)):
        with pytest.raises(ProtocolError):
            decode_header(header[:kept])


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (header_of(remark=b"\xff\xff\xff\xff"), "text of -1 bytes at byte 17"),
        (header_of(remark=b"\x7f\xff\xff\xff"), "text of 2147483647 bytes at byte 17"),
        (header_of(fields=b"\xff\xff\xff\xff"), "fields claim -1 of 0 bytes left"),
        (header_of(fields=b"\x7f\xff\xff\xff"), "fields claim 2147483647 of 0 bytes left"),
        (header_of(fields=sized(b"\xff\xff" + b"a" + sized(b"x"))), "text of -1 bytes at byte 23"),
        (header_of(fields=sized(b"\x00\x09" + b"a" + sized(b"x"))), "text of 9 bytes at byte 23"),
        (
            header_of(fields=sized(sized(b"a", ">h") + b"\xff\xff\xff\xff" + b"x")),
            "text of -1 bytes at byte 28",
        ),
        (
            header_of(fields=sized(sized(b"a", ">h") + b"\x00\x00\x00\x02" + b"x")),
            "text of 2 bytes at byte 28",
        ),
        (header_of(fields=sized(entry(b"a", b"x") + b"\x00")), "cut off at byte 29"),
        (header_of(fields=sized(sized(b"a", ">h"))), "cut off at byte 24"),
        (header_of(fields=b"\x00\x00\x00\x04" + entry(b"a", b"x")), "overrun their end by 4"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(header: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        decode_header(header)


@pytest.mark.parametrize("value", [b"x", b""])
def test_the_number_of_fields_is_bounded(value: bytes) -> None:
    def header(count: int) -> bytes:
        return header_of(fields=sized(b"".join(entry(b"%d" % n, value) for n in range(count))))

    assert len(decode_header(header(1000))[6]) == (1000 if value else 0)
    with pytest.raises(ProtocolError, match="1001 fields, above the limit of 1000"):
        decode_header(header(1001))
