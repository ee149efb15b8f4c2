"""What the name server keeps of its brokers' reports."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.errors import RegistrationRefusedError
from orbitmq.model.topics import TopicConfig
from orbitmq.nameserver.broker_registry import (
    BrokerKey,
    BrokerRegistry,
    MasterAddresses,
    Report,
)
from tests.unit.nameserver.reports import LINE, Line, register, report, topics


@pytest.fixture
def registry() -> BrokerRegistry:
    return BrokerRegistry()


def test_topics_of_a_slave_do_not_count(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U"), broker_id=1))

    assert "T" not in registry.topics.queues


def test_a_slave_learns_where_its_master_is(registry: BrokerRegistry) -> None:
    assert register(registry, report(topics("T", "U"))) == MasterAddresses()

    master = register(registry, report({}, broker_id=1, address="10.0.0.2:10911"))

    assert master == MasterAddresses(address="10.0.0.1:10911", ha_address="10.0.0.1:10911-ha")


def test_topics_of_an_unchanged_version_are_not_read_again(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U"), version=7))
    register(registry, report(topics("T", "U"), version=7))

    def never() -> dict[str, TopicConfig]:
        raise AssertionError("read again")

    again = report({}, version=7)
    register(
        registry,
        Report(
            key=again.key,
            broker_name="a",
            broker_id=0,
            ha_address=None,
            data_version=again.data_version,
            read_topics=never,
            connection=LINE,
        ),
    )

    assert "T" in registry.topics.queues


def test_a_topic_missed_while_it_was_reported_alone_is_taken_from_the_next_full_report(
    registry: BrokerRegistry,
) -> None:
    register(registry, report(topics("T", "U"), version=1))
    # The broker created A and reported it elsewhere, then created B and reported it here.
    register(registry, report(topics("B"), version=3))

    register(registry, report(topics("T", "U", "A", "B"), version=3))

    assert "A" in registry.topics.queues


def test_a_process_under_another_name_leaves_nothing_of_its_old_one(
    registry: BrokerRegistry,
) -> None:
    register(registry, report(topics("T", "U"), name="old"))

    register(registry, report(topics("T", "U"), name="new"))

    assert sorted(registry.groups) == ["new"]
    registry.unregister(BrokerKey("C", "10.0.0.1:10911"), "new")
    assert registry.clusters == {}
    assert registry.topics.queues == {}


def test_a_broker_whose_report_is_ignored_leaves_no_address_behind(
    registry: BrokerRegistry,
) -> None:
    register(registry, report({}, broker_id=1, address="10.0.0.9:10911"))
    register(registry, report(topics("T", "U"), state=5))

    register(registry, report(topics("T", "U"), address="10.0.0.9:10911", state=1))

    assert registry.groups["a"].addresses == {0: "10.0.0.1:10911"}


def test_a_name_leaves_the_clusters_it_no_longer_reports_in(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U"), cluster="C"))
    register(registry, report({}, broker_id=7, cluster="D", address="10.0.0.2:10911"))
    assert sorted(registry.clusters) == ["C", "D"]

    registry.unregister(BrokerKey("D", "10.0.0.2:10911"), "a")

    assert registry.clusters == {"C": {"a"}}


def test_a_broker_is_unregistered_by_its_address_whatever_name_it_says(
    registry: BrokerRegistry,
) -> None:
    register(registry, report(topics("T", "U")))

    registry.unregister(BrokerKey("C", "10.0.0.1:10911"), "another name")

    assert registry.groups == {}
    assert registry.topics.queues == {}


def test_names_are_bounded(registry: BrokerRegistry) -> None:
    for given in (
        report(topics("T", "U" * 256)),
        report(topics("T", "U"), name="n" * 256),
        report(topics("T", "U"), cluster="c" * 256),
        report(topics("T", "U"), address="a" * 256),
    ):
        with pytest.raises(RegistrationRefusedError, match="256 characters"):
            register(registry, given)

    assert registry.groups == {}


def test_a_first_report_of_a_single_topic_is_refused(registry: BrokerRegistry) -> None:
    with pytest.raises(RegistrationRefusedError, match="single topic before its first full report"):
        register(registry, report(topics("T")))

    assert registry.groups == {}


def test_an_address_that_takes_another_id_gives_its_old_one_up(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U"), broker_id=1, enable_acting_master=False))

    register(registry, report(topics("T", "U"), broker_id=0, version=2))

    assert registry.groups["a"].addresses == {0: "10.0.0.1:10911"}


def test_a_report_of_an_older_state_does_not_replace_the_one_of_another_broker(
    registry: BrokerRegistry,
) -> None:
    register(registry, report(topics("T", "U"), state=2))

    register(registry, report(topics("T", "U"), address="10.0.0.9:10911", state=1))

    assert registry.groups["a"].addresses == {0: "10.0.0.1:10911"}
    assert registry.version_of(BrokerKey("C", "10.0.0.9:10911")) is None


def test_a_broker_that_leaves_takes_its_topics_and_cluster_along(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U")))

    registry.unregister(BrokerKey("C", "10.0.0.1:10911"), "a")

    assert "T" not in registry.topics.queues
    assert registry.topics.queues == {}
    assert registry.clusters == {}


def test_silent_brokers_are_those_past_their_own_limit(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U"), name="a"), now_ms=0)
    register(
        registry,
        report({}, name="b", address="10.0.0.2:10911", silence_ms_max=10_000),
        now_ms=0,
    )

    assert registry.silent_brokers(now_ms=10_000) == []
    assert [live.broker_name for live in registry.silent_brokers(now_ms=10_001)] == ["b"]

    registry.touch(BrokerKey("C", "10.0.0.2:10911"), now_ms=119_000)
    registry.touch(BrokerKey("C", "nobody"), now_ms=119_000)
    assert [live.broker_name for live in registry.silent_brokers(now_ms=120_001)] == ["a"]


def test_a_broker_belongs_to_the_connection_it_reported_on_last(registry: BrokerRegistry) -> None:
    old, new = Line(), Line()
    register(registry, report(topics("T", "U"), connection=old))
    register(registry, report(topics("T", "U"), connection=new))

    assert registry.brokers_on(old) == []
    assert [live.broker_name for live in registry.brokers_on(new)] == ["a"]


def test_brokers_and_topics_are_bounded() -> None:
    registry = BrokerRegistry(brokers_max=1, topics_max=3)
    register(registry, report(topics("T", "U")))

    with pytest.raises(RegistrationRefusedError, match="raise brokersMax"):
        register(registry, report(topics("V", "W"), name="b", address="10.0.0.2:10911"))
    with pytest.raises(RegistrationRefusedError, match="raise topicsMax"):
        register(registry, report(topics("V", "W"), version=2))

    assert sorted(registry.topics.queues) == ["T", "U"]


def test_routes_of_all_brokers_are_bounded_and_counted() -> None:
    registry = BrokerRegistry(routes_max=5)
    other: dict[str, Any] = {"name": "b", "address": "10.0.0.2:10911"}
    register(registry, report(topics("T", "U", "V")))

    with pytest.raises(RegistrationRefusedError, match="raise routesMax"):
        register(registry, report(topics("T", "U", "V"), **other))
    register(registry, report(topics("T", "U"), **other))
    with pytest.raises(RegistrationRefusedError, match="raise routesMax"):
        registry.add_queues("new", [registry.topics.queues["T"]["b"]])
    counted = registry.topics.route_count
    registry.unregister(BrokerKey("C", "10.0.0.2:10911"), "b")

    assert (counted, registry.topics.route_count) == (5, 3)
    assert "new" not in registry.topics.queues


def test_mappings_of_static_topics_count_as_routes() -> None:
    registry = BrokerRegistry(routes_max=10)
    small = {"T": {"bname": "a", "currIdMap": {0: 0, 1: 1}}}
    register(registry, report(topics("T", "U"), queue_mappings=small))
    register(registry, report(topics("T", "U"), queue_mappings=small, version=2))

    with pytest.raises(RegistrationRefusedError, match="raise routesMax"):
        register(
            registry,
            report(
                topics("T", "U"),
                queue_mappings={"T": {"bname": "a", "currIdMap": dict.fromkeys(range(9), 0)}},
                version=3,
            ),
        )
    counted = registry.topics.route_count
    registry.delete_topic("T")

    assert (counted, registry.topics.route_count) == (5, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"ha_address": "h" * 256},
        {"zone": "z" * 256},
        {"filter_servers": ["f" * 256]},
        {"filter_servers": ["f"] * 101},
        {"queue_mappings": {"T": {"bname": "a", "scope": "s" * 256}}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_else_a_broker_reports_is_bounded(
    registry: BrokerRegistry, fields: dict[str, Any]
) -> None:
    with pytest.raises(RegistrationRefusedError, match="the limit is"):
        register(registry, report(topics("T", "U"), **fields))

    assert registry.groups == {}
