"""Expressions compiled to functions, once per filter, called for each message.

As in SQL, a condition is true, false, or NULL if a property is missing. It may also have no value
at all: a property that is not the number it is compared with ends the whole evaluation
(`FilterEvaluationError`), unless AND or OR was decided before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from orbitmq.errors import FilterEvaluationError
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
from orbitmq.filtering.java_values import (
    compare_doubles,
    read_boolean,
    read_double,
    read_integer,
    read_long,
)

Lookup = Callable[[str], str | None]
"""Returns the value of a property of one message, or None if the message does not have it."""

Evaluate = Callable[[Lookup], bool | None]
_Value = str | bool | int | float | None
_ValueOf = Callable[[Lookup], _Value]


class _Kind(Enum):
    """The type of a node's value unless it is NULL; known without a message."""

    TEXT = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    LONG = auto()
    DOUBLE = auto()


_NUMBER_KINDS: Final = {
    NumberKind.INTEGER: _Kind.INTEGER,
    NumberKind.LONG: _Kind.LONG,
    NumberKind.DOUBLE: _Kind.DOUBLE,
}
_READERS: Final[dict[_Kind, Callable[[str], int | float]]] = {
    _Kind.INTEGER: read_integer,
    _Kind.LONG: read_long,
    _Kind.DOUBLE: read_double,
    # Two strings are compared by size as decimal numbers.
    _Kind.TEXT: read_double,
}
_ORDERINGS: Final[dict[Ordering, Callable[[Any, Any], bool]]] = {
    Ordering.GREATER: operator.gt,
    Ordering.GREATER_OR_EQUAL: operator.ge,
    Ordering.LESS: operator.lt,
    Ordering.LESS_OR_EQUAL: operator.le,
}
_PLACES: Final[dict[TextPlace, Callable[[str, str], bool]]] = {
    TextPlace.ANYWHERE: operator.contains,
    TextPlace.START: str.startswith,
    TextPlace.END: str.endswith,
}


def compile_condition(node: Node) -> Evaluate:
    """Compile a condition to a function of one message's properties."""
    return _COMPILERS[type(node)](node)


# --- Logic ---------------------------------------------------------------------------------------


def _or(node: Or) -> Evaluate:
    terms = tuple(map(compile_condition, node.terms))

    def evaluate(lookup: Lookup) -> bool | None:
        result: bool | None = False
        for term in terms:
            value = term(lookup)
            if value:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def _and(node: And) -> Evaluate:
    terms = tuple(map(compile_condition, node.terms))

    def evaluate(lookup: Lookup) -> bool | None:
        result: bool | None = True
        for term in terms:
            value = term(lookup)
            if value is None:
                result = None
            elif not value:
                return False
        return result

    return evaluate


def _not(node: Not) -> Evaluate:
    condition = compile_condition(node.condition)

    def evaluate(lookup: Lookup) -> bool | None:
        value = condition(lookup)
        return None if value is None else not value

    return evaluate


def _truth(node: Truth) -> Evaluate:
    name = node.operand.name
    return lambda lookup: None if lookup(name) is None else False


def _constant(node: Literal) -> Evaluate:
    value = node.value
    assert value is None or isinstance(value, bool)
    return lambda _lookup: value


# --- Comparisons ---------------------------------------------------------------------------------


def _equal(node: Equal) -> Evaluate:
    left, right = node.left, node.right
    if isinstance(left, Property) and isinstance(right, Literal):
        if isinstance(right.value, str):
            return _property_is(left.name, right.value)
        if isinstance(right.value, Number):
            return _property_against(operator.eq, left.name, right.value)
    left_value, right_value = _value_of(left), _value_of(right)
    same = _equality(_kind_of(left), _kind_of(right))

    def evaluate(lookup: Lookup) -> bool | None:
        left, right = left_value(lookup), right_value(lookup)
        # Compat: NULL equals NULL, so two missing properties are equal; NULL on the left side only
        # gives NULL, on the right side only it gives FALSE.
        if left is None:
            return True if right is None else None
        if right is None:
            return False
        return same(left, right)

    return evaluate


def _ordered(node: Ordered) -> Evaluate:
    holds, left, right = _ORDERINGS[node.ordering], node.left, node.right
    if isinstance(left, Property) and isinstance(right, Literal):
        assert isinstance(right.value, Number)
        return _property_against(holds, left.name, right.value)
    left_value, right_value = _value_of(left), _value_of(right)
    compare = _comparison(_kind_of(left), _kind_of(right))

    def evaluate(lookup: Lookup) -> bool | None:
        left = left_value(lookup)
        if left is None:
            return None
        right = right_value(lookup)
        return None if right is None else holds(compare(left, right), 0)

    return evaluate


def _property_is(name: str, text: str) -> Evaluate:
    def evaluate(lookup: Lookup) -> bool | None:
        value = lookup(name)
        return None if value is None else value == text

    return evaluate


