"""What the name server keeps of its brokers, and what it tells clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from orbitmq.errors import RegistrationRefusedError
from orbitmq.java_json import Dialect
from orbitmq.model.routes import QueueRoute
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.nameserver.route_table import (
    BrokerKey,
    MasterAddresses,
    Report,
    RouteTable,
)


class Line:
    """A broker's connection, as far as the table knows it."""

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


LINE = Line()


def topics(*names: str, permission: int = 6, queues: int = 4) -> dict[str, TopicConfig]:
    return {
        name: TopicConfig(name=name, permission=permission, read_queues=queues, write_queues=queues)
        for name in names
    }


def report(
    table: Mapping[str, TopicConfig],
    *,
    name: str = "a",
    broker_id: int = 0,
    address: str = "10.0.0.1:10911",
    cluster: str = "C",
    version: int = 1,
    state: int = 0,
    **rest: Any,
) -> Report:
    return Report(
        key=BrokerKey(cluster, address),
        broker_name=name,
        broker_id=broker_id,
        ha_address=f"{address}-ha",
        data_version=DataVersion(counter=version, state_version=state),
        read_topics=lambda: table,
        connection=rest.pop("connection", LINE),
        **rest,
    )


def register(routes: RouteTable, given: Report, *, now_ms: int = 0, **rest: Any) -> MasterAddresses:
    return routes.register(given, now_ms=now_ms, silence_ms_max=120_000, **rest)


def permissions(routes: RouteTable, topic: str) -> list[int]:
    route = routes.route(topic)
    assert route is not None
    return [queue.permission for queue in route.queues]


@pytest.fixture
def routes() -> RouteTable:
    return RouteTable()


def test_a_topic_is_routed_to_every_broker_that_reports_it(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), name="a"))
    register(routes, report(topics("T", "V"), name="b", address="10.0.0.2:10911"))

    route = routes.route("T")

    assert route is not None
    assert [group.name for group in route.brokers] == ["a", "b"]
    assert [(queue.broker_name, queue.read_queues) for queue in route.queues] == [
        ("a", 4),
        ("b", 4),
    ]


def test_a_topic_nobody_reported_has_no_route(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U")))

    assert routes.route("X") is None
    assert routes.route_body("X", Dialect.STANDARD, order_config=None, acting_master=False) is None


def test_topics_of_a_slave_do_not_count(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), broker_id=1))

    assert routes.route("T") is None


def test_a_slave_learns_where_its_master_is(routes: RouteTable) -> None:
    assert register(routes, report(topics("T", "U"))) == MasterAddresses()

    master = register(routes, report({}, broker_id=1, address="10.0.0.2:10911"))

    assert master == MasterAddresses(address="10.0.0.1:10911", ha_address="10.0.0.1:10911-ha")


def test_a_route_shows_master_and_slaves_by_id(routes: RouteTable) -> None:
    register(routes, report({}, broker_id=2, address="10.0.0.3:10911"))
    register(routes, report(topics("T", "U")))

    route = routes.route("T")

    assert route is not None
    assert route.brokers[0].addresses == {0: "10.0.0.1:10911", 2: "10.0.0.3:10911"}


def test_topics_of_an_unchanged_version_are_not_read_again(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), version=7))
    register(routes, report(topics("T", "U"), version=7))

    def never() -> dict[str, TopicConfig]:
        raise AssertionError("read again")

    again = report({}, version=7)
    register(
        routes,
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

    assert routes.route("T") is not None


def test_a_topic_missed_while_it_was_reported_alone_is_taken_from_the_next_full_report(
    routes: RouteTable,
) -> None:
    register(routes, report(topics("T", "U"), version=1))
    # The broker made A, told another name server of it, then made B and told this one.
    register(routes, report(topics("B"), version=3))

    register(routes, report(topics("T", "U", "A", "B"), version=3))

    assert routes.route("A") is not None


def test_a_process_under_another_name_leaves_nothing_of_its_old_one(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), name="old"))

    register(routes, report(topics("T", "U"), name="new"))

    assert sorted(routes.cluster_view().brokers) == ["new"]
    routes.unregister(BrokerKey("C", "10.0.0.1:10911"), "new")
    assert routes.cluster_view().clusters == {}
    assert routes.topics() == []


