"""Subscriptions as clients send them."""

from __future__ import annotations

from orbitmq import java_json
from orbitmq.model.subscriptions import Subscription


def test_a_subscription_is_written_as_java_writes_it() -> None:
    text = (
        b'{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG",'
        b'"subString":"TagA","subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}'
    )

    subscription = java_json.decode(text, Subscription)

    assert subscription == Subscription(
        topic="T", expression="TagA", tags=["TagA"], tag_codes=[2598919], version=1700000000000
    )
    assert java_json.encode(subscription) == text


def test_codes_of_go_clients_are_strings() -> None:
    text = b'{"codeSet":["2598919"],"subString":"TagA","topic":"T","tagsSet":null}'

    assert java_json.decode(text, Subscription).tag_codes == [2598919]


def test_without_a_type_an_expression_names_tags() -> None:
    assert Subscription(topic="T", expression="a").is_by_tag
    assert Subscription(topic="T", expression="a", expression_type="").is_by_tag
    assert not Subscription(topic="T", expression="a = 1", expression_type="SQL92").is_by_tag
