"""Filter expressions made by chance, from a seed: well-formed ones, odd ones and broken ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

NAMES = ("a", "b", "c", "Price", "_x$1")

NUMBERS = (
    "0", "1", "5", "7", "10", "42", "1L", "5l", "0L", "007", "2147483647", "2147483648",
    "9223372036854775807", "9223372036854775807L", "9223372036854775808", "99999999999999999999",
    "0.0", "0.5", "5.", ".5", "5.0", "1e3", "1E-3", "5.5e+2", "1e308", "1e309", "1e-400",
    "4.9e-324", "00.5", "5d", "5e", "0x1F",
)  # fmt: skip

TEXTS = (
    "''", "'a'", "'b'", "'abc'", "'5'", "'5.0'", "'true'", "'it''s'", "''''", "' '", "'中文'",
    "'🚀'", "'a\nb'", "'--'", "'NULL'", "'%'",
)  # fmt: skip

CONSTANTS = ("TRUE", "FALSE", "NULL", "true", "False", "nUlL")

VALUES = (
    "", " ", "a", "b", "abc", "it's", "'", "中文", "🚀", "a\nb", "--", "NULL", "true", "TRUE", "tRue", "false",
    "0", "-0", "+0", "5", "+5", "-5", " 5", "5 ", "05", "0000000000000000000000005", "5.0", "5.", ".5",
    "-0.0", "0.0", "5d", "5F", "5L", "1e3", "1E400", "-1e400", "1e-400", "NaN", "-NaN", "nan", "Infinity",
    "-Infinity", "inf", "+Infinity", "NaNf", "0x1p3", "0x1.8p1", "-0X.8P+2d", "0x10", "0x1p99999", "-0x1p99999",
    "0x1p-99999", "1_000", "١٢", "\uff15", "\U0001d7d3", "²", "--5", "+", "-", ".", "e5", "1e", "1e+", "5 5", "\t5\n", "\u00a05",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "9007199254740993", "9007199254740992.0", "1.7976931348623159e308",
    "2.4703282292062327e-324", "2.4703282292062328e-324", "0.1", "0.10000000000000000555",
)  # fmt: skip

# Every one of these was a question once.
KNOWN = (
    "", " ", "a", "NOT a", "NOT NOT a", "TRUE", "NULL", "NOT NULL", "5", "'a'", "-5", "-TRUE", "+TRUE", "+a",
    "a = b", "a <> b", "a = a", "a IS NULL", "a IS NOT NULL", "a IS NOT", "a IS TRUE", "NULL IS NULL",
    "5 IS NULL", "a IS NULL IS NULL", "a IS NULL CONTAINS 'x'", "a IS NULL > 5", "a IS NULL = TRUE",
    "a = NULL", "NULL = a", "a <> NULL", "a = -NULL", "-NULL = a", "a = (NULL)",
    "a = TRUE", "TRUE = a", "a = FALSE", "a <> TRUE", "TRUE = TRUE", "TRUE = 5", "5 = TRUE", "TRUE = 'true'",
    "'true' = TRUE", "(a > 5) = TRUE", "TRUE = (a > 5)", "(a > 5) = b", "b = (a > 5)", "(a > 5) = 5",
    "a > TRUE", "a > 'x'", "'x' > a", "a > b", "a > NULL", "a > -b", "a > -'x'", "a > -TRUE", "-a > 5",
    "a > -(b > 5)", "-(b > 5) = 5", "5 = -a", "-a = 5", "a < 5 < 6", "a = 5 = TRUE", "a = 5 = 5",
    "NOT a = 5", "NOT a > 5", "NOT (a > 5)", "NOT a IN ('x')", "NOT a IS NULL", "NOT a CONTAINS 'x'",
    "a BETWEEN 1 AND 5", "a BETWEEN 5 AND 1", "a BETWEEN 5 AND -5", "a BETWEEN 5 AND 5.0", "a BETWEEN 5 AND 4.9",
    "a BETWEEN 1 AND 9223372036854775807", "a BETWEEN 9223372036854775807 AND 1", "a BETWEEN NULL AND 5",
    "a BETWEEN b AND c", "a BETWEEN 'a' AND 'b'", "a BETWEEN TRUE AND FALSE", "5 BETWEEN a AND b",
    "a NOT BETWEEN 5 AND 1", "a NOT BETWEEN 1 AND 5", "a BETWEEN 1 AND 5 AND b", "TRUE BETWEEN 1 AND 2",
    "a IN ('a')", "a IN ('a','b','c','5','')", "a NOT IN ('a')", "a IN ()", "a IN (5)", "a IN ('a',)", "'a' IN ('a')",
    "(a) IN ('a')", "+a IN ('a')", "-a IN ('a')", "a NOT b", "a NOT NULL", "a IN 'a'",
    "a CONTAINS 'b'", "a NOT CONTAINS 'b'", "a CONTAINS ''", "a NOT CONTAINS ''", "a CONTAINS b", "5 CONTAINS '5'",
    "'abc' CONTAINS 'b'", "NULL CONTAINS 'b'", "TRUE CONTAINS 't'", "(a > 5) CONTAINS 'x'", "(a > 5) CONTAINS ''",
    "a STARTSWITH 'a'", "a NOT STARTSWITH 'a'", "a ENDSWITH 'c'", "a NOT ENDSWITH 'c'", "a CONTAINS 'a' CONTAINS 'b'",
    "a CONTAINS 'a' = TRUE", "a = b CONTAINS 'a'", "a = 1 b", "a LIKE 'a%'", "a = 1)", "a = 1;", "a == 1", "a != 1",
    "a = 1 -- why", "a = 1 -- it's", "a = 1 --\n", "a = --5", "a = --5\n", "a = - -5", "a /* x */ = 1", "a /* = 1",
    "a /**/ = 1", "a /***/ = 1", "a /*/ = 1", "a -- x\n = 1", "a -- x\r\n = 1", "a = 1 /* x", "a - b", "a + b",
    "a = 5AND b = 6", "a = 5OR b", "a.b = 5", "a.5 = 5", "a = 'x", "a = \"x\"", "é = 5", "a\u00a0= 5", "K = 5",
    "a > 5 OR TRUE", "TRUE OR a > 5", "a > 5 AND FALSE", "FALSE AND a > 5", "NULL AND a > 5", "NULL OR a > 5",
    "a OR b AND c = 'x'", "a = 1 OR a = 2 OR a = 3 AND b IS NULL", "+ + a = 5", "+ NOT a", "NOT -a", "NOT +a",
    "(", ")", "()", "(a", "a)", "((a = 5))", "(a) = (5)", "AND", "a AND", "a OR OR b", "a = ", "= 5",
)  # fmt: skip


class FilterCases:
    """A source of expressions and of message properties; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def properties(self) -> dict[str, str]:
        """The properties of one message; some of the names are missing."""
        return {name: self._one(VALUES) for name in NAMES if self._random.random() < 0.8}

    def expression(self) -> str:
        """Make an expression: mostly well-formed, sometimes with one mistake, sometimes a jumble."""
        kind = self._random.random()
        if kind < 0.65:
            return self._any(3)
        if kind < 0.85:
            return self._with_mistake(self._any(2))
        return self._jumble()

    def _one(self, choices: Sequence[str]) -> str:
        return self._random.choice(choices)

    def _word(self, word: str) -> str:
        return self._one((word, word.lower(), word.title()))

    def _gap(self) -> str:
        return self._random.choices(
            (" ", "  ", "\t", "\r\n", "/* - */", "-- x\n", ""), (80, 3, 3, 3, 3, 3, 5)
        )[0]

    def _spaced(self, *parts: str) -> str:
        return "".join(part + self._gap() for part in parts)

    def _any(self, depth: int) -> str:
        if depth == 0 or self._random.random() < 0.15:
            return self._leaf()
        made = self._random.choices(
            (self._logic, self._comparison, self._search, self._unary, self._parenthesised),
            (35, 35, 15, 8, 7),
        )[0]  # fmt: skip
        return made(depth - 1)

    def _leaf(self) -> str:
        pools = (NAMES, NUMBERS[:16], NUMBERS, TEXTS, CONSTANTS)
        return self._one(self._random.choices(pools, (60, 15, 5, 12, 8))[0])

    def _operand(self, depth: int) -> str:
        if self._random.random() < 0.85:
            return self._leaf()
        return self._parenthesised(depth) if self._random.random() < 0.5 else self._unary(depth)

    def _logic(self, depth: int) -> str:
        count = self._random.choice((2, 2, 2, 3, 5))
        joined = self._condition(depth)
        for _ in range(count - 1):
            joined = (
                self._spaced(joined, self._word(self._one(("AND", "OR"))))
                + " "
                + self._condition(depth)
            )
        return joined

    def _condition(self, depth: int) -> str:
        made: Callable[[int], str] = self._random.choices(
            (self._comparison, self._search, self._parenthesised, self._any), (50, 25, 20, 5)
        )[0]
        return made(max(0, depth - 1))

    def _comparison(self, depth: int) -> str:
        left, right = self._operand(depth), self._operand(depth)
        kind = self._random.random()
        if kind < 0.6:
            return self._spaced(left, self._one(("=", "<>", ">", ">=", "<", "<="))) + right
        if kind < 0.75:
            return (
                self._spaced(left, self._word("IS"))
                + " "
                + self._one(("NULL", "NOT NULL", "not null"))
            )
        words = self._one(("BETWEEN", "NOT BETWEEN", "between"))
        low, high = self._operand(depth), self._operand(depth)
        return f"{left} {words} {low} {self._word('AND')} {high}"

    def _search(self, depth: int) -> str:
        negated = self._one(("", "NOT ", "not "))
        if self._random.random() < 0.5:
            texts = ",".join(self._one(TEXTS) for _ in range(self._random.choice((1, 2, 3, 6))))
            return f"{self._operand(depth)} {negated}{self._word('IN')} ({texts})"
        word = self._word(self._one(("CONTAINS", "STARTSWITH", "ENDSWITH")))
        return f"{self._operand(depth)} {negated}{word} {self._one(TEXTS)}"

    def _unary(self, depth: int) -> str:
        return self._one(("-", "+", "NOT ", "- ", "not ")) + self._operand(depth)

    def _parenthesised(self, depth: int) -> str:
        return f"({self._any(depth)})"

    def _with_mistake(self, expression: str) -> str:
        at = self._random.randrange(len(expression) + 1)
        length = self._random.choice((0, 0, 1, 1, 2, 5))
        put = self._one(
            (
                "",
                "",
                "'",
                "(",
                ")",
                " ",
                "-",
                "!",
                ".",
                "NOT ",
                "=",
                ",",
                "5",
                "--",
                "/*",
                "x",
                "\n",
            )
        )
        return expression[:at] + put + expression[at + length :]

    def _jumble(self) -> str:
        words = (
            "AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "CONTAINS", "STARTSWITH", "ENDSWITH",
            "=", "<>", ">", ">=", "<", "<=", "(", ")", ",", "+", "-", "a", "b", "5", "5.5", "'a'", "/*", "*/",
        )  # fmt: skip
        return "".join(
            self._one(words) + self._one((" ", " ", ""))
            for _ in range(self._random.randrange(1, 9))
        )
