"""Properties as one text, by Java's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import MessageError
from orbitmq.record.properties import decode_properties, encode_properties, find_property

WORDS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
# Texts that look like properties, mostly broken ones.
TEXTS = st.lists(
    st.sampled_from(["TAGS", "KEYS", "a", "é", " ", "\x01", "\x02", "TAGS\x01a\x02"]), max_size=12
).map("".join)


def _java_parse(text: str) -> dict[str, str]:
    """`MessageDecoder.string2messageProperties`, position by position."""
    properties: dict[str, str] = {}
    at = 0
    while at < len(text):
        end = text.find("\x02", at)
        end = len(text) if end < 0 else end
        if end - at >= 3:
            separator = text.find("\x01", at)
            if at < separator < end - 1:
                properties[text[at:separator]] = text[separator + 1 : end]
        at = end + 1
    return properties


@given(st.dictionaries(WORDS, WORDS, max_size=8))
def test_properties_survive_a_round_trip(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties)

    assert decode_properties(encoded) == properties
    assert {name: find_property(encoded, name.encode()) for name in properties} == {
        name: value.encode() for name, value in properties.items()
    }


def test_properties_end_with_a_separator_as_java_5_writes_them() -> None:
    assert encode_properties({"TAGS": "TagA", "KEYS": "k"}) == b"TAGS\x01TagA\x02KEYS\x01k\x02"
    assert encode_properties({}) == b""


@given(TEXTS)
def test_any_text_is_read_as_java_reads_it(text: str) -> None:
    properties = _java_parse(text)

    assert decode_properties(text.encode()) == properties
    for name in ("TAGS", "KEYS", "a", "é"):
        value = find_property(text.encode(), name.encode())
        assert (value.decode() if value else None) == properties.get(name)


@pytest.mark.parametrize(
    ("encoded", "properties"),
    [
        (b"a\x01b", {"a": "b"}),  # 4.9 leaves out the last separator
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01\x02\x01b\x02ab\x02\x02", {}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        (b"a\x011\x02a\x01\x02", {"a": "1"}),
        (b"\xff\x01\xfe\x02", {"\ufffd": "\ufffd"}),
    ],
)
def test_odd_properties_are_read_as_java_reads_them(
    encoded: bytes, properties: dict[str, str]
) -> None:
    assert decode_properties(encoded) == properties


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (b"TAGS\x01a", b"a"),
        (b"XTAGS\x01a\x02", None),
        (b"x\x01TAGS\x01a\x02", None),
        (b"x\x01y\x02TAGS\x01a\x02", b"a"),
        (b"TAGS\x01a\x02TAGS\x01b\x02", b"b"),
        (b"TAGS\x01a\x02TAGS\x01\x02", b"a"),
        (b"TAGS\x01\x02", None),
        (b"TAGS", None),
        (b"", None),
    ],
)
def test_one_property_is_found_as_decoding_all_would(encoded: bytes, value: bytes | None) -> None:
    assert find_property(encoded, b"TAGS") == value


@pytest.mark.parametrize(
    "properties", [{"a\x01": "b"}, {"a": "\x02"}, {"\x02": "b"}, {"a": "\x01"}]
)
def test_separators_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(MessageError, match="contains one of the separators"):
        encode_properties(properties)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(MessageError, match=r"properties contain '\\ud83d', half of a character"):
        encode_properties({"a": "b\ud83d"})


def test_properties_have_a_bound() -> None:
    assert len(encode_properties({"a": "v" * 32764})) == 32767
    with pytest.raises(MessageError, match="properties of 32768 bytes are above 32767"):
        encode_properties({"a": "v" * 32765})
