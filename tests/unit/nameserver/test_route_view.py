"""What the name server tells clients."""

from __future__ import annotations

import pytest

from orbitmq.java_json import Dialect
from orbitmq.model.routes import BrokerGroup, QueueRoute, TopicRoute
from orbitmq.model.topics import TopicConfig
from orbitmq.nameserver.broker_registry import BrokerKey, BrokerRegistry
from orbitmq.nameserver.route_view import RouteView, in_zone
from tests.unit.nameserver.reports import register, report, topics


@pytest.fixture
def registry() -> BrokerRegistry:
    return BrokerRegistry()


@pytest.fixture
def routes(registry: BrokerRegistry) -> RouteView:
    return RouteView(registry)


def test_a_topic_is_routed_to_every_broker_that_reports_it(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    register(registry, report(topics("T", "U"), name="a"))
    register(registry, report(topics("T", "V"), name="b", address="10.0.0.2:10911"))

    route = routes.route("T")

    assert route is not None
    assert [group.name for group in route.brokers] == ["a", "b"]
    assert [(queue.broker_name, queue.read_queues) for queue in route.queues] == [
        ("a", 4),
        ("b", 4),
    ]


def test_a_topic_nobody_reported_has_no_route(registry: BrokerRegistry, routes: RouteView) -> None:
    register(registry, report(topics("T", "U")))

    assert routes.route("X") is None
    assert routes.route_body("X", Dialect.STANDARD, order_config=None, acting_master=False) is None


def test_a_route_shows_master_and_slaves_by_id(registry: BrokerRegistry, routes: RouteView) -> None:
    register(registry, report({}, broker_id=2, address="10.0.0.3:10911"))
    register(registry, report(topics("T", "U")))

    route = routes.route("T")

    assert route is not None
    assert route.brokers[0].addresses == {0: "10.0.0.1:10911", 2: "10.0.0.3:10911"}


def test_a_topic_stays_while_another_broker_holds_it(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    register(registry, report(topics("T", "U"), name="a"))
    register(registry, report(topics("T", "V"), name="b", address="10.0.0.2:10911"))

    registry.unregister(BrokerKey("C", "10.0.0.1:10911"), "a")

    route = routes.route("T")
    assert route is not None
    assert [group.name for group in route.brokers] == ["b"]
    assert sorted(routes.topics()) == ["T", "V"]


def test_a_master_that_leaves_its_slave_behind_keeps_the_route_without_it(
    registry: BrokerRegistry,
    routes: RouteView,
) -> None:
    register(registry, report(topics("T", "U")))
    register(registry, report({}, broker_id=1, address="10.0.0.2:10911"))

    registry.unregister(BrokerKey("C", "10.0.0.1:10911"), "a")

    route = routes.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {1: "10.0.0.2:10911"}


def test_the_first_slave_acts_as_master_for_reading_where_allowed(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    register(registry, report(topics("T", "U"), enable_acting_master=True))
    register(
        registry,
        report(topics("T", "U"), broker_id=1, address="10.0.0.2:10911", enable_acting_master=True),
    )

    registry.unregister(BrokerKey("C", "10.0.0.1:10911"), "a")

    acting = routes.route("T", acting_master=True)
    plain = routes.route("T")
    assert acting is not None
    assert plain is not None
    assert acting.brokers[0].addresses == {0: "10.0.0.2:10911"}
    assert plain.brokers[0].addresses == {1: "10.0.0.2:10911"}
    assert [queue.permission for queue in plain.queues] == [4]


def test_a_member_topic_shows_the_true_addresses(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    topic = "rmq_sys_SYNC_BROKER_MEMBER_a"
    register(registry, report(topics(topic, "U"), broker_id=1, enable_acting_master=True))

    route = routes.route(topic, acting_master=True)

    assert route is not None
    assert route.brokers[0].addresses == {1: "10.0.0.1:10911"}


def test_topic_lists_follow_clusters_and_units(registry: BrokerRegistry, routes: RouteView) -> None:
    units = {
        name: TopicConfig(name=name, unit_flag=flag)
        for name, flag in (("plain", 0), ("unit", 1), ("subscribed", 2), ("both", 3))
    }
    register(registry, report(units, name="a", cluster="C"))
    register(registry, report(topics("T", "U"), name="b", cluster="D", address="10.0.0.2:10911"))

    assert routes.topics_of_cluster("D") == ["T", "U"]
    assert routes.topics_of_cluster("nowhere") == []
    assert routes.unit_topics() == ["unit", "both"]
    assert routes.unit_subscribed_topics() == ["subscribed", "both"]
    assert routes.unit_subscribed_topics(plain_only=True) == ["subscribed"]
    assert routes.system_topics() == (["C", "a", "D", "b"], "10.0.0.1:10911")


def test_an_empty_registry_has_no_system_topics(routes: RouteView) -> None:
    assert routes.system_topics() == ([], None)


def test_filter_servers_are_shown_until_they_are_gone(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    register(registry, report(topics("T", "U"), filter_servers=["10.0.0.1:30000"]))
    route = routes.route("T")
    assert route is not None
    assert route.filter_servers == {"10.0.0.1:10911": ["10.0.0.1:30000"]}

    register(registry, report(topics("T", "U"), filter_servers=[]))
    route = routes.route("T")
    assert route is not None
    assert route.filter_servers == {}


def test_mappings_of_static_topics_are_passed_on(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    mapping = {"bname": "a", "topic": "T", "totalQueues": 8, "currIdMap": {"0": 0}}
    register(registry, report(topics("T", "U"), queue_mappings={"T": mapping}))

    route = routes.route("T")

    assert route is not None
    assert route.queue_mapping == {"a": mapping}


@pytest.mark.parametrize("dialect", Dialect)
def test_a_route_is_written_once_and_again_after_a_change(
    registry: BrokerRegistry, routes: RouteView, dialect: Dialect
) -> None:
    register(registry, report(topics("T", "U")))

    def body() -> bytes | None:
        return routes.route_body("T", dialect, order_config=None, acting_master=False)

    first = body()
    assert first is not None
    assert body() is first
    assert (b'{0:"10.0.0.1:10911"}' in first) is (dialect is Dialect.FASTJSON)

    register(registry, report({}, broker_id=1, address="10.0.0.2:10911"))
    second = body()
    assert second is not None
    assert b"10.0.0.2:10911" in second


def test_kept_answers_take_a_limited_number_of_bytes(registry: BrokerRegistry) -> None:
    register(registry, report(topics("T", "U", "V")))
    routes = RouteView(registry, cached_bytes_max=1500)

    def body(topic: str) -> bytes | None:
        return routes.route_body(topic, Dialect.STANDARD, order_config=None, acting_master=False)

    first = body("T")
    assert body("T") is first
    body("U")
    body("V")

    assert body("T") is not first
    assert body("T") == first


def test_a_changed_topic_changes_the_route(registry: BrokerRegistry, routes: RouteView) -> None:
    register(registry, report(topics("T", "U", queues=4), version=1))
    before = routes.route_body("T", Dialect.STANDARD, order_config=None, acting_master=False)

    register(registry, report(topics("T", queues=8), version=2))

    route = routes.route("T")
    assert route is not None
    assert route.queues[0].write_queues == 8
    assert (
        routes.route_body("T", Dialect.STANDARD, order_config=None, acting_master=False) != before
    )


def test_unregistering_a_stranger_changes_nothing(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    register(registry, report(topics("T", "U")))
    before = routes.cluster_view_body()

    registry.unregister(BrokerKey("C", "10.9.9.9:10911"), "a")
    registry.unregister(BrokerKey("C", "10.9.9.9:10911"), "stranger")

    assert routes.cluster_view_body() is before


def test_kept_answers_follow_filter_servers(registry: BrokerRegistry, routes: RouteView) -> None:
    def body() -> bytes | None:
        return routes.route_body("T", Dialect.STANDARD, order_config=None, acting_master=False)

    register(registry, report(topics("T", "U")))
    register(registry, report(topics("T", "U")))
    without = body()

    register(registry, report({}, filter_servers=["10.0.0.1:30000"]))
    with_one = body()
    assert with_one is not None
    assert b"10.0.0.1:30000" in with_one
    register(registry, report({}, filter_servers=["10.0.0.1:30000"]))
    assert body() is with_one

    register(registry, report({}, filter_servers=[]))
    assert body() == without


def test_the_kept_cluster_view_follows_a_slave_that_reports_in_another_cluster(
    registry: BrokerRegistry, routes: RouteView
) -> None:
    register(registry, report({}, broker_id=1, cluster="C"))
    assert b'"D"' not in routes.cluster_view_body()

    register(registry, report({}, broker_id=1, cluster="D"))

    assert b'"D"' in routes.cluster_view_body()


def broker_group(name: str, zone: str | None, addresses: dict[int, str]) -> BrokerGroup:
    return BrokerGroup(name=name, cluster="C", zone=zone, addresses=addresses)


def test_brokers_of_other_zones_are_left_out_with_their_queues() -> None:
    route = TopicRoute(
        brokers=[
            broker_group("here", "East", {0: "10.0.0.1:1"}),
            broker_group("there", "west", {0: "10.0.0.2:1"}),
            broker_group("nowhere", None, {0: "10.0.0.3:1"}),
            broker_group("no master", "west", {1: "10.0.0.4:1"}),
        ],
        queues=[
            QueueRoute(broker_name=name, permission=6, read_queues=1, write_queues=1)
            for name in ("here", "there", "nowhere", "no master")
        ],
        filter_servers={"10.0.0.1:1": ["f"], "10.0.0.2:1": ["g"]},
    )

    seen = in_zone(route, "east")

    assert [broker.name for broker in seen.brokers] == ["here", "no master"]
    assert [queue.broker_name for queue in seen.queues] == ["here", "no master"]
    assert seen.filter_servers == {"10.0.0.1:1": ["f"]}