def test_a_broker_whose_report_is_ignored_leaves_no_address_behind(routes: RouteTable) -> None:
    register(routes, report({}, broker_id=1, address="10.0.0.9:10911"))
    register(routes, report(topics("T", "U"), state=5))

    register(routes, report(topics("T", "U"), address="10.0.0.9:10911", state=1))

    assert routes.addresses_of("a") == {0: "10.0.0.1:10911"}


def test_a_name_leaves_the_clusters_it_no_longer_reports_in(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), cluster="C"))
    register(routes, report({}, broker_id=7, cluster="D", address="10.0.0.2:10911"))
    assert sorted(routes.cluster_view().clusters) == ["C", "D"]

    routes.unregister(BrokerKey("D", "10.0.0.2:10911"), "a")

    assert routes.cluster_view().clusters == {"C": ["a"]}


def test_a_broker_is_unregistered_by_its_address_whatever_name_it_says(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U")))

    routes.unregister(BrokerKey("C", "10.0.0.1:10911"), "another name")

    assert routes.cluster_view().brokers == {}
    assert routes.topics() == []


def test_unregistering_a_stranger_changes_nothing(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U")))
    before = routes.cluster_view_body()

    routes.unregister(BrokerKey("C", "10.9.9.9:10911"), "a")
    routes.unregister(BrokerKey("C", "10.9.9.9:10911"), "stranger")

    assert routes.cluster_view_body() is before


def test_names_are_bounded(routes: RouteTable) -> None:
    for given in (
        report(topics("T", "U" * 256)),
        report(topics("T", "U"), name="n" * 256),
        report(topics("T", "U"), cluster="c" * 256),
        report(topics("T", "U"), address="a" * 256),
    ):
        with pytest.raises(RegistrationRefusedError, match="256 characters"):
            register(routes, given)

    assert routes.cluster_view().brokers == {}


def test_a_changed_topic_changes_the_route(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U", queues=4), version=1))
    before = routes.route_body("T", Dialect.STANDARD, order_config=None, acting_master=False)

    register(routes, report(topics("T", queues=8), version=2))

    route = routes.route("T")
    assert route is not None
    assert route.queues[0].write_queues == 8
    assert (
        routes.route_body("T", Dialect.STANDARD, order_config=None, acting_master=False) != before
    )


def test_topics_missing_from_a_later_report_stay_unless_asked_otherwise(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), version=1))

    register(routes, report(topics("T", "V"), version=2))
    assert routes.route("U") is not None

    register(routes, report(topics("T", "V"), version=3), delete_missing_topics=True)
    assert routes.route("U") is None


def test_a_first_report_of_a_single_topic_is_refused(routes: RouteTable) -> None:
    with pytest.raises(RegistrationRefusedError, match="one topic before its first full report"):
        register(routes, report(topics("T")))

    assert routes.cluster_view().brokers == {}


def test_an_address_that_takes_another_id_gives_its_old_one_up(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), broker_id=1, enable_acting_master=False))

    register(routes, report(topics("T", "U"), broker_id=0, version=2))

    assert routes.addresses_of("a") == {0: "10.0.0.1:10911"}


def test_a_report_of_an_older_state_does_not_replace_the_one_of_another_broker(
    routes: RouteTable,
) -> None:
    register(routes, report(topics("T", "U"), state=2))

    register(routes, report(topics("T", "U"), address="10.0.0.9:10911", state=1))

    assert routes.addresses_of("a") == {0: "10.0.0.1:10911"}
    assert routes.version_of(BrokerKey("C", "10.0.0.9:10911")) is None


