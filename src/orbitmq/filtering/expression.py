"""The nodes of a parsed SQL92 expression: values, and conditions on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NumberKind(Enum):
    """The Java type of a number, which decides how a property beside it is read."""

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
    """Where in a property a text is looked for."""

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
    """The value of a property: a text, or NULL where the message has none of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A value written in the expression; TRUE, FALSE and NULL are conditions too."""

    value: str | bool | Number | None


@dataclass(frozen=True, slots=True)
class Negation:
    """A minus sign before a value; before anything but a number it gives NULL."""

    operand: Node


# --- Conditions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Or:
    """One of the terms holds."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class And:
    """All the terms hold."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The condition does not hold."""

    condition: Node


@dataclass(frozen=True, slots=True)
class Truth:
    """A property in the place of a condition: it is a text, so it never holds."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Equal:
    """Both sides are the same; IS NULL is the same as NULL on the right."""

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
    """A property is one of some texts, or none of them."""

    operand: Property
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Holds:
    """A text holds another at some place, or does not."""

    place: TextPlace
    operand: Node
    searched: str
    negated: bool


Condition = Or | And | Not | Truth | Equal | Ordered | OneOf | Holds
Node = Property | Literal | Negation | Condition