def _property_against(holds: Callable[[Any, Any], bool], name: str, number: Number) -> Evaluate:
    """Compare a property with a literal number, as most filters do."""
    read, wanted = _READERS[_NUMBER_KINDS[number.kind]], number.value

    def evaluate_whole(lookup: Lookup) -> bool | None:
        value = lookup(name)
        return None if value is None else holds(read(value), wanted)

    def evaluate_double(lookup: Lookup) -> bool | None:
        value = lookup(name)
        return None if value is None else holds(compare_doubles(read(value), wanted), 0)

    return evaluate_double if number.kind is NumberKind.DOUBLE else evaluate_whole


def _equality(left: _Kind, right: _Kind) -> Callable[[Any, Any], bool]:
    """Return the function that tests values of two kinds for equality."""
    if left is right and left in (_Kind.TEXT, _Kind.BOOLEAN):
        return operator.eq
    if left is _Kind.BOOLEAN and right is _Kind.TEXT:
        return _refuse_boolean
    if left is _Kind.TEXT and right is _Kind.BOOLEAN:
        return lambda text, boolean: read_boolean(text) is boolean
    if _Kind.BOOLEAN in (left, right):
        return lambda _left, _right: False
    compare = _comparison(left, right)
    return lambda left, right: compare(left, right) == 0


def _comparison(left: _Kind, right: _Kind) -> Callable[[Any, Any], int]:
    """Return the function that orders values of two kinds: by the kind of the number among them."""
    number = right if left is _Kind.TEXT else left
    is_double = _Kind.DOUBLE in (left, right) or left is right is _Kind.TEXT
    compare: Callable[[Any, Any], int] = compare_doubles if is_double else _compare_whole
    convert: Callable[[Any], int | float] = float if is_double else int
    read_left = _READERS[number] if left is _Kind.TEXT else convert
    read_right = _READERS[number] if right is _Kind.TEXT else convert
    return lambda left, right: compare(read_left(left), read_right(right))


def _compare_whole(left: int, right: int) -> int:
    return (left > right) - (left < right)


def _refuse_boolean(boolean: object, text: str) -> bool:
    # Compat: RocketMQ casts the wrong side here, which fails; the other order works.
    raise FilterEvaluationError(
        f"{str(boolean).upper()} = {text[:50]!r} cannot be compared in this order",
        hint="write the property on the left",
    )


# --- Strings -------------------------------------------------------------------------------------


def _one_of(node: OneOf) -> Evaluate:
    name, texts, negated = node.operand.name, node.texts, node.negated

    def evaluate(lookup: Lookup) -> bool | None:
        value = lookup(name)
        return None if value is None else (value in texts) is not negated

    return evaluate


def _text_match(node: TextMatch) -> Evaluate:
    """Search a string; a value of another kind gives FALSE, negated or not, as does ''."""
    holds, searched, negated = _PLACES[node.place], node.searched, node.negated
    if not searched:
        return lambda _lookup: False
    value_of = _value_of(node.operand)

    def evaluate(lookup: Lookup) -> bool:
        value = value_of(lookup)
        return isinstance(value, str) and holds(value, searched) is not negated

    return evaluate


# --- Values --------------------------------------------------------------------------------------


def _value_of(node: Node) -> _ValueOf:
    match node:
        case Property(name):
            return lambda lookup: lookup(name)
        case Literal(Number(value)):
            return lambda _lookup: value
        case Literal(str() as text):
            return lambda _lookup: text
        case Negation(operand):
            return _negated(_value_of(operand), _kind_of(operand))
        case _:
            return compile_condition(node)


def _negated(value_of: _ValueOf, kind: _Kind) -> _ValueOf:
    def evaluate(lookup: Lookup) -> _Value:
        value = value_of(lookup)
        if value is None or kind in (_Kind.TEXT, _Kind.BOOLEAN):
            return None
        return -value  # type: ignore[operator]  # the kind says that it is a number

    return evaluate


def _kind_of(node: Node) -> _Kind:
    match node:
        case Property() | Literal(str()):
            return _Kind.TEXT
        case Literal(Number(_, number_kind)):
            return _NUMBER_KINDS[number_kind]
        case Negation(operand):
            kind = _kind_of(operand)
            # A minus before anything but a number gives NULL, which is of any kind.
            return _Kind.TEXT if kind is _Kind.BOOLEAN else kind
        case _:
            return _Kind.BOOLEAN


_COMPILERS: Final[dict[type[Node], Callable[[Any], Evaluate]]] = {
    Or: _or,
    And: _and,
    Not: _not,
    Truth: _truth,
    Literal: _constant,
    Equal: _equal,
    Ordered: _ordered,
    OneOf: _one_of,
    TextMatch: _text_match,
}
