"""The grammar: how an expression is parsed, and where its first mistake is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FilterSyntaxError
from orbitmq.filtering.expression import (
    And,
    Equal,
    Literal,
    Negation,
    Node,
    Not,
    Number,
    NumberKind,
    OneOf,
    Or,
    Ordered,
    Ordering,
    Property,
    TextMatch,
    TextPlace,
    Truth,
)
from orbitmq.filtering.parser import (
    CONDITIONS_MAX,
    EXPRESSION_CHARACTERS_MAX,
    IN_TEXTS_MAX,
    NESTING_MAX,
    parse_sql,
)

A, B, C = Property("a"), Property("b"), Property("c")
NULL = Literal(None)
FIVE = Literal(Number(5, NumberKind.INTEGER))
A_IS_5 = Equal(A, FIVE)


def parsed(expression: str) -> Node:
    """The condition of an expression."""
    return parse_sql(expression).condition


@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        ("a = 5", A_IS_5),
        ("a <> 5", Not(A_IS_5)),
        ("a IS NULL", Equal(A, NULL)),
        ("a IS NOT NULL", Not(Equal(A, NULL))),
        ("a >= b", Ordered(Ordering.GREATER_OR_EQUAL, A, B)),
        ("a IN ('x', 'it''s')", OneOf(A, frozenset({"x", "it's"}), negated=False)),
        ("a NOT IN ('x')", OneOf(A, frozenset({"x"}), negated=True)),
        ("a CONTAINS 'x'", TextMatch(TextPlace.ANYWHERE, A, "x", negated=False)),
        ("a NOT STARTSWITH 'x'", TextMatch(TextPlace.START, A, "x", negated=True)),
        ("'abc' ENDSWITH ''", TextMatch(TextPlace.END, Literal("abc"), "", negated=False)),
        ("a", Truth(A)),
        ("NOT a", Not(Truth(A))),
        ("TRUE", Literal(value=True)),
        ("(NULL)", NULL),
        ("+TRUE", Literal(value=True)),
        ("a = -'x'", Equal(A, Negation(Literal("x")))),
        ("a = - -5", Equal(A, Negation(Negation(FIVE)))),
        ("a = --5", Equal(A, Negation(Negation(FIVE)))),
        ("a = ++5", A_IS_5),
    ],
)
def test_each_form_has_its_node(expression: str, condition: Node) -> None:
    assert parsed(expression) == condition


def test_between_is_two_comparisons() -> None:
    at_least = Ordered(Ordering.GREATER_OR_EQUAL, A, B)
    at_most = Ordered(Ordering.LESS_OR_EQUAL, A, FIVE)
    below, above = Ordered(Ordering.LESS, A, B), Ordered(Ordering.GREATER, A, FIVE)

    assert parsed("a BETWEEN b AND 5") == And((at_least, at_most))
    assert parsed("a NOT BETWEEN b AND 5") == Or((below, above))


@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        ("a OR b AND c", Or((Truth(A), And((Truth(B), Truth(C)))))),
        ("(a OR b) AND c", And((Or((Truth(A), Truth(B))), Truth(C)))),
        ("a OR (b OR c)", Or((Truth(A), Truth(B), Truth(C)))),
        ("(a AND b) AND c", And((Truth(A), Truth(B), Truth(C)))),
        # NOT binds more tightly than any comparison.
        ("NOT a = 5", Equal(Not(Truth(A)), FIVE)),
        ("NOT (a = 5)", Not(A_IS_5)),
        ("a = 5 = b", Equal(A_IS_5, B)),
        ("a = b CONTAINS 'x'", Equal(A, TextMatch(TextPlace.ANYWHERE, B, "x", negated=False))),
        ("a = b IS NULL", Equal(Equal(A, B), NULL)),
    ],
)
def test_operators_bind_as_in_rocketmq(expression: str, condition: Node) -> None:
    assert parsed(expression) == condition


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", Number(0, NumberKind.INTEGER)),
        ("5L", Number(5, NumberKind.INTEGER)),
        ("2147483647", Number(2**31 - 1, NumberKind.INTEGER)),
        ("2147483648", Number(2**31, NumberKind.LONG)),
        ("9223372036854775807l", Number(2**63 - 1, NumberKind.LONG)),
        ("5.", Number(5.0, NumberKind.DOUBLE)),
        (".5E1", Number(5.0, NumberKind.DOUBLE)),
        ("4.9e-324", Number(5e-324, NumberKind.DOUBLE)),
    ],
)
def test_a_number_has_the_smallest_java_type_that_fits_it(text: str, number: Number) -> None:
    assert parsed(f"a = {text}") == Equal(A, Literal(number))


def test_the_properties_of_an_expression_are_listed() -> None:
    assert parse_sql("a > b AND NOT (c IN ('d') OR a IS NULL)").properties == {"a", "b", "c"}


@pytest.mark.parametrize(
    "expression", ["a = 5 -- why", "a = 5 -- it's", "a = 5 --", "a = 5 -- x\n", "a = 5 /* x */"]
)
def test_a_comment_may_end_the_expression(expression: str) -> None:
    assert parsed(expression) == A_IS_5


@pytest.mark.parametrize(
    ("expression", "column", "problem"),
    [
        ("", 1, "expected a property, a value, NOT or (, found the end"),
        ("a = ", 5, "expected a property, a value, NOT or (, found the end"),
        ("a AND OR b", 7, "expected a property, a value, NOT or (, found 'OR'"),
        ("(a = 5", 7, "expected ), found the end"),
        ("a = 5)", 6, "expected AND, OR or the end, found ')'"),
        ("a LIKE 'x%'", 3, "expected AND, OR or the end, found 'LIKE'"),
        ("a = 5 AN b = 6", 7, "expected AND, OR or the end, found 'AN'"),
        ("a = 0L", 6, "expected AND, OR or the end, found 'L'"),
        ("a IS NULL > 5", 11, "expected AND, OR or the end, found '>'"),
        ("a - 5 = 0", 3, "expected AND, OR or the end, found '-'"),
        ("a IS TRUE", 6, "expected NULL, found 'TRUE'"),
        ("a NOT 5", 7, "expected IN, BETWEEN, CONTAINS, STARTSWITH or ENDSWITH after NOT, found '5'"),
        ("a IN 'x'", 6, "expected (, found \"'x'\""),
        ("a IN ()", 7, "expected a string in single quotes, found ')'"),
        ("a IN (5)", 7, "expected a string in single quotes, found '5'"),
        ("a IN ('x' 'y')", 11, "expected ), found \"'y'\""),
        ("'x' IN ('x')", 1, "expected a property before IN"),
        ("a CONTAINS b", 12, "expected a string in single quotes, found 'b'"),
        ("a BETWEEN 5 OR 6", 13, "expected AND, found 'OR'"),
        ("a BETWEEN 5 AND 4", 11, "BETWEEN 5 AND 4 matches nothing; swap them"),
        ("a BETWEEN 5.5 AND 5", 11, "BETWEEN 5.5 AND 5 matches nothing; swap them"),
        ("5", 1, "expected a condition, found a value"),
        ("a = 5 AND 'x'", 11, "expected a condition, found a value"),
        ("NOT -a", 5, "expected a condition, found a value"),
        ("a = NULL", 5, "NULL equals nothing; write IS NULL or IS NOT NULL"),
        ("NULL <> a", 1, "NULL equals nothing; write IS NULL or IS NOT NULL"),
        ("TRUE = 5", 1, "TRUE and FALSE cannot be compared with another value"),
        ("a > 'x'", 5, "expected a number or a property to compare by size"),
        ("TRUE > a", 1, "expected a number or a property to compare by size"),
        ("b AND NOT a > 5", 7, "expected a number or a property to compare by size"),
        ("a BETWEEN NULL AND 5", 11, "expected a number or a property to compare by size"),
        ("a < 5 < 6", 1, "expected a number or a property to compare by size"),
        ("a = 9223372036854775808", 5, "the number is above 9223372036854775807"),
        ("a = " + "9" * 5_000, 5, "the number is above 9223372036854775807"),
        ("a = 1e309", 5, "the number is above 1.7976931348623157E308"),
        ("a = 0.0", 5, "a decimal number must be above zero; write 0"),
        ("a = 1e-400", 5, "a decimal number must be above zero; write 0"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_column(expression: str, column: int, problem: str) -> None:
    with pytest.raises(FilterSyntaxError) as refusal:
        parse_sql(expression)

    assert str(refusal.value).endswith(f", column {column}: {problem}")
    assert refusal.value.column == column


def test_the_message_shows_the_expression() -> None:
    with pytest.raises(FilterSyntaxError, match=r"^filter 'a > ', column 5: ") as refusal:
        parse_sql("a > ")

    assert refusal.value.expression == "a > "


def test_the_message_shows_only_the_surroundings_in_a_long_expression() -> None:
    expression = "a = 1 OR " * 1_000 + "oops oops" + " OR a = 1" * 1_000

    with pytest.raises(FilterSyntaxError, match=r"filter '….*OR oops oops OR.*…', ") as refusal:
        parse_sql(expression)

    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("opening", "closing"), [("(", ")"), ("NOT ", ""), ("-", ""), ("+", ""), ("NOT (", ")")]
)
def test_nesting_is_bounded_far_below_the_limit_of_the_stack(opening: str, closing: str) -> None:
    with pytest.raises(FilterSyntaxError, match=f"nested more than {NESTING_MAX} levels deep"):
        parse_sql(opening * 10_000 + "a" + closing * 10_000)


@pytest.mark.parametrize("tail", [" = a", " IS NULL", " CONTAINS 'x'"])
def test_chains_that_nest_without_parentheses_are_bounded_too(tail: str) -> None:
    with pytest.raises(FilterSyntaxError, match="nested more than"):
        parse_sql("a" + tail * 5_000)


def test_nesting_up_to_the_bound_is_accepted() -> None:
    assert parsed("(" * NESTING_MAX + "a = 5" + ")" * NESTING_MAX) == A_IS_5


def test_a_long_chain_is_not_deep_nesting() -> None:
    condition = parsed(" OR ".join(["(a = 5)"] * CONDITIONS_MAX))

    assert condition == Or((A_IS_5,) * CONDITIONS_MAX)


@pytest.mark.parametrize("condition", ["a = 5", "a", "a < 5", "a CONTAINS 'x'"])
def test_the_number_of_conditions_is_bounded(condition: str) -> None:
    longest = " AND ".join([condition] * CONDITIONS_MAX)

    parse_sql(longest)
    with pytest.raises(FilterSyntaxError, match=f"takes at most {CONDITIONS_MAX} conditions"):
        parse_sql(f"{longest} AND {condition}")


def test_the_length_of_an_expression_is_bounded() -> None:
    longest = "a = 5".ljust(EXPRESSION_CHARACTERS_MAX)

    assert parsed(longest) == A_IS_5
    with pytest.raises(FilterSyntaxError, match="65537 characters are above the limit of 65536"):
        parse_sql(longest + " ")


def test_the_length_of_an_in_list_is_bounded() -> None:
    longest = ",".join(["''"] * IN_TEXTS_MAX)

    assert parsed(f"a IN ({longest})") == OneOf(A, frozenset({""}), negated=False)
    with pytest.raises(FilterSyntaxError, match=f"an IN list takes at most {IN_TEXTS_MAX} strings"):
        parse_sql(f"a IN ({longest}, '')")


WORDS = st.sampled_from(
    ["a", "b", "5", "5.5", "'x'", "TRUE", "NULL", "NOT", "AND", "OR", "IN", "IS", "BETWEEN", "CONTAINS", "(", ")", ",", "=", "<>", "<", ">=", "+", "-", "--", "/*", "*/", "'", "\n"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=30).map(" ".join))
def test_any_words_are_parsed_or_refused_within_the_text(expression: str) -> None:
    column = 1
    try:
        parse_sql(expression)
    except FilterSyntaxError as refusal:
        column = refusal.column

    assert 1 <= column <= len(expression) + 1
