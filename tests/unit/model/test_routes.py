"""Routes as clients read and write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.java_json import Dialect
from orbitmq.model.routes import BrokerGroup, ClusterView, QueueMapping, QueueRoute, TopicRoute

INT_32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)

ROUTE = TopicRoute(
    brokers=[
        BrokerGroup(addresses={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}, name="a", cluster="C")
    ],
    queues=[QueueRoute(broker_name="a", permission=6, read_queues=4, write_queues=4)],
)
ROUTE_TEXT = (
    '{"brokerDatas":[{"brokerAddrs":{%s},"brokerName":"a","cluster":"C",'
    '"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,'
    '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)

GROUPS = st.builds(
    BrokerGroup,
    addresses=st.dictionaries(st.integers(-(2**63), 2**63 - 1), TEXT, max_size=3),
    name=TEXT,
    cluster=TEXT,
    enable_acting_master=st.booleans(),
    zone=st.none() | TEXT,
)
ROUTES = st.builds(
    TopicRoute,
    brokers=st.lists(GROUPS, max_size=3),
    filter_servers=st.dictionaries(TEXT, st.lists(TEXT, max_size=2), max_size=2),
    order_config=st.none() | TEXT,
    queues=st.lists(
        st.builds(
            QueueRoute,
            broker_name=TEXT,
            permission=INT_32,
            read_queues=INT_32,
            write_queues=INT_32,
            unit_flag=INT_32,
        ),
        max_size=3,
    ),
)


@pytest.mark.parametrize(
    ("dialect", "addresses"),
    [
        (Dialect.FASTJSON, '0:"10.0.0.1:10911",1:"10.0.0.2:10911"'),
        (Dialect.STANDARD, '"0":"10.0.0.1:10911","1":"10.0.0.2:10911"'),
    ],
)
def test_a_route_is_written_as_java_writes_it(dialect: Dialect, addresses: str) -> None:
    text = (ROUTE_TEXT % addresses).encode()

    assert java_json.encode(ROUTE, dialect) == text
    assert java_json.decode(text, TopicRoute) == ROUTE


@given(ROUTES, st.sampled_from(Dialect))
def test_any_route_survives_a_round_trip(route: TopicRoute, dialect: Dialect) -> None:
    assert java_json.decode(java_json.encode(route, dialect), TopicRoute) == route


@given(st.dictionaries(TEXT, GROUPS, max_size=3), st.sampled_from(Dialect))
def test_any_view_of_clusters_survives_a_round_trip(
    brokers: dict[str, BrokerGroup], dialect: Dialect
) -> None:
    view = ClusterView(brokers=brokers, clusters={"C": list(brokers)})

    assert java_json.decode(java_json.encode(view, dialect), ClusterView) == view


def test_a_route_of_4_9_has_no_acting_masters_and_old_flag_names() -> None:
    text = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"a","cluster":"C"}],'
        b'"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSynFlag":0,'
        b'"writeQueueNums":4}]}'
    )

    route = java_json.decode(text, TopicRoute)

    assert not route.brokers[0].enable_acting_master
    assert route.queues[0].unit_flag == 0
    assert route.filter_servers == {}


def test_a_mapping_of_a_static_topic_survives_a_round_trip() -> None:
    text = (
        b'{"bname":"a","currIdMap":{0:1,5:2},"dirty":true,"epoch":7,"scope":"s","topic":"T",'
        b'"totalQueues":8}'
    )

    mapping = java_json.decode(text, QueueMapping)

    assert mapping == QueueMapping(
        broker_name="a",
        queues={0: 1, 5: 2},
        dirty=True,
        epoch=7,
        scope="s",
        topic="T",
        total_queues=8,
    )
    assert java_json.encode(mapping) == text


@pytest.mark.parametrize(
    "change",
    [('"perm":6', '"perm":2147483648'), ('"0"', '"x"'), ('"0"', '"9223372036854775808"')],
)
def test_a_route_that_a_java_client_could_not_read_is_refused(change: tuple[str, str]) -> None:
    text = (ROUTE_TEXT % '"0":"10.0.0.1:10911"').replace(*change)

    with pytest.raises(ProtocolError):
        java_json.decode(text.encode(), TopicRoute)
