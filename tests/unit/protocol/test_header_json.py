"""The JSON header, as clients write it and as fastjson reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.header_json import (
    LOOSE_BYTES_MAX,
    HeaderParts,
    decode_header,
    encode_header,
)
from orbitmq.protocol.languages import Language


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


def decoded(**changes: Any) -> HeaderParts:
    parts: dict[str, Any] = {
        "code": 0,
        "language": Language.JAVA,
        "version": 0,
        "opaque": 0,
        "flag": 0,
        "remark": "",
        "fields": {},
    }
    parts.update(changes)
    return (
        parts["code"],
        parts["language"],
        parts["version"],
        parts["opaque"],
        parts["flag"],
        parts["remark"],
        parts["fields"],
    )


# --- writing -----------------------------------------------------------------------------------


def test_members_have_the_order_of_fastjson() -> None:
    header = encoded(remark="r", fields={"topic": "T"}, language=Language.NODE_JS, flag=1)

    assert header == (
        b'{"code":105,"extFields":{"topic":"T"},"flag":1,"language":"NODE_JS","opaque":1,'
        b'"remark":"r","serializeTypeCurrentRPC":"JSON","version":479}'
    )


def test_an_empty_remark_is_not_written_and_empty_fields_are() -> None:
    header = json.loads(encoded())

    assert "remark" not in header
    assert header["extFields"] == {}


def test_text_is_written_so_that_any_parser_reads_it() -> None:
    fields = {"properties": "KEYS\x01a b\x02TAGS\x01中😀\x02", 'q"\\': "\n\0\x7f\u2028"}

    header = encoded(fields=fields, remark='"\n')

    assert json.loads(header)["extFields"] == fields
    assert json.loads(header)["remark"] == '"\n'


# --- reading what clients write ----------------------------------------------------------------


def test_a_header_of_the_go_client_is_read() -> None:
    header = (
        b'{"code":105,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"",'
        b'"extFields":{"topic":"T"}}'
    )

    assert decode_header(header) == decoded(
        code=105, language=Language.GO, version=317, opaque=1, fields={"topic": "T"}
    )


def test_a_header_of_code_alone_takes_the_defaults_of_java() -> None:
    assert decode_header(b'{"code":7}') == decoded(code=7)
    assert decode_header(b"{}") == decoded()


def test_unknown_members_are_ignored() -> None:
    header = b'{"code":1,"suspended":false,"more":{"a":[1,null]},"serializeTypeCurrentRPC":"X"}'

    assert decode_header(header) == decoded(code=1)


@pytest.mark.parametrize("opaque", [-(2**31), -1, 0, 2**31 - 1])
def test_opaque_is_signed(opaque: int) -> None:
    assert decode_header(b'{"code":1,"opaque":%d}' % opaque) == decoded(code=1, opaque=opaque)


@pytest.mark.parametrize("code", [32_768, 200_050, -1000, 2**31 - 1])
def test_codes_have_32_bits(code: int) -> None:
    assert decode_header(b'{"code":%d}' % code)[0] == code


@pytest.mark.parametrize("member", ["code", "version", "opaque", "flag"])
@pytest.mark.parametrize("number", ["2147483648", "-2147483649", "9" * 5000, "1e99", "1.5", '"x"'])
def test_numbers_that_java_cannot_hold_are_refused(member: str, number: str) -> None:
    with pytest.raises(ProtocolError):
        decode_header(f'{{"{member}":{number}}}'.encode())


# --- reading what fastjson still reads ---------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ('"KLINGON"', Language.OTHER),
        ("null", Language.OTHER),
        ('""', Language.OTHER),
        ("9", Language.GO),
        ("0", Language.JAVA),
        ("99", Language.OTHER),
        ("-1", Language.OTHER),
        ('"go"', Language.GO),
        ('"java"', Language.JAVA),
    ],
)
def test_a_language_may_be_any_name_or_number(language: str, expected: Language) -> None:
    assert decode_header(f'{{"code":1,"language":{language}}}'.encode()) == decoded(
        code=1, language=expected
    )


def test_fields_that_are_not_text_count_as_their_text() -> None:
    header = (
        b'{"code":1,"extFields":{"a":5,"b":true,"c":false,"d":1.10,"e":-7,"f":"t","n":null,'
        b'"long":99999999999999999999999,"list":[1,"2"],"map":{"x":1}, "spaced" : 6 }}'
    )

    assert decode_header(header)[6] == {
        "a": "5",
        "b": "true",
        "c": "false",
        "d": "1.10",
        "e": "-7",
        "f": "t",
        "long": "99999999999999999999999",
        "list": '[1,"2"]',
        "map": '{"x":1}',
        "spaced": "6",
    }


@pytest.mark.parametrize(
    ("remark", "expected"),
    [("null", ""), ("5", "5"), ("true", "true"), ('{"a":1}', '{"a":1}'), ('"\\u0041"', "A")],
)
def test_a_remark_that_is_not_text_counts_as_its_text(remark: str, expected: str) -> None:
    header = f'{{"code":1,"remark":{remark},"extFields":{{"n":1}}}}'.encode()

    assert decode_header(header) == decoded(code=1, remark=expected, fields={"n": "1"})


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":"105","flag":null,"opaque":null,"version":null,"extFields":null}',
        b"{code:105}",
        b"{'code':105,}",
        b'\xef\xbb\xbf{"code":105}',
        b'{"code":1,"code":105}',
        b'{"code":105.0}',
    ],
)
def test_loose_forms_that_fastjson_accepts_are_accepted(header: bytes) -> None:
    assert decode_header(header) == decoded(code=105)


def test_invalid_utf_8_is_replaced_as_in_java() -> None:
    header = b'{"code":1,"remark":"\xd6\xd0","extFields":{"tag":"\xff","list":["\xff"]}}'

    assert decode_header(header) == decoded(
        code=1, remark="\ufffd\ufffd", fields={"tag": "\ufffd", "list": '["\ufffd"]'}
    )


def test_half_a_character_is_replaced() -> None:
    assert decode_header(rb'{"code":1,"extFields":{"k":"a\ud83d"}}')[6] == {"k": "a\ufffd"}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b"{",
        b'{"code":1',
        b'{"code":1}x',
        b'{"code":[]}',
        b'{"extFields":[]}',
        b'{"extFields":"x"}',
        b'{"language":[]}',
        b'{"code":1,"x":' + b"[" * 100_000,
        b'{"code":1,"extFields":{"a":' + b"[" * 100_000,
        b'{"remark":"\\q"}',
    ],
)
def test_text_that_is_not_a_header_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_header(header)


@pytest.mark.parametrize("value", [b'"x"', b"1"], ids=["strict", "loose"])
def test_the_number_of_fields_is_bounded(value: bytes) -> None:
    def header(count: int) -> bytes:
        fields = b",".join(b'"%d":%b' % (number, value) for number in range(count))
        return b'{"code":1,"extFields":{%b}}' % fields

    assert len(decode_header(header(1000))[6]) == 1000
    with pytest.raises(ProtocolError, match="1001 fields, above the limit of 1000"):
        decode_header(header(1001))


def test_a_header_that_no_client_writes_is_read_up_to_a_length() -> None:
    assert decode_header(b"{'code':1}" + b" " * 1000)[0] == 1
    with pytest.raises(ProtocolError, match="such a header is read up to 200000 bytes"):
        decode_header(b"{'code':1}" + b" " * LOOSE_BYTES_MAX)