def test_a_broker_that_leaves_takes_its_topics_and_cluster_along(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U")))

    routes.unregister(BrokerKey("C", "10.0.0.1:10911"), "a")

    assert routes.route("T") is None
    assert routes.topics() == []
    assert routes.cluster_view().clusters == {}


def test_a_topic_stays_while_another_broker_holds_it(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), name="a"))
    register(routes, report(topics("T", "V"), name="b", address="10.0.0.2:10911"))

    routes.unregister(BrokerKey("C", "10.0.0.1:10911"), "a")

    route = routes.route("T")
    assert route is not None
    assert [group.name for group in route.brokers] == ["b"]
    assert sorted(routes.topics()) == ["T", "V"]


def test_a_master_that_leaves_its_slave_behind_keeps_the_route_without_it(
    routes: RouteTable,
) -> None:
    register(routes, report(topics("T", "U")))
    register(routes, report({}, broker_id=1, address="10.0.0.2:10911"))

    routes.unregister(BrokerKey("C", "10.0.0.1:10911"), "a")

    route = routes.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {1: "10.0.0.2:10911"}


def test_the_first_slave_acts_as_master_for_reading_where_allowed(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), enable_acting_master=True))
    register(
        routes,
        report(topics("T", "U"), broker_id=1, address="10.0.0.2:10911", enable_acting_master=True),
    )

    routes.unregister(BrokerKey("C", "10.0.0.1:10911"), "a")

    acting = routes.route("T", acting_master=True)
    plain = routes.route("T")
    assert acting is not None
    assert plain is not None
    assert acting.brokers[0].addresses == {0: "10.0.0.2:10911"}
    assert plain.brokers[0].addresses == {1: "10.0.0.2:10911"}
    assert permissions(routes, "T") == [4]


def test_topics_of_the_first_slave_count_without_write_permission(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), broker_id=1, enable_acting_master=True))

    assert permissions(routes, "T") == [4]


def test_a_member_topic_shows_the_true_addresses(routes: RouteTable) -> None:
    topic = "rmq_sys_SYNC_BROKER_MEMBER_a"
    register(routes, report(topics(topic, "U"), broker_id=1, enable_acting_master=True))

    route = routes.route(topic, acting_master=True)

    assert route is not None
    assert route.brokers[0].addresses == {1: "10.0.0.1:10911"}


def test_write_permission_is_wiped_and_added_again(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U", permission=7)))

    assert routes.wipe_write_permission("a") == 2
    assert permissions(routes, "T") == [5]

    assert routes.add_write_permission("a") == 2
    assert permissions(routes, "T") == [6]
    assert routes.wipe_write_permission("nobody") == 0


def test_wiped_permission_stays_until_the_broker_has_news(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), version=1))
    routes.wipe_write_permission("a")

    register(routes, report(topics("T", "U"), version=1))
    assert permissions(routes, "T") == [4]

    register(routes, report(topics("T", "U"), version=2))
    assert permissions(routes, "T") == [6]


def test_a_deleted_topic_comes_back_with_the_next_report_and_nothing_else_changes(
    routes: RouteTable,
) -> None:
    register(routes, report(topics("T", "U"), version=1))
    routes.wipe_write_permission("a")
    routes.delete_topic("T")
    assert routes.route("T") is None

    register(routes, report(topics("T", "U"), version=1))

    assert permissions(routes, "T") == [6]
    assert permissions(routes, "U") == [4]


def test_a_topic_is_deleted_in_one_cluster_only(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), name="a", cluster="C"))
    register(routes, report(topics("T", "U"), name="b", cluster="D", address="10.0.0.2:10911"))

    routes.delete_topic("T", "C")

    route = routes.route("T")
    assert route is not None
    assert [queue.broker_name for queue in route.queues] == ["b"]
    routes.delete_topic("T", "no such cluster")
    assert routes.route("T") is not None


