"""SQL92 filters: one expression compiled, then asked about message after message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.errors import FilterEvaluationError
from orbitmq.filtering.evaluator import Evaluate, Lookup, compile_condition
from orbitmq.filtering.parser import parse_sql


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A compiled expression; any thread may ask it."""

    expression: str
    properties: frozenset[str]
    """Names of the properties that the expression asks for."""
    evaluate: Evaluate
    """Gives True, False or None (NULL); raises FilterEvaluationError where there is no value."""
    matches: Callable[[Lookup], bool]
    """Whether a consumer gets the message: only where the condition holds."""


def compile_sql(expression: str) -> SqlFilter:
    """Compile an expression; raises FilterSyntaxError where RocketMQ refuses it too."""
    parsed = parse_sql(expression)
    evaluate = compile_condition(parsed.condition)

    def matches(lookup: Lookup) -> bool:
        try:
            return evaluate(lookup) is True
        except FilterEvaluationError:
            return False

    return SqlFilter(expression, parsed.properties, evaluate, matches)
