"""What the members of a group must agree on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.groups.consistency import (
    Subscribed,
    find_norm,
    normalise,
)
from orbitmq.model.subscriptions import SQL92, Subscription
from tests.unit.broker.groups.clients import subscription


def subscribed(*subscriptions: Subscription) -> Subscribed:
    return normalise("g", subscriptions)


@pytest.mark.parametrize(
    ("one", "other"), [("a || b", "b||a"), ("a", " a "), ("a||a", "a"), ("*", ""), ("a||", "a")]
)
def test_order_spaces_and_repeats_of_tags_are_ignored(one: str, other: str) -> None:
    assert subscribed(subscription("T", one)).filters == (
        subscribed(subscription("T", other)).filters
    )


def test_an_invalid_expression_differs_from_others() -> None:
    unreadable = subscribed(subscription("T", "||"))

    assert unreadable.filters == {("T", "TAG", "||")}


def test_versions_and_the_retry_topic_are_ignored() -> None:
    one = subscribed(subscription("T", "a", 1))
    other = subscribed(subscription("T", "a", 2), subscription("%RETRY%g", "*", 3))

    assert one.filters == other.filters
    assert subscribed(subscription("%RETRY%h")).filters


def test_topic_type_and_expression_are_compared() -> None:
    filters = {
        subscribed(each).filters
        for each in (
            subscription("T", "a"),
            subscription("U", "a"),
            subscription("T", "b"),
            Subscription(topic="T", expression="a", expression_type=SQL92),
        )
    }

    assert len(filters) == 4
    assert (
        subscribed(Subscription(topic="T", expression="a", expression_type="")).filters
        == subscribed(subscription("T", "a")).filters
    )


def test_a_filter_class_is_no_tag_of_the_same_name() -> None:
    by_class = Subscription(topic="T", class_filter=True, expression="paid", version=1)

    assert subscribed(by_class).filters == {("T", "CLASS", "paid")}
    assert subscribed(by_class).filters != subscribed(subscription("T", "paid")).filters


def test_a_member_is_as_old_as_its_newest_subscription() -> None:
    changed_later = subscribed(subscription("T", "a", 1), subscription("U", "b", 9))
    unchanged = subscribed(subscription("T", "a", 5))

    assert find_norm([changed_later, unchanged]) is unchanged


def test_a_member_without_subscriptions_is_not_the_norm() -> None:
    nothing = subscribed()
    something = subscribed(subscription("T", "a", 9))

    assert find_norm([nothing, something]) is something
    assert find_norm([nothing]) is nothing
    assert find_norm([]) is None


@given(
    st.lists(
        st.tuples(st.sampled_from("TU"), st.sampled_from("abc"), st.integers(0, 2)),
        min_size=1,
        max_size=4,
    )
)
def test_every_broker_finds_the_same_norm(members: list[tuple[str, str, int]]) -> None:
    all_subscribed = [subscribed(subscription(*member)) for member in members]

    norms = {find_norm(order) for order in itertools.permutations(all_subscribed)}

    assert len(norms) == 1


def test_subscriptions_are_shown_as_shortened_text() -> None:
    assert str(subscribed(subscription("U", "b"), subscription("T", "a||b"))) == (
        "T by TAG a || b; U by TAG b"
    )
    many = subscribed(*(subscription(f"topic{number}") for number in range(100)))
    assert len(str(many)) == 401
