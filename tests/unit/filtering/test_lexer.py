"""Tokens of SQL92 expressions."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FilterSyntaxError
from orbitmq.filtering.lexer import Token, TokenKind, tokens


def texts(expression: str) -> list[str]:
    """The tokens as written, without the end."""
    return [token.text for token in tokens(expression)][:-1]


def test_each_token_knows_its_kind_and_its_column() -> None:
    assert list(tokens("a >=\n5 ")) == [
        Token(TokenKind.NAME, "a", 1),
        Token(TokenKind.GREATER_OR_EQUAL, ">=", 3),
        Token(TokenKind.WHOLE, "5", 6),
        Token(TokenKind.END, "", 8),
    ]


@pytest.mark.parametrize("word", ["between", "BETWEEN", "bEtWeEn"])
def test_keywords_are_known_in_any_case(word: str) -> None:
    assert next(tokens(word)).kind is TokenKind.BETWEEN


@pytest.mark.parametrize("word", ["betweens", "_in", "$1", "a1$_", "A", "LIKE"])
def test_other_words_are_properties_as_written(word: str) -> None:
    assert next(tokens(word)) == Token(TokenKind.NAME, word, 1)


@pytest.mark.parametrize("text", ["0", "7", "10", "5L", "12l"])
def test_whole_numbers(text: str) -> None:
    assert next(tokens(text)) == Token(TokenKind.WHOLE, text, 1)


@pytest.mark.parametrize("text", ["0.5", "5.", ".5", "1e3", "1E+3", "5.5e-10", "5.e1", "00.5"])
def test_decimal_numbers(text: str) -> None:
    assert next(tokens(text)) == Token(TokenKind.DECIMAL, text, 1)


@pytest.mark.parametrize("text", ["''", "'a'", "'it''s'", "''''", "'a\nb'", "'中文 \"x\"'", "'--'"])
def test_strings_contain_anything_and_double_their_quotes(text: str) -> None:
    assert next(tokens(text)) == Token(TokenKind.TEXT, text, 1)


@pytest.mark.parametrize(
    ("expression", "cut"),
    [
        ("a<>b", ["a", "<>", "b"]),
        ("a<-5", ["a", "<", "-", "5"]),
        ("a==b", ["a", "=", "=", "b"]),
        ("5AND", ["5", "AND"]),
        ("0L", ["0", "L"]),
        ("007", ["0", "0", "7"]),
        ("5e", ["5", "e"]),
        ("a.5", ["a", ".5"]),
        ("'a''b'c", ["'a''b'", "c"]),
    ],
)
def test_the_longest_token_is_read_first(expression: str, cut: list[str]) -> None:
    assert texts(expression) == cut


@pytest.mark.parametrize(
    "expression",
    [
        "a/* b */c",
        "a/**/c",
        "a/***/c",
        "a/*/ * / **/c",
        "a-- b\nc",
        "a-- b\rc",
        "a--\r\nc",
        "a\f\tc",
    ],
)
def test_comments_and_white_space_separate_tokens(expression: str) -> None:
    assert texts(expression) == ["a", "c"]


def test_two_minus_signs_open_no_comment_on_the_last_line() -> None:
    assert texts("--5") == ["-", "-", "5"]


@pytest.mark.parametrize(
    ("expression", "column", "problem"),
    [
        ("a = 'x", 5, "no closing single quote"),
        ("a = 'x''", 8, "no closing single quote"),
        ("a /* b", 3, r"no closing \*/"),
        ("a != 5", 3, "write <>"),
        ('a = "x"', 5, "single quotes"),
        ("a = 5;", 6, "unexpected character ';'"),
        ("中 = 5", 1, "unexpected character '中'"),
        ("a\u00a0= 5", 2, "unexpected character"),
    ],
)
def test_an_invalid_token_is_refused_with_its_column(
    expression: str, column: int, problem: str
) -> None:
    with pytest.raises(FilterSyntaxError, match=rf"column {column}: .*{problem}") as refusal:
        list(tokens(expression))

    assert refusal.value.column == column
    assert refusal.value.expression == expression


@given(st.text("aA0.5eE'*/- \n<>=()"))
def test_the_column_of_a_token_is_its_position_in_the_text(expression: str) -> None:
    end, stop = 0, len(expression) + 1
    try:
        for token in tokens(expression):
            start = token.column - 1
            assert start >= end
            assert expression[start : start + len(token.text)] == token.text
            end = start + len(token.text)
    except FilterSyntaxError as refusal:
        stop = refusal.column
    assert end < stop <= len(expression) + 1


def test_minus_signs_without_a_line_end_take_linear_time() -> None:
    began_s = time.process_time()

    assert sum(1 for _ in tokens("--1 " * 16_384)) == 3 * 16_384 + 1

    # Searching a line end from each of them would take several seconds.
    assert time.process_time() - began_s < 2
