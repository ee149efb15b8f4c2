"""Brokers that left without a word are remembered; those that unregistered are not."""

from __future__ import annotations

import logging

import pytest

from orbitmq.clock import ManualClock
from orbitmq.nameserver.broker_registry import BrokerKey, BrokerRegistry
from orbitmq.nameserver.missing_brokers import MissingBrokers
from orbitmq.nameserver.route_view import RouteView
from tests.unit.nameserver.reports import Line, register, report, topics

A, B = "10.0.0.1:10911", "10.0.0.2:10911"
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry(clock: ManualClock) -> BrokerRegistry:
    return BrokerRegistry(missing=MissingBrokers(clock=clock))


@pytest.fixture
def routes(registry: BrokerRegistry) -> RouteView:
    return RouteView(registry)


def lose(registry: BrokerRegistry, line: Line) -> None:
    for live in registry.brokers_on(line):
        registry.lose(live)


def joined(
    registry: BrokerRegistry, name: str, address: str, *names: str, broker_id: int = 0
) -> Line:
    line = Line()
    table = topics(*names)
    given = report(table, name=name, address=address, broker_id=broker_id, connection=line)
    register(registry, given)
    return line


def missing(routes: RouteView, topic: str) -> tuple[list[str], list[tuple[str, int]]]:
    route = routes.route(topic, with_missing=True)
    assert route is not None
    assert route.missing_brokers is not None
    assert route.missing_queues is not None
    return (
        [one.name for one in route.missing_brokers],
        [(one.broker_name, one.read_queues) for one in route.missing_queues],
    )


def test_a_lost_broker_is_missing_from_the_routes_of_its_topics_only(
    registry: BrokerRegistry, routes: RouteView, clock: ManualClock
) -> None:
    joined(registry, "a", A, "T", "U")
    lose(registry, joined(registry, "b", B, "T", "V"))

    assert missing(routes, "T") == (["b"], [("b", 4)])
    assert missing(routes, "U") == ([], [])
    assert missing(routes, "V") == (["b"], [("b", 4)])
    assert routes.missing_topics() == ["V"]
    (shown,) = routes.cluster_view(with_missing=True).missing_brokers or []
    assert (shown.name, shown.addresses, shown.since_ms) == ("b", {0: B}, clock.now_ms())


