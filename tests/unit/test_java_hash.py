"""Java's string hash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.java_hash import java_hash


def _java_units(text: str) -> list[int]:
    """The chars of a Java string: a code point above 0xFFFF is two of them."""
    units: list[int] = []
    for character in text:
        code = ord(character)
        if code > 0xFFFF:
            units += [0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)]
        else:
            units.append(code)
    return units


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("中文", 646394),
        ("polygenelubricants", -2147483648),
        ("🚀", 0xD83D * 31 + 0xDE80),
        ("\ud83d", 0xD83D),
    ],
)
def test_known_strings_hash_as_in_java(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


@given(st.text(st.characters(exclude_categories=[])))
def test_any_string_hashes_over_its_utf_16_units(text: str) -> None:
    units = _java_units(text)
    total = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units))

    hashed = java_hash(text)

    assert hashed % 2**32 == total % 2**32
    assert -(2**31) <= hashed < 2**31
