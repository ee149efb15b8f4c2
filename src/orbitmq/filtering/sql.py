"""SQL92 filters: an expression compiled once, then evaluated for each message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.errors import FilterEvaluationError
from orbitmq.filtering.evaluator import Evaluate, Lookup, compile_condition
from orbitmq.filtering.parser import parse_sql


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A compiled expression; any thread may use it."""

    expression: str
    properties: frozenset[str]
    """Names of the properties in the expression."""
    evaluate: Evaluate
    """Returns True, False or None (NULL); raises FilterEvaluationError if there is no value."""
    matches: Callable[[Lookup], bool]
    """Whether a consumer gets the message: only if the condition is true."""


def compile_sql(expression: str) -> SqlFilter:
    """Compile an expression; raises FilterSyntaxError for those that RocketMQ refuses too."""
    parsed = parse_sql(expression)
    evaluate = compile_condition(parsed.condition)

    def matches(lookup: Lookup) -> bool:
        try:
            return evaluate(lookup) is True
        except FilterEvaluationError:
            return False

    return SqlFilter(expression, parsed.properties, evaluate, matches)