def test_queues_are_added_for_known_brokers_only(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U")))
    queue = QueueRoute(broker_name="a", permission=6, read_queues=1, write_queues=1)
    stranger = QueueRoute(broker_name="z", permission=6, read_queues=1, write_queues=1)

    routes.add_queues("N", [queue])
    routes.add_queues("M", [queue, stranger])
    routes.add_queues("L", [])

    assert routes.route("N") is not None
    assert routes.route("M") is None
    assert routes.route("L") is None


def test_silent_brokers_are_those_past_their_own_limit(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), name="a"), now_ms=0)
    register(
        routes,
        report({}, name="b", address="10.0.0.2:10911", silence_ms_max=10_000),
        now_ms=0,
    )

    assert routes.silent_brokers(now_ms=10_000) == []
    assert [live.broker_name for live in routes.silent_brokers(now_ms=10_001)] == ["b"]

    routes.touch(BrokerKey("C", "10.0.0.2:10911"), now_ms=119_000)
    routes.touch(BrokerKey("C", "nobody"), now_ms=119_000)
    assert [live.broker_name for live in routes.silent_brokers(now_ms=120_001)] == ["a"]


def test_a_broker_belongs_to_the_connection_it_reported_on_last(routes: RouteTable) -> None:
    old, new = Line(), Line()
    register(routes, report(topics("T", "U"), connection=old))
    register(routes, report(topics("T", "U"), connection=new))

    assert routes.brokers_on(old) == []
    assert [live.broker_name for live in routes.brokers_on(new)] == ["a"]


def test_topic_lists_follow_clusters_and_units(routes: RouteTable) -> None:
    units = {
        name: TopicConfig(name=name, unit_flag=flag)
        for name, flag in (("plain", 0), ("unit", 1), ("subscribed", 2), ("both", 3))
    }
    register(routes, report(units, name="a", cluster="C"))
    register(routes, report(topics("T", "U"), name="b", cluster="D", address="10.0.0.2:10911"))

    assert routes.topics_of_cluster("D") == ["T", "U"]
    assert routes.topics_of_cluster("nowhere") == []
    assert routes.unit_topics() == ["unit", "both"]
    assert routes.unit_subscribed_topics() == ["subscribed", "both"]
    assert routes.unit_subscribed_topics(plain_only=True) == ["subscribed"]
    assert routes.system_topics() == (["C", "a", "D", "b"], "10.0.0.1:10911")


def test_an_empty_table_has_no_system_topics(routes: RouteTable) -> None:
    assert routes.system_topics() == ([], None)


def test_filter_servers_are_shown_until_they_are_gone(routes: RouteTable) -> None:
    register(routes, report(topics("T", "U"), filter_servers=["10.0.0.1:30000"]))
    route = routes.route("T")
    assert route is not None
    assert route.filter_servers == {"10.0.0.1:10911": ["10.0.0.1:30000"]}

    register(routes, report(topics("T", "U"), filter_servers=[]))
    route = routes.route("T")
    assert route is not None
    assert route.filter_servers == {}


def test_mappings_of_static_topics_are_passed_on(routes: RouteTable) -> None:
    mapping = {"bname": "a", "topic": "T", "totalQueues": 8, "currIdMap": {"0": 0}}
    register(routes, report(topics("T", "U"), queue_mappings={"T": mapping}))

    route = routes.route("T")

    assert route is not None
    assert route.queue_mapping == {"a": mapping}


@pytest.mark.parametrize("dialect", Dialect)
def test_a_route_is_written_once_and_again_after_a_change(
    routes: RouteTable, dialect: Dialect
) -> None:
    register(routes, report(topics("T", "U")))

    def body() -> bytes | None:
        return routes.route_body("T", dialect, order_config=None, acting_master=False)

    first = body()
    assert first is not None
    assert body() is first
    assert (b'{0:"10.0.0.1:10911"}' in first) is (dialect is Dialect.FASTJSON)

    register(routes, report({}, broker_id=1, address="10.0.0.2:10911"))
    second = body()
    assert second is not None
    assert b"10.0.0.2:10911" in second


def test_brokers_and_topics_are_bounded() -> None:
    routes = RouteTable(brokers_max=1, topics_max=3)
    register(routes, report(topics("T", "U")))

    with pytest.raises(RegistrationRefusedError, match="raise brokersMax"):
        register(routes, report(topics("V", "W"), name="b", address="10.0.0.2:10911"))
    with pytest.raises(RegistrationRefusedError, match="raise topicsMax"):
        register(routes, report(topics("V", "W"), version=2))

    assert sorted(routes.topics()) == ["T", "U"]
