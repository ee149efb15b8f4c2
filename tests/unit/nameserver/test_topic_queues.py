"""Which brokers have queues of a topic: as they report, and as admins change it."""

from __future__ import annotations

import pytest

from orbitmq.model.routes import QueueRoute
from orbitmq.nameserver.broker_registry import BrokerKey, BrokerRegistry
from tests.unit.nameserver.reports import register, report, topics


@pytest.fixture
def registry() -> BrokerRegistry:
    return BrokerRegistry()


def permissions(registry: BrokerRegistry, topic: str) -> list[int]:
    return [queue.permission for queue in registry.topics.queues[topic].values()]


def test_topics_missing_from_a_later_report_stay_unless_asked_otherwise(
    registry: BrokerRegistry,
) -> None:
    register(registry, report(topics("T", "U"), version=1))

    register(registry, report(topics("T", "V"), version=2))
    assert "U" in registry.topics.queues

    register(registry, report(topics("T", "V"), version=3), delete_missing_topics=True)
    assert "U" not in registry.topics.queues


def test_topics_of_the_first_slave_count_without_write_permission(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U"), broker_id=1, enable_acting_master=True))

    assert permissions(registry, "T") == [4]


def test_write_permission_is_wiped_and_added_again(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U", permission=7)))

    assert registry.wipe_write_permission("a") == 2
    assert permissions(registry, "T") == [5]

    assert registry.add_write_permission("a") == 2
    assert permissions(registry, "T") == [6]
    assert registry.wipe_write_permission("nobody") == 0


def test_wiped_permission_stays_until_the_broker_has_news(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U"), version=1))
    registry.wipe_write_permission("a")

    register(registry, report(topics("T", "U"), version=1))
    assert permissions(registry, "T") == [4]

    register(registry, report(topics("T", "U"), version=2))
    assert permissions(registry, "T") == [6]


def test_a_deleted_topic_comes_back_with_the_next_report_and_nothing_else_changes(
    registry: BrokerRegistry,
) -> None:
    register(registry, report(topics("T", "U"), version=1))
    registry.wipe_write_permission("a")
    registry.delete_topic("T")
    assert "T" not in registry.topics.queues

    register(registry, report(topics("T", "U"), version=1))

    assert permissions(registry, "T") == [6]
    assert permissions(registry, "U") == [4]


def test_a_topic_is_deleted_in_one_cluster_only(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U"), name="a", cluster="C"))
    register(registry, report(topics("T", "U"), name="b", cluster="D", address="10.0.0.2:10911"))

    registry.delete_topic("T", "C")

    assert list(registry.topics.queues["T"]) == ["b"]
    registry.delete_topic("T", "no such cluster")
    assert "T" in registry.topics.queues


def test_queues_are_added_for_known_brokers_only(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U")))
    queue = QueueRoute(broker_name="a", permission=6, read_queues=1, write_queues=1)
    stranger = QueueRoute(broker_name="z", permission=6, read_queues=1, write_queues=1)

    registry.add_queues("N", [queue])
    registry.add_queues("M", [queue, stranger])
    registry.add_queues("L", [])

    assert "N" in registry.topics.queues
    assert "M" not in registry.topics.queues
    assert "L" not in registry.topics.queues


def test_a_broker_that_leaves_takes_its_queues_and_mappings_along(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U"), queue_mappings={"T": {}, "only mapped": {}}))
    register(registry, report(topics("T", "V"), name="b", address="10.0.0.2:10911"))

    registry.unregister(BrokerKey("C", "10.0.0.1:10911"), "a")

    assert {topic: list(owners) for topic, owners in registry.topics.queues.items()} == {
        "T": ["b"],
        "V": ["b"],
    }
    assert registry.topics.mappings == {}
