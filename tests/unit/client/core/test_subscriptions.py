"""Subscriptions: expressions, versions, and the exact check of tags."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.client.core.subscriptions import (
    SqlExpression,
    Subscriptions,
    by_sql,
    subscription_of,
    tag_check,
)
from orbitmq.clock import ManualClock
from orbitmq.errors import FilterSyntaxError, NameRuleError, StateError
from orbitmq.model.subscriptions import SQL92, TAG


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def subscriptions(clock: ManualClock) -> Subscriptions:
    return Subscriptions(clock)


def test_tags_travel_with_their_hashes() -> None:
    made = subscription_of("orders", "TagA || TagB", version_ms=5)

    assert java_json.encode(made) == (
        b'{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG",'
        b'"subString":"TagA || TagB","subVersion":5,"tagsSet":["TagA","TagB"],"topic":"orders"}'
    )


@pytest.mark.parametrize("expression", ["*", ""])
def test_everything_is_a_star_without_tags(expression: str) -> None:
    made = subscription_of("orders", expression, version_ms=5)

    assert (made.expression, made.expression_type, made.tags, made.tag_codes) == ("*", TAG, [], [])


def test_a_condition_travels_as_it_is() -> None:
    made = subscription_of("orders", by_sql("a > 3"), version_ms=5)

    assert (made.expression, made.expression_type, made.tags) == ("a > 3", SQL92, [])


@pytest.mark.parametrize("expression", ["   ", "||", " || "])
def test_tags_that_match_nothing_are_refused(expression: str) -> None:
    with pytest.raises(FilterSyntaxError, match="as in TagA"):
        subscription_of("orders", expression, version_ms=5)


@pytest.mark.parametrize(
    ("expression", "column"),
    [("paid |", 6), ("| paid", 1), ("paid | sent", 6), ("sent || paid|", 13), ("a ||| b", 5)],
)
def test_a_single_bar_between_tags_is_refused(expression: str, column: int) -> None:
    with pytest.raises(
        FilterSyntaxError, match=rf"column {column}: a single .* write \|\| between"
    ):
        subscription_of("orders", expression, version_ms=1)


@pytest.mark.parametrize("expression", ["paid ||", "|| paid", "paid || || paid"])
def test_empty_parts_of_an_expression_are_ignored_as_in_rocketmq(expression: str) -> None:
    assert subscription_of("orders", expression, version_ms=1).tags == ["paid"]


def test_a_bar_within_a_tag_belongs_to_it() -> None:
    assert subscription_of("orders", "a|b || c", version_ms=1).tags == ["a|b", "c"]


def test_an_expression_of_another_type_is_refused() -> None:
    with pytest.raises(FilterSyntaxError, match="expected a str"):
        subscription_of("orders", ["paid"], version_ms=1)  # type: ignore[arg-type]  # the test


def test_an_empty_condition_is_refused() -> None:
    with pytest.raises(FilterSyntaxError, match="expected a condition"):
        by_sql(" ")


def test_two_tags_with_the_same_hash_are_distinguished() -> None:
    wanted = tag_check(subscription_of("orders", "Aa || C", version_ms=5))

    # "Aa" and "BB" have the same hash in Java.
    assert wanted("Aa")
    assert wanted("C")
    assert not wanted("BB")
    assert not wanted("")


@pytest.mark.parametrize("expression", ["*", SqlExpression("a > 3")])
def test_tags_are_not_checked_without_tags_in_the_expression(
    expression: str | SqlExpression,
) -> None:
    wanted = tag_check(subscription_of("orders", expression, version_ms=5))

    assert wanted("")
    assert wanted("any")


def test_a_table_holds_one_subscription_for_each_topic(subscriptions: Subscriptions) -> None:
    subscriptions.add("orders", "TagA")
    subscriptions.add("returns")
    subscriptions.add("orders", "TagB")

    assert list(subscriptions.topics()) == ["orders", "returns"]
    assert [(one.topic, one.expression) for one in subscriptions.all()] == [
        ("orders", "TagB"),
        ("returns", "*"),
    ]
    assert subscriptions.wants("orders", "TagB")
    assert not subscriptions.wants("orders", "TagA")


def test_an_unsubscribed_topic_matches_nothing(subscriptions: Subscriptions) -> None:
    subscriptions.add("orders")

    subscriptions.remove("orders")
    subscriptions.remove("orders")

    assert "orders" not in subscriptions
    assert not subscriptions.wants("orders", "")
    with pytest.raises(
        StateError, match=r"topic 'orders' is not subscribed to \(subscribed: nothing"
    ):
        subscriptions.of("orders")


def test_versions_rise_even_if_the_clock_stops_or_is_set_back(
    subscriptions: Subscriptions, clock: ManualClock
) -> None:
    first = subscriptions.add("orders").version
    second = subscriptions.add("orders").version
    clock.adjust(-10_000)
    third = subscriptions.add("orders", "TagA").version

    assert first == clock.now_ms() + 10_000
    assert first < second < third


def test_a_topic_with_an_invalid_name_is_refused(subscriptions: Subscriptions) -> None:
    with pytest.raises(NameRuleError, match="contains"):
        subscriptions.add("or ders")
