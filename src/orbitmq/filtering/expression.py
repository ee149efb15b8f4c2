"""The nodes of a parsed SQL92 expression: values, and conditions on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NumberKind(Enum):
    """The Java type of a number, which decides how a property compared with it is parsed."""

    INTEGER = "a whole number of 32 bits"
    LONG = "a whole number of 64 bits"
    DOUBLE = "a number"


class Ordering(Enum):
    """How two numbers are compared."""

    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="


class TextPlace(Enum):
    """Where in a string another one is searched."""

    ANYWHERE = "CONTAINS"
    START = "STARTSWITH"
    END = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Number:
    """A number with its Java type."""

    value: int | float
    kind: NumberKind


# --- Values --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a property: a string, or NULL if the message does not have it."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A value written in the expression; TRUE, FALSE and NULL are conditions too."""

    value: str | bool | Number | None


@dataclass(frozen=True, slots=True)
class Negation:
    """A minus sign before a value; NULL for anything but a number."""

    operand: Node


# --- Conditions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of the terms is true."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class And:
    """All the terms are true."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The condition is false."""

    condition: Node


@dataclass(frozen=True, slots=True)
class Truth:
    """A property used as a condition: it is a string, so it is never true."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Equal:
    """Both sides are equal; IS NULL is NULL on the right."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Ordered:
    """Both sides are numbers in this order."""

    ordering: Ordering
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class OneOf:
    """A property is one of some strings, or none of them."""

    operand: Property
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A string contains, starts with or ends with another one, or does not."""

    place: TextPlace
    operand: Node
    searched: str
    negated: bool


Condition = Or | And | Not | Truth | Equal | Ordered | OneOf | TextMatch
Node = Property | Literal | Negation | Condition
