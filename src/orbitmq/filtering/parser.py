"""The parser of SQL92 expressions, with RocketMQ's grammar.

    OR  <  AND  <  = <> IS  <  the other comparisons  <  unary + - NOT  <  ( )

It differs from RocketMQ in two ways: text after the end of the expression is an error, and an
expression above the bounds below is refused before it can exhaust the stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, NoReturn

from orbitmq.errors import FilterSyntaxError
from orbitmq.filtering.expression import (
    And,
    Condition,
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
from orbitmq.filtering.java_values import INTEGER_MAX, LONG_MAX, compare_doubles
from orbitmq.filtering.lexer import Token, TokenKind, tokens

EXPRESSION_CHARACTERS_MAX: Final = 65_536
NESTING_MAX: Final = 100
IN_TEXTS_MAX: Final = 10_000
# Comparisons, minus signs, and properties used as conditions: each is evaluated for every message.
CONDITIONS_MAX: Final = 1_000

_ORDERINGS: Final = {
    TokenKind.GREATER: Ordering.GREATER,
    TokenKind.GREATER_OR_EQUAL: Ordering.GREATER_OR_EQUAL,
    TokenKind.LESS: Ordering.LESS,
    TokenKind.LESS_OR_EQUAL: Ordering.LESS_OR_EQUAL,
}
_PLACES: Final = {
    TokenKind.CONTAINS: TextPlace.ANYWHERE,
    TokenKind.STARTSWITH: TextPlace.START,
    TokenKind.ENDSWITH: TextPlace.END,
}
_CONSTANTS: Final = {TokenKind.TRUE: True, TokenKind.FALSE: False, TokenKind.NULL: None}
_NULL: Final = Literal(None)
# Nodes that join conditions, and compare nothing themselves.
_JOINED: Final = (Or, And, Not)


class _Level(IntEnum):
    """How tightly an operator binds."""

    OR = 1
    AND = 2
    EQUALITY = 3
    COMPARISON = 4


_LEVELS: Final = {
    TokenKind.OR: _Level.OR,
    TokenKind.AND: _Level.AND,
    TokenKind.EQUAL: _Level.EQUALITY,
    TokenKind.NOT_EQUAL: _Level.EQUALITY,
    TokenKind.IS: _Level.EQUALITY,
    TokenKind.NOT: _Level.COMPARISON,
    TokenKind.BETWEEN: _Level.COMPARISON,
    TokenKind.IN: _Level.COMPARISON,
    **dict.fromkeys(_ORDERINGS, _Level.COMPARISON),
    **dict.fromkeys(_PLACES, _Level.COMPARISON),
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """An expression and the names of the properties in it."""

    condition: Node
    properties: frozenset[str]


class _Operand(NamedTuple):
    """A node, the column where it begins, and the height of its tree."""

    node: Node
    column: int
    height: int = 1


def parse_sql(expression: str) -> Parsed:
    """Parse an expression; raises FilterSyntaxError with the column of the first mistake."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise FilterSyntaxError(
            expression,
            EXPRESSION_CHARACTERS_MAX + 1,
            f"{len(expression)} characters are above the limit of {EXPRESSION_CHARACTERS_MAX}",
        )
    return _Parser(expression).parse()


