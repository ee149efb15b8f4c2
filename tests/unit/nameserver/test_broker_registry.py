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


def test_a_broker_whose_report_is_refused_leaves_no_address_behind(
    registry: BrokerRegistry,
) -> None:
    register(registry, report({}, broker_id=1, address="10.0.0.9:10911"))
    register(registry, report(topics("T", "U"), state=5))

    with pytest.raises(RegistrationRefusedError):
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


def test_a_slave_of_an_older_state_does_not_replace_a_live_one_with_its_id(
    registry: BrokerRegistry,
) -> None:
    register(registry, report({}, broker_id=1, state=2))

    register(registry, report({}, broker_id=1, address="10.0.0.9:10911", state=1))

    assert registry.groups["a"].addresses == {1: "10.0.0.1:10911"}
    assert registry.version_of(BrokerKey("C", "10.0.0.9:10911")) is None


def test_a_master_of_a_smaller_epoch_is_told_both_epochs_the_present_master_and_what_to_do(
    registry: BrokerRegistry,
) -> None:
    register(registry, report(topics("T", "U"), address="10.0.0.2:10911", state=7))

    with pytest.raises(RegistrationRefusedError) as refused:
        register(registry, report(topics("T", "V"), state=3))

    for words in (
        "has epoch 3",
        "is at epoch 7",
        "its master is 10.0.0.2:10911",
        "start this broker as a slave",
        "orbitmq namesrv forget-epoch a",
    ):
        assert words in str(refused.value)
    assert registry.groups["a"].addresses == {0: "10.0.0.2:10911"}
    assert "V" not in registry.topics.queues


def test_a_master_of_a_smaller_epoch_is_refused_though_no_other_is_alive() -> None:
    registry = BrokerRegistry(epoch_of=lambda cluster, name: 7 * ((cluster, name) == ("C", "a")))

    with pytest.raises(RegistrationRefusedError, match="it has no master"):
        register(registry, report(topics("T", "U"), state=6))
    register(registry, report({}, broker_id=1, address="10.0.0.2:10911", state=0))
    register(registry, report(topics("V", "W"), name="b", address="10.0.0.3:10911"))

    assert registry.groups["a"].addresses == {1: "10.0.0.2:10911"}
    assert sorted(registry.topics.queues) == ["V", "W"]
    assert registry.version_of(BrokerKey("C", "10.0.0.1:10911")) is None


def test_a_master_that_reports_a_smaller_epoch_than_before_is_missing() -> None:
    largest = 0
    registry = BrokerRegistry(epoch_of=lambda _cluster, _name: largest)
    register(registry, report(topics("T", "U"), state=0))
    largest = 1

    with pytest.raises(RegistrationRefusedError):
        register(registry, report(topics("T", "U"), state=0))

    assert registry.groups == {}
    assert [one.name for one in registry.missing.all()] == ["a"]


def test_a_promoted_slave_takes_the_place_of_a_live_master_which_must_register_again(
    registry: BrokerRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    register(registry, report(topics("T", "U")))
    register(registry, report({}, broker_id=1, address="10.0.0.2:10911"))

    register(registry, report(topics("T", "U"), address="10.0.0.2:10911", state=1, version=2))

    assert registry.groups["a"].addresses == {0: "10.0.0.2:10911"}
    assert registry.version_of(BrokerKey("C", "10.0.0.1:10911")) is None
    assert sorted(registry.topics.queues) == ["T", "U"]
    assert "replaced=10.0.0.1:10911" in caplog.text


def test_of_two_masters_with_the_same_epoch_the_last_one_counts_and_the_log_says_so(
    registry: BrokerRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    first = report(topics("T", "U"), state=2)
    second = report(topics("T", "U"), state=2, address="10.0.0.2:10911")

    for given in (first, second, first):
        register(registry, given)
        assert registry.groups["a"].addresses == {0: given.key.address}

    # Once, though they go on.
    assert caplog.text.count("broker replaces another one that is alive") == 1
    assert registry.version_of(second.key) is not None


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
