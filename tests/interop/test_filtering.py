"""Filters held against the official ones: thousands of expressions, the same answer to each."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from orbitmq.errors import FilterEvaluationError, FilterSyntaxError
from orbitmq.filtering.sql import SqlFilter, compile_sql
from orbitmq.filtering.tags import parse_tags
from tests.interop.drivers import JavaDriver
from tests.interop.filter_cases import KNOWN, VALUES, FilterCases
from tests.interop.peers import REFERENCE_LINE, Peer

pytestmark = pytest.mark.interop

SEED = 20_240
EXPRESSIONS = 20_000
MESSAGES = 24
BATCH = 2_000
REFUSED = "refused"


@pytest.fixture(params=[Peer("broker", REFERENCE_LINE)], ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line whose SQL92 is ours; that of the 4.9 line lacks CONTAINS and its like."""
    value: Peer = request.param
    return value


def outcome(sql: SqlFilter, properties: dict[str, str]) -> str:
    """One letter: true, false, NULL, or an error in place of a value."""
    try:
        value = sql.evaluate(properties.get)
    except FilterEvaluationError:
        assert not sql.matches(properties.get)
        return "E"
    assert sql.matches(properties.get) is (value is True)
    return "N" if value is None else "FT"[value]


def outcomes(expression: str, messages: list[dict[str, str]]) -> str:
    """A letter per message, or that the expression is refused.

    What we refuse because of text behind the end is compared by what stands before that text:
    official RocketMQ never looks at the rest.
    """
    try:
        sql = compile_sql(expression)
    except FilterSyntaxError as refusal:
        if "expected AND, OR or the end" not in str(refusal):
            return REFUSED
        sql = compile_sql(expression[: refusal.column - 1])
    return "".join(outcome(sql, message) for message in messages)


def test_cases_of_a_seed_are_always_the_same() -> None:
    once, again = FilterCases(SEED), FilterCases(SEED)

    assert [once.expression() for _ in range(50)] == [again.expression() for _ in range(50)]


@pytest.mark.scenario("peer", "filters by SQL92 as we do")
def test_expressions_made_by_chance_mean_the_same_as_in_rocketmq(
    peer: Peer, drivers: Callable[[str], JavaDriver]
) -> None:
    cases = FilterCases(SEED)
    messages = [{}, *(cases.properties() for _ in range(MESSAGES - 1))]
    expressions = [*KNOWN, *(cases.expression() for _ in range(EXPRESSIONS))]
    driver = drivers(peer.line)

    theirs: list[str] = []
    for start in range(0, len(expressions), BATCH):
        batch = expressions[start : start + BATCH]
        theirs += driver.call("filter_sql", expressions=batch, properties=messages)["outcomes"]
    ours = [outcomes(expression, messages) for expression in expressions]

    differing = {
        expression: (our, their)
        for expression, our, their in zip(expressions, ours, theirs, strict=True)
        if our != their
    }
    assert differing == {}
    # Chance must not have made everything trivial.
    accepted = [their for their in theirs if their != REFUSED]
    assert len(expressions) * 0.4 < len(accepted) < len(expressions) * 0.9
    assert all(sum(map(letter.__eq__, "".join(accepted))) > 10_000 for letter in "TFNE")


@pytest.mark.scenario("peer", "reads property values as we do")
def test_every_odd_property_value_is_read_as_in_rocketmq(
    peer: Peer, drivers: Callable[[str], JavaDriver]
) -> None:
    literals = (
        "5",
        "0",
        "12",
        "2147483648",
        "-2147483648",
        "0.1",
        "8.0",
        "9007199254740993",
        "TRUE",
        "FALSE",
        "'5'",
    )
    comparisons = [
        f"{left} {operator} {right}"
        for operator in ("=", "<>", "<", "<=", ">", ">=")
        for literal in literals
        for left, right in (("a", literal), (literal, "a"))
    ]
    expressions = [*comparisons, "a < b", "a <= b", "a > b", "a >= b", "a = b", "NOT a <> b"]
    messages = [{"a": a, "b": b} for a, b in itertools.product(VALUES, VALUES[::3])]

    theirs = drivers(peer.line).call("filter_sql", expressions=expressions, properties=messages)

    for expression, their in zip(expressions, theirs["outcomes"], strict=True):
        our = outcomes(expression, messages)
        assert [
            (message, mine, yours)
            for message, mine, yours in zip(messages, our, their, strict=False)
            if mine != yours
        ] == [], expression
        assert len(our) == len(their), expression


@pytest.mark.scenario("peer", "reads tag expressions as we do")
def test_tag_expressions_give_the_same_tags_and_hashes_as_in_rocketmq(
    peer: Peer, drivers: Callable[[str], JavaDriver]
) -> None:
    pieces = ("||", "|", " ", "*", "TagA", "标签", "\t", "\u00a0")
    expressions = [
        "".join(chosen) for size in range(5) for chosen in itertools.product(pieces, repeat=size)
    ]

    theirs = drivers(peer.line).call("filter_tags", expressions=expressions)["parsed"]

    for expression, their in zip(expressions, theirs, strict=True):
        try:
            ours = parse_tags(expression)
        except FilterSyntaxError:
            assert their == {}, expression
            continue
        assert their, expression
        assert (ours.tags is None) == (their["expression"] == "*"), expression
        assert sorted(ours.tags or ()) == sorted(their["tags"]), expression
        assert sorted(ours.hashes) == sorted(their["codes"]), expression