def test_whoever_does_not_ask_sees_routes_as_rocketmq_shows_them(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    joined(registry, "a", A, "T", "U")
    lose(registry, joined(registry, "b", B, "T", "V"))

    route = routes.route("T")

    assert route is not None
    assert (route.missing_brokers, route.missing_queues) == (None, None)
    assert routes.route("V") is None
    assert b"missing" not in routes.cluster_view_body() + routes.topics_body()


def test_a_broker_that_unregisters_is_forgotten(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    joined(registry, "a", A, "T", "U")
    joined(registry, "b", B, "T", "U")

    registry.unregister(BrokerKey("C", B), "b")

    assert missing(routes, "T") == ([], [])


def test_unregistering_forgets_a_broker_that_is_missing_already(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    lose(registry, joined(registry, "b", B, "T", "U"))
    assert missing(routes, "T") == (["b"], [("b", 4)])

    registry.unregister(BrokerKey("C", B), "b")

    assert routes.route("T", with_missing=True) is None


def test_a_broker_that_is_back_at_another_address_is_not_missing(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    lose(registry, joined(registry, "b", B, "T", "U"))
    assert routes.cluster_view_body(with_missing=True)

    joined(registry, "b", "10.0.0.9:10911", "T", "U")

    assert missing(routes, "T") == ([], [])
    assert b'"missingBrokerDatas":[]' in routes.cluster_view_body(with_missing=True)


def test_queues_that_a_slave_serves_are_not_missing_but_their_master_is(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    master = joined(registry, "a", A, "T", "U")
    slave = joined(registry, "a", B, broker_id=1)

    lose(registry, master)
    assert missing(routes, "T") == ([], [])
    (shown,) = registry.missing.all()
    assert (shown.addresses, shown.is_served) == ({0: A}, True)

    lose(registry, slave)
    assert missing(routes, "T") == (["a"], [("a", 4)])


def test_each_broker_of_a_group_is_missing_since_it_left(
    registry: BrokerRegistry, clock: ManualClock
) -> None:
    begun_ms = clock.now_ms()
    master = joined(registry, "broker-a", A, "orders", "bills")
    slave = joined(registry, "broker-a", B, broker_id=1)
    lose(registry, slave)
    clock.adjust(HOUR_MS)
    lose(registry, master)

    (missing,) = registry.missing.all()

    assert missing.since_ms == missing.missing_since_ms(1) == begun_ms
    assert missing.missing_since_ms(0) == begun_ms + HOUR_MS


def test_queues_stay_missing_while_only_the_slave_is_back(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    lines = [joined(registry, "a", A, "T", "U"), joined(registry, "a", B, broker_id=1)]
    for line in lines:
        lose(registry, line)

    joined(registry, "a", B, broker_id=1)
    assert missing(routes, "T") == (["a"], [("a", 4)])

    joined(registry, "a", A, "T", "U")
    assert missing(routes, "T") == ([], [])


def test_a_wall_clock_that_is_set_forgets_nobody(
    registry: BrokerRegistry, routes: RouteView, clock: ManualClock
) -> None:
    lose(registry, joined(registry, "b", B, "T", "U"))

    clock.adjust(100 * HOUR_MS)
    registry.forget_expired()

    assert missing(routes, "T") == (["b"], [("b", 4)])


async def test_a_broker_missing_for_three_days_is_forgotten(
    registry: BrokerRegistry, routes: RouteView, clock: ManualClock
) -> None:
    lose(registry, joined(registry, "b", B, "T", "U"))

    await clock.advance(72 * HOUR_MS)
    registry.forget_expired()
    assert missing(routes, "T") == (["b"], [("b", 4)])
    await clock.advance(1)
    registry.forget_expired()

    assert routes.route("T", with_missing=True) is None


def test_a_deleted_topic_is_not_missing(registry: BrokerRegistry, routes: RouteView) -> None:
    joined(registry, "a", A, "T", "U")
    lose(registry, joined(registry, "b", B, "T", "U"))

    registry.delete_topic("T", "D")
    assert missing(routes, "T") == (["b"], [("b", 4)])
    registry.delete_topic("T", "C")

    assert routes.route("T", with_missing=True) is None
    assert missing(routes, "U") == (["b"], [("b", 4)])


def test_the_broker_missing_longest_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    registry = BrokerRegistry(missing=MissingBrokers(brokers_max=2))
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            lose(registry, joined(registry, f"b{number}", f"10.0.1.{number}:1", "T", "U"))

    assert [one.name for one in registry.missing.all()] == ["b1", "b2"]
    assert "missing broker forgotten name=b0 reason=missingBrokersMax" in caplog.text


def test_topics_beyond_the_memory_make_their_broker_missing_everywhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = BrokerRegistry(missing=MissingBrokers(topic_bytes_max=700))
    routes = RouteView(registry)
    joined(registry, "a", A, "T", "U", "X")
    with caplog.at_level(logging.WARNING):
        lose(registry, joined(registry, "b", B, "T", "U", "V"))
        lose(registry, joined(registry, "c", "10.0.0.3:1", "T", "U"))

    assert missing(routes, "X") == (["b"], [])
    assert missing(routes, "T") == (["b", "c"], [("c", 4)])
    assert "raise missingBrokersBytesMax" in caplog.text
    assert [one.topics_known for one in registry.missing.all()] == [False, True]

    joined(registry, "b", B, "T", "U", "V")
    assert missing(routes, "X") == ([], [])


def test_bytes_of_forgotten_topics_are_free_again() -> None:
    registry = BrokerRegistry(missing=MissingBrokers(topic_bytes_max=700))
    for _ in range(5):
        lose(registry, joined(registry, "b", B, "T", "U"))
        (shown,) = registry.missing.all()
        assert shown.topics_known


def test_nothing_is_remembered_for_0_hours() -> None:
    registry = BrokerRegistry(missing=MissingBrokers(missing_ms_max=0))
    lose(registry, joined(registry, "b", B, "T", "U"))

    assert registry.missing.all() == []
    assert list(registry.missing.topics()) == []
