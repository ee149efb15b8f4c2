"""Routes: queues to write to, queues to read, in Java's order."""

from __future__ import annotations

import pytest

from orbitmq.client.core.topic_routes import (
    MissingQueues,
    missing_queues,
    publish_route,
    queue_order,
    reading_queues,
    template_route,
)
from orbitmq.errors import ProtocolError
from orbitmq.model.queues import MessageQueue
from orbitmq.model.routes import BrokerGroup, MissingBroker, QueueRoute, TopicRoute


def part(name: str, *, read: int = 2, write: int = 2, permission: int = 6) -> QueueRoute:
    return QueueRoute(broker_name=name, permission=permission, read_queues=read, write_queues=write)


def group(name: str, *ids: int) -> BrokerGroup:
    addresses = {broker_id: f"{name}:{broker_id + 1}" for broker_id in ids or (0,)}
    return BrokerGroup(addresses=addresses, name=name, cluster="c")


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]


def test_a_producer_gets_writable_queues_of_brokers_that_have_a_master() -> None:
    route = TopicRoute(
        brokers=[group("c"), group("a"), group("b", 1)],
        queues=[part("c"), part("b"), part("a", write=1), part("unknown")],
    )

    found = publish_route("T", route)

    assert names(found.queues) == ["a:0", "c:0", "c:1"]
    assert (found.is_ordered, found.is_template) == (False, False)


def test_a_read_only_broker_gets_no_messages() -> None:
    route = TopicRoute(brokers=[group("a")], queues=[part("a", permission=4)])

    assert publish_route("T", route).queues == ()
    assert names(reading_queues("T", route)) == ["a:0", "a:1"]


def test_an_order_config_overrides_the_queues_of_the_route() -> None:
    route = TopicRoute(brokers=[group("a")], queues=[part("a")], order_config="b:1;a:2;")

    found = publish_route("T", route)

    assert names(found.queues) == ["b:0", "a:0", "a:1"]
    assert found.is_ordered


@pytest.mark.parametrize("text", ["a", "a:x", "a:-1", "a:"])
def test_an_invalid_order_config_is_an_error(text: str) -> None:
    route = TopicRoute(brokers=[group("a")], queues=[part("a")], order_config=text)

    with pytest.raises(ProtocolError, match="order config of topic 'T'"):
        publish_route("T", route)


def test_a_missing_topic_gets_as_many_queues_as_its_template_allows() -> None:
    template = TopicRoute(
        brokers=[group("a"), group("b")], queues=[part("a", read=8), part("b", read=1)]
    )

    found = template_route("T", template, queues_max=2)

    assert names(found.queues) == ["a:0", "a:1", "b:0"]
    assert found.is_template


def test_a_consumer_gets_readable_queues_in_the_order_of_all_clients() -> None:
    route = TopicRoute(
        brokers=[],
        queues=[part("b", read=11), part("a"), part("no", permission=2)],
    )

    found = names(reading_queues("T", route))

    assert found == ["a:0", "a:1", *(f"b:{number}" for number in range(11))]


def test_queues_are_ordered_as_java_orders_texts() -> None:
    # Java compares UTF-16 units: a letter beyond U+FFFF comes before U+FFFF.
    late, early = (
        MessageQueue(topic="T", broker_name=name, queue_id=0) for name in ("\uffff", "\U00010000")
    )

    assert sorted([late, early], key=queue_order) == [early, late]


def missing(name: str, *, topics_known: bool = True) -> MissingBroker:
    return MissingBroker(
        name=name, cluster="c", addresses={0: "x:1"}, since_ms=60_000, topics_known=topics_known
    )


def brief(found: list[MissingQueues]) -> list[tuple[str, int, int | None]]:
    return [(one.broker_name, len(one.queues), one.since_ms) for one in found]


def test_missing_queues_are_those_that_the_name_server_remembers() -> None:
    route = TopicRoute(
        brokers=[group("a")],
        queues=[part("a")],
        missing_brokers=[missing("b"), missing("c"), missing("d", topics_known=False)],
        missing_queues=[part("b"), part("c", permission=2)],
    )

    found = missing_queues("T", [route])

    assert brief(found) == [("b", 2, 60_000), ("d", 0, 60_000)]
    assert list(map(str, found)) == [
        "b is missing since 1970-01-01 00:01:00 UTC (queues 0, 1 of topic 'T')",
        "d is missing since 1970-01-01 00:01:00 UTC (its topics are not known)",
    ]


def test_name_servers_without_a_memory_tell_of_brokers_that_another_lists() -> None:
    chosen = TopicRoute(brokers=[group("a")], queues=[part("a")])
    other = TopicRoute(brokers=[group("a"), group("b")], queues=[part("a"), part("b", read=1)])

    assert brief(missing_queues("T", [chosen, other])) == [("b", 1, None)]
    assert missing_queues("T", [other, chosen]) == []


def test_brokers_of_an_order_config_are_expected() -> None:
    route = TopicRoute(brokers=[group("a")], queues=[part("a")], order_config="b:9;a:2;")

    (found,) = missing_queues("T", [route])

    assert (
        str(found) == "b is not registered (queues 0, 1, 2, 3, 4, 5, 6, 7 and 1 more of topic 'T')"
    )
