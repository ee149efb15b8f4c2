"""The value of a condition for a message: true, false, NULL, or no value at all."""

from __future__ import annotations

import pytest

from orbitmq.errors import FilterEvaluationError
from orbitmq.filtering.evaluator import compile_condition
from orbitmq.filtering.parser import parse_sql


def value(expression: str, **properties: str) -> bool | None:
    """Evaluate a condition for one message."""
    return compile_condition(parse_sql(expression).condition)(properties.get)


def fails(expression: str, **properties: str) -> bool:
    """Whether the condition has no value for a message."""
    with pytest.raises(FilterEvaluationError):
        value(expression, **properties)
    return True


TRUTHS = {True: "TRUE", False: "FALSE", None: "NULL"}


@pytest.mark.parametrize("right", TRUTHS)
@pytest.mark.parametrize("left", TRUTHS)
def test_and_or_and_not_have_three_values(*, left: bool | None, right: bool | None) -> None:
    both = f"{{}} {TRUTHS[left]} {{}} {TRUTHS[right]}"
    values = (left, right)

    expected_and = False if False in values else None if None in values else True
    expected_or = True if True in values else None if None in values else False
    assert value(both.format("", "AND")) is expected_and
    assert value(both.format("", "OR")) is expected_or
    assert value(f"NOT {TRUTHS[left]}") is (None if left is None else not left)


@pytest.mark.parametrize(
    ("expression", "a", "expected"),
    [
        ("a = 5", "5", True),
        ("a = 5", "+05", True),
        ("a <> 5", "6", True),
        ("5 = a", "5", True),
        ("a > 5", "6", True),
        ("a > 5", "5", False),
        ("5 < a", "6", True),
        ("a >= -2147483648", "-3000000000", False),
        ("a >= 3000000000", "3000000000", True),
        ("a = 5.0", " 5 ", True),
        ("a < 0.5", "1e-3", True),
        ("0.5 > a", "0.1", True),
        ("a > 0.5", "NaN", True),
        ("a BETWEEN 1 AND 5", "5", True),
        ("a BETWEEN 1 AND 5", "6", False),
        ("a NOT BETWEEN 1 AND 5", "6", True),
        ("a BETWEEN 5 AND -5", "0", False),
        ("a = 'x'", "x", True),
        ("a = 'x'", "X", False),
        ("'x' = a", "x", True),
        ("a = '5.0'", "5", False),
        ("a = TRUE", "tRue", True),
        ("a = FALSE", "anything", True),
        ("a <> TRUE", "x", True),
        ("a IN ('x', 'y')", "y", True),
        ("a NOT IN ('x', 'y')", "y", False),
        ("a IS NULL", "", False),
        ("a IS NOT NULL", "", True),
        ("a CONTAINS 'b'", "abc", True),
        ("a NOT CONTAINS 'b'", "abc", False),
        ("a STARTSWITH 'ab'", "abc", True),
        ("a NOT STARTSWITH 'b'", "abc", True),
        ("a ENDSWITH 'bc'", "abc", True),
        ("a NOT ENDSWITH 'bc'", "abc", False),
        # An empty string never matches, negated or not.
        ("a CONTAINS ''", "abc", False),
        ("a NOT CONTAINS ''", "abc", False),
        # A property is a string, never a boolean.
        ("a", "true", False),
        ("NOT a", "true", True),
        # A minus sign makes a string NULL, and NULL on the right equals nothing.
        ("-a = 5", "5", None),
        ("5 = -a", "5", False),
    ],
)
def test_a_property_is_compared_as_in_rocketmq(
    expression: str, a: str, *, expected: bool | None
) -> None:
    assert value(expression, a=a) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a = 5", None),
        ("a <> 5", None),
        ("a > 5", None),
        ("5 > a", None),
        ("a = 'x'", None),
        ("5 = a", False),
        ("a = b", True),
        ("a <> b", False),
        ("a BETWEEN 1 AND 2", None),
        ("a IN ('x')", None),
        ("a NOT IN ('x')", None),
        ("a CONTAINS 'x'", False),
        ("a NOT CONTAINS 'x'", False),
        ("a IS NULL", True),
        ("a IS NOT NULL", False),
        ("a", None),
        ("NOT a", None),
        ("a = TRUE", None),
        ("TRUE = a", False),
    ],
)
def test_a_missing_property_is_null(expression: str, *, expected: bool | None) -> None:
    assert value(expression) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("5 = 5.0", True),
        ("5 > 2147483648", False),
        ("2147483648 > 5", True),
        ("9007199254740993 = 9007199254740992.", True),
        ("-5 < 5", True),
        ("- -5 = 5", True),
        ("-5.5 < -5", True),
        ("'5' = 5", True),
        ("'true' = TRUE", True),
        ("5 = TRUE", False),
        ("(5 > 4) = TRUE", True),
        ("(5 > 4) = 5", False),
        ("'abc' CONTAINS 'b'", True),
        ("5 NOT CONTAINS 'b'", False),
        ("5 IS NULL", False),
        ("NULL IS NULL", True),
    ],
)
def test_literals_are_compared_too(expression: str, *, expected: bool) -> None:
    assert value(expression) is expected


def test_two_properties_are_ordered_as_numbers_and_equal_as_strings() -> None:
    assert value("a < b", a="5", b="10") is True
    assert value("a < b", a="-0.0", b="0") is True
    assert value("a = b", a="5", b="5.0") is False
    assert fails("a < b", a="5", b="x")


@pytest.mark.parametrize(
    ("expression", "a"),
    [
        ("a > 5", "abc"),
        ("a = 5", "abc"),
        ("a <> 5", "abc"),
        ("5 < a", "5.5"),
        ("a > 5", "5.5"),
        ("a > 5", "3000000000"),
        ("a > 0.5", "abc"),
        ("TRUE = a", "true"),
        ("-(a > 5) = 5", "abc"),
        ("(a > 5) CONTAINS 'x'", "abc"),
    ],
)
def test_a_property_that_is_not_such_a_number_gives_no_value(expression: str, a: str) -> None:
    assert fails(expression, a=a)


def test_no_value_propagates_unless_and_or_or_was_decided_before() -> None:
    assert fails("a > 5 OR TRUE", a="x")
    assert fails("NULL AND a > 5", a="x")
    assert fails("NOT (a > 5)", a="x")
    assert value("TRUE OR a > 5", a="x") is True
    assert value("FALSE AND a > 5", a="x") is False


def test_the_right_side_of_a_comparison_is_not_evaluated_if_the_left_is_null() -> None:
    assert value("a > -(b > 5)", b="x") is None
    assert fails("a > -(b > 5)", a="1", b="x")


@pytest.mark.parametrize("right", ["-TRUE", "-b", "-'x'", "-NULL"])
def test_a_minus_sign_before_a_value_that_is_not_a_number_gives_null(right: str) -> None:
    assert value(f"a > {right}", a="5", b="5") is None
    assert value(f"a = {right}", a="5", b="5") is False