class _Parser:
    """Reads tokens from left to right, looking one ahead; for one use."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = tokens(expression)
        self._token = next(self._tokens)
        self._nesting = 0
        self._conditions = 0
        self._properties: set[str] = set()

    def parse(self) -> Parsed:
        whole = self._condition(self._operation(_Level.OR))
        # A comment on the last line has no line end, so the lexer does not skip it.
        in_comment = self._expression.startswith("--", self._token.column - 1)
        if self._token.kind is not TokenKind.END and not in_comment:
            self._refuse_token("AND, OR or the end")
        return Parsed(whole.node, frozenset(self._properties))

    # --- Tokens ----------------------------------------------------------------------------------

    def _take(self) -> Token:
        token = self._token
        if token.kind is not TokenKind.END:
            self._token = next(self._tokens)
        return token

    def _take_if(self, kind: TokenKind) -> bool:
        if self._token.kind is kind:
            self._take()
            return True
        return False

    def _expect(self, kind: TokenKind) -> Token:
        if self._token.kind is not kind:
            self._refuse_token(kind.value)
        return self._take()

    def _refuse_token(self, expected: str) -> NoReturn:
        found = repr(self._token.text) if self._token.text else TokenKind.END.value
        self._refuse(self._token.column, f"expected {expected}, found {found}")

    def _refuse(self, column: int, problem: str) -> NoReturn:
        raise FilterSyntaxError(self._expression, column, problem)

    # --- Operators -------------------------------------------------------------------------------

    def _operation(self, lowest: _Level) -> _Operand:
        """Read operators that bind at least as tightly as `lowest`, and their operands."""
        left = self._unary()
        highest = _Level.COMPARISON
        while (level := _LEVELS.get(self._token.kind)) and lowest <= level <= highest:
            # A tighter operator was part of the right side of the previous one.
            highest = level
            left = self._operator(level, left)
        return left

    def _operator(self, level: _Level, left: _Operand) -> _Operand:
        if level is _Level.OR:
            return self._chain(TokenKind.OR, Or, _Level.AND, left)
        if level is _Level.AND:
            return self._chain(TokenKind.AND, And, _Level.EQUALITY, left)
        if level is _Level.EQUALITY:
            return self._equality(left)
        return self._comparison(left)

    def _chain(
        self, kind: TokenKind, join: type[Or | And], next_level: _Level, first: _Operand
    ) -> _Operand:
        """Read a whole chain into one node: a long chain must not become a deep tree."""
        parts = [self._condition(first)]
        while self._take_if(kind):
            parts.append(self._condition(self._operation(next_level)))
        terms: list[Node] = []
        for part in parts:
            terms.extend(part.node.terms if isinstance(part.node, join) else [part.node])
        return self._node(join(tuple(terms)), *parts)

    def _equality(self, left: _Operand) -> _Operand:
        operator = self._take().kind
        if operator is TokenKind.IS:
            negated = self._take_if(TokenKind.NOT)
            self._expect(TokenKind.NULL)
            return self._equal(left, _Operand(_NULL, left.column), negated=negated)
        right = self._operation(_Level.COMPARISON)
        self._check_equality(left, right)
        return self._equal(left, right, negated=operator is TokenKind.NOT_EQUAL)

    def _equal(self, left: _Operand, right: _Operand, *, negated: bool) -> _Operand:
        made = self._node(Equal(left.node, right.node), left, right)
        return self._node(Not(made.node), made) if negated else made

    def _comparison(self, left: _Operand) -> _Operand:
        negated = self._take_if(TokenKind.NOT)
        kind = self._token.kind
        if kind in _PLACES:
            self._take()
            searched = self._text()
            return self._node(TextMatch(_PLACES[kind], left.node, searched, negated), left)
        if kind is TokenKind.IN:
            return self._one_of(left, negated=negated)
        if kind is TokenKind.BETWEEN:
            return self._between(left, negated=negated)
        if negated:
            self._refuse_token("IN, BETWEEN, CONTAINS, STARTSWITH or ENDSWITH after NOT")
        self._take()
        return self._ordered(_ORDERINGS[kind], left, self._unary())

    def _ordered(self, ordering: Ordering, left: _Operand, right: _Operand) -> _Operand:
        self._check_ordered(left)
        self._check_ordered(right)
        return self._node(Ordered(ordering, left.node, right.node), left, right)

    def _between(self, value: _Operand, *, negated: bool) -> _Operand:
        self._take()
        low = self._unary()
        self._expect(TokenKind.AND)
        high = self._unary()
        if negated:
            sides = (
                self._ordered(Ordering.LESS, value, low),
                self._ordered(Ordering.GREATER, value, high),
            )
            return self._node(Or(tuple(side.node for side in sides)), *sides)
        sides = (
            self._ordered(Ordering.GREATER_OR_EQUAL, value, low),
            self._ordered(Ordering.LESS_OR_EQUAL, value, high),
        )
        self._check_bounds(low, high)
        return self._node(And(tuple(side.node for side in sides)), *sides)

    def _one_of(self, left: _Operand, *, negated: bool) -> _Operand:
        operator = self._take()
        if not isinstance(left.node, Property):
            self._refuse(left.column, f"expected a property before {operator.text}")
        self._expect(TokenKind.OPEN)
        texts = [self._text()]
        while self._take_if(TokenKind.COMMA):
            if len(texts) == IN_TEXTS_MAX:
                self._refuse(self._token.column, f"an IN list takes at most {IN_TEXTS_MAX} strings")
            texts.append(self._text())
        self._expect(TokenKind.CLOSE)
        return self._node(OneOf(left.node, frozenset(texts), negated), left)

    # --- Operands --------------------------------------------------------------------------------

    def _unary(self) -> _Operand:
        column = self._token.column
        if self._take_if(TokenKind.PLUS):
            return self._nested(self._unary)
        if self._take_if(TokenKind.MINUS):
            operand = self._nested(self._unary)
            return self._node(Negation(operand.node), operand, column=column)
        if self._take_if(TokenKind.NOT):
            condition = self._condition(self._nested(self._unary))
            return self._node(Not(condition.node), condition, column=column)
        if self._take_if(TokenKind.OPEN):
            inner = self._nested(lambda: self._operation(_Level.OR))
            self._expect(TokenKind.CLOSE)
            return inner
        return self._value()

    def _nested(self, read: Callable[[], _Operand]) -> _Operand:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            self._refuse_nesting()
        part = read()
        self._nesting -= 1
        return part

    def _value(self) -> _Operand:
        token = self._token
        if token.kind is TokenKind.NAME:
            self._properties.add(token.text)
            node: Node = Property(token.text)
        elif token.kind is TokenKind.TEXT:
            return _Operand(Literal(self._text()), token.column)
        elif token.kind is TokenKind.WHOLE:
            node = Literal(self._whole(token))
        elif token.kind is TokenKind.DECIMAL:
            node = Literal(self._decimal(token))
        elif token.kind in _CONSTANTS:
            node = Literal(_CONSTANTS[token.kind])
        else:
            self._refuse_token("a property, a value, NOT or (")
        self._take()
        return _Operand(node, token.column)

    def _text(self) -> str:
        return self._expect(TokenKind.TEXT).text[1:-1].replace("''", "'")

    def _whole(self, token: Token) -> Number:
        digits = token.text.rstrip("lL")
        if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            self._refuse(token.column, f"the number is above {LONG_MAX}")
        number = int(digits)
        return Number(number, NumberKind.INTEGER if number <= INTEGER_MAX else NumberKind.LONG)

    def _decimal(self, token: Token) -> Number:
        number = float(token.text)
        if math.isinf(number):
            self._refuse(token.column, "the number is above 1.7976931348623157E308")
        # Compat: RocketMQ mistakes Java's smallest positive double for the smallest double.
        if number == 0.0:
            self._refuse(token.column, "a decimal number must be above zero; write 0")
        return Number(number, NumberKind.DOUBLE)

    # --- Checks ----------------------------------------------------------------------------------

    def _condition(self, part: _Operand) -> _Operand:
        """Use an operand as a condition, which only conditions and properties can be."""
        if isinstance(part.node, Property):
            return self._node(Truth(part.node), part)
        if not _is_condition(part.node):
            self._refuse(part.column, "expected a condition, found a value")
        return part

    def _check_equality(self, left: _Operand, right: _Operand) -> None:
        for part in (left, right):
            if part.node == _NULL:
                self._refuse(part.column, "NULL equals nothing; write IS NULL or IS NOT NULL")
        match left.node, right.node:
            # Compat: only this order is refused; the other one is accepted, and never equal.
            case Literal(bool()), Literal(value) if not isinstance(value, bool):
                self._refuse(left.column, "TRUE and FALSE cannot be compared with another value")

    def _check_ordered(self, part: _Operand) -> None:
        node = part.node
        is_number = isinstance(node, Literal) and isinstance(node.value, Number)
        if _is_condition(node) or (isinstance(node, Literal) and not is_number):
            self._refuse(part.column, "expected a number or a property to compare by size")

    def _check_bounds(self, low: _Operand, high: _Operand) -> None:
        match low.node, high.node:
            case Literal(Number(least)), Literal(Number(most)) if _is_below(most, least):
                self._refuse(low.column, f"BETWEEN {least} AND {most} matches nothing; swap them")

    # --- Height ----------------------------------------------------------------------------------

    def _node(self, node: Node, *parts: _Operand, column: int | None = None) -> _Operand:
        """Put a new node above its parts, unless the tree gets too high or too large."""
        if not isinstance(node, _JOINED):
            self._conditions += 1
            if self._conditions > CONDITIONS_MAX:
                self._refuse(
                    self._token.column, f"a filter takes at most {CONDITIONS_MAX} conditions"
                )
        height = 1 + max(part.height for part in parts)
        if height > NESTING_MAX:
            self._refuse_nesting()
        return _Operand(node, parts[0].column if column is None else column, height)

    def _refuse_nesting(self) -> NoReturn:
        self._refuse(self._token.column, f"nested more than {NESTING_MAX} levels deep")


def _is_condition(node: Node) -> bool:
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, Condition)


def _is_below(left: float, right: float) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right)) < 0
    return left < right
