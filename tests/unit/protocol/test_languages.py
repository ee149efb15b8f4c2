"""The languages peers are written in."""

from __future__ import annotations

import pytest

from orbitmq.protocol.languages import Language, language_named, language_numbered


def test_numbers_and_names_are_those_of_rocketmq() -> None:
    assert {language.name: int(language) for language in Language} == {
        "JAVA": 0,
        "CPP": 1,
        "DOTNET": 2,
        "PYTHON": 3,
        "DELPHI": 4,
        "ERLANG": 5,
        "RUBY": 6,
        "OTHER": 7,
        "HTTP": 8,
        "GO": 9,
        "PHP": 10,
        "OMS": 11,
        "RUST": 12,
        "NODE_JS": 13,
    }


@pytest.mark.parametrize("language", Language)
def test_a_language_is_found_by_name_in_any_case_and_by_number(language: Language) -> None:
    assert language_named(language.name) is language
    assert language_named(language.name.lower()) is language
    assert language_numbered(language.value) is language


def test_an_unknown_language_counts_as_other() -> None:
    assert language_named("KLINGON") is Language.OTHER
    assert language_named("") is Language.OTHER
    assert language_numbered(-1) is Language.OTHER
    assert language_numbered(2**70) is Language.OTHER
