"""Requests about routes, clusters and topic lists: their names on the wire."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.routing import (
    AddTopicRoute,
    AddWritePermission,
    AddWritePermissionReply,
    BrokerGroupReply,
    BrokerMembers,
    DeleteTopicRoute,
    GetBrokerGroup,
    GetClusterView,
    GetRoute,
    ListClusterTopics,
    ListSystemTopics,
    ListTopics,
    ListUnitSubscribedPlainTopics,
    ListUnitSubscribedTopics,
    ListUnitTopics,
    TopicList,
    WipeWritePermission,
    WipeWritePermissionReply,
)


@pytest.mark.parametrize(
    ("header", "code", "fields"),
    [
        (GetRoute(topic="T"), 105, {"topic": "T"}),
        (
            GetRoute(topic="T", accept_standard_json_only=True),
            105,
            {"topic": "T", "acceptStandardJsonOnly": "true"},
        ),
        (GetClusterView(), 106, {}),
        (
            GetBrokerGroup(cluster_name="C", broker_name="b"),
            901,
            {"clusterName": "C", "brokerName": "b"},
        ),
        (ListTopics(), 206, {}),
        (ListClusterTopics(cluster="C"), 224, {"cluster": "C"}),
        (ListSystemTopics(), 304, {}),
        (ListUnitTopics(), 311, {}),
        (ListUnitSubscribedTopics(), 312, {}),
        (ListUnitSubscribedPlainTopics(), 313, {}),
        (DeleteTopicRoute(topic="T"), 216, {"topic": "T"}),
        (
            DeleteTopicRoute(topic="T", cluster_name="C"),
            216,
            {"topic": "T", "clusterName": "C"},
        ),
        (AddTopicRoute(topic="T"), 217, {"topic": "T"}),
        (WipeWritePermission(broker_name="b"), 205, {"brokerName": "b"}),
        (AddWritePermission(broker_name="b"), 327, {"brokerName": "b"}),
    ],
)
def test_a_request_has_its_code_and_javas_field_names(
    header: Header, code: int, fields: dict[str, str]
) -> None:
    assert code == header.CODE
    assert header.encode() == fields
    assert type(header).decode(fields) == header


def test_replies_have_javas_field_names() -> None:
    assert WipeWritePermissionReply(topic_count=3).encode() == {"wipeTopicCount": "3"}
    assert AddWritePermissionReply(topic_count=3).encode() == {"addTopicCount": "3"}


def test_a_route_request_without_a_topic_is_refused() -> None:
    with pytest.raises(ProtocolError, match="field 'topic' of GetRoute is missing"):
        GetRoute.decode({"Topic": "T"})


def test_a_topic_list_leaves_out_the_address_that_it_has_not() -> None:
    assert java_json.encode(TopicList(topics=["A", "B"])) == b'{"topicList":["A","B"]}'
    assert java_json.encode(TopicList(topics=[], broker_address="a:1")) == (
        b'{"brokerAddr":"a:1","topicList":[]}'
    )


def test_a_broker_group_reply_comes_back() -> None:
    reply = BrokerGroupReply(
        members=BrokerMembers(addresses={0: "a:1", 1: "b:1"}, name="b", cluster="C")
    )

    encoded = java_json.encode(reply)

    assert encoded == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"a:1",1:"b:1"},"brokerName":"b","cluster":"C"}}'
    )
    assert java_json.decode(encoded, BrokerGroupReply) == reply
