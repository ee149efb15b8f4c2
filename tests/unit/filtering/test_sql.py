"""Compiled filters: which messages a consumer gets."""

from __future__ import annotations

import sys

import pytest

from orbitmq.errors import FilterEvaluationError, FilterSyntaxError
from orbitmq.filtering.parser import NESTING_MAX
from orbitmq.filtering.sql import compile_sql

EXPRESSION = "(price > 10 AND price < 100) OR (vip IS NOT NULL AND vip = TRUE)"


@pytest.mark.parametrize(
    ("properties", "is_taken"),
    [
        ({"price": "50"}, True),
        ({"price": "5"}, False),
        ({"price": "5", "vip": "true"}, True),
        ({"vip": "TRUE"}, True),
        ({}, False),
        # A value that is not a number ends the evaluation before `vip`, as in RocketMQ.
        ({"price": "cheap", "vip": "true"}, False),
    ],
)
def test_a_message_matches_only_if_the_condition_is_true(
    properties: dict[str, str], *, is_taken: bool
) -> None:
    assert compile_sql(EXPRESSION).matches(properties.get) is is_taken


def test_a_filter_distinguishes_null_from_no_value() -> None:
    sql = compile_sql("price > 10")
    nothing: dict[str, str] = {}

    assert sql.evaluate(nothing.get) is None
    with pytest.raises(FilterEvaluationError, match="'cheap' is not a whole number of 32 bits"):
        sql.evaluate({"price": "cheap"}.get)


def test_a_filter_knows_its_expression_and_its_properties() -> None:
    sql = compile_sql(EXPRESSION)

    assert sql.expression == EXPRESSION
    assert sql.properties == {"price", "vip"}


def test_only_the_properties_that_decide_are_looked_up() -> None:
    asked: list[str] = []

    def lookup(name: str) -> str | None:
        asked.append(name)
        return "50"

    assert compile_sql(EXPRESSION).matches(lookup)
    assert asked == ["price", "price"]


def test_a_mistake_is_refused_when_the_filter_is_compiled() -> None:
    with pytest.raises(FilterSyntaxError, match="column 9: expected"):
        compile_sql("price > ")


def test_the_deepest_filter_leaves_most_of_the_stack_to_others() -> None:
    nested = "b AND NOT (a = 5 = TRUE OR " * (NESTING_MAX // 5) + "a" + ")" * (NESTING_MAX // 5)
    frames_left = 600

    def deep(frames: int) -> bool:
        if frames:
            return deep(frames - 1)
        return compile_sql(nested).matches({"a": "5", "b": "x"}.get)

    used = len(_frames())
    assert deep(max(0, sys.getrecursionlimit() - used - frames_left)) is False


def _frames() -> list[object]:
    frames: list[object] = []
    frame = sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return frames
