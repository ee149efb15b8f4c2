"""Requests about clients: names on the wire, and bodies as every client writes them."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.model.subscriptions import (
    BROADCASTING,
    CLUSTERING,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
    PUSH,
    Subscription,
)
from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.clients import (
    CheckSubscription,
    ClientConnection,
    ConsumerConnections,
    ConsumerGroup,
    GroupMembers,
    Heartbeat,
    HeartbeatBody,
    HeartbeatReply,
    ListConsumerConnections,
    ListGroupMembers,
    ListProducerConnections,
    ListProducers,
    NotifyMembersChanged,
    Producer,
    ProducerConnections,
    ProducerGroup,
    ProducerTable,
    SubscriptionToCheck,
    UnregisterClient,
)

JAVA_HEARTBEAT = (
    b'{"clientID":"10.0.0.5@4711#123456789","consumerDataSet":['
    b'{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
    b'"groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":['
    b'{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",'
    b'"subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}],"unitMode":false}],'
    b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],'
    b'"withoutSub":false}'
)
SUBSCRIPTION = Subscription(
    topic="T", expression="TagA", tags=["TagA"], tag_codes=[2598919], version=1700000000000
)


@pytest.mark.parametrize(
    ("header", "code", "fields"),
    [
        (Heartbeat(), 34, {}),
        (UnregisterClient(client_id="c"), 35, {"clientID": "c"}),
        (
            UnregisterClient(client_id="c", producer_group="p", consumer_group="g"),
            35,
            {"clientID": "c", "producerGroup": "p", "consumerGroup": "g"},
        ),
        (ListGroupMembers(consumer_group="g"), 38, {"consumerGroup": "g"}),
        (NotifyMembersChanged(consumer_group="g"), 40, {"consumerGroup": "g"}),
        (CheckSubscription(), 46, {}),
        (ListConsumerConnections(consumer_group="g"), 203, {"consumerGroup": "g"}),
        (ListProducerConnections(producer_group="p"), 204, {"producerGroup": "p"}),
        (ListProducers(), 328, {}),
    ],
)
def test_a_request_has_its_code_and_javas_field_names(
    header: Header, code: int, fields: dict[str, str]
) -> None:
    assert code == header.CODE
    assert header.encode() == fields
    assert type(header).decode(fields) == header


def test_a_client_that_leaves_must_say_who_it_is() -> None:
    with pytest.raises(ProtocolError, match="field 'clientID' of UnregisterClient is missing"):
        UnregisterClient.decode({"clientId": "c"})


def test_a_heartbeat_is_written_as_java_writes_it() -> None:
    body = HeartbeatBody(
        client_id="10.0.0.5@4711#123456789",
        producers=[ProducerGroup(group="CLIENT_INNER_PRODUCER")],
        consumers=[ConsumerGroup(group="g", subscriptions=[SUBSCRIPTION])],
    )

    assert java_json.encode(body) == JAVA_HEARTBEAT
    assert java_json.decode(JAVA_HEARTBEAT, HeartbeatBody) == body


def test_a_heartbeat_of_go_quotes_codes_and_counts_versions_in_nanoseconds() -> None:
    # As the Go client 2.1.2 sends it.
    text = (
        b'{"clientID":"192.0.2.2@54536566","producerDataSet":[],"consumerDataSet":['
        b'{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":['
        b'{"classFilterMode":false,"topic":"T","subString":"TagA","tagsSet":["TagA"],'
        b'"codeSet":["2598919"],"subVersion":1794721803179630767,"expressionType":"TAG"}],'
        b'"unitMode":false}]}'
    )

    body = java_json.decode(text, HeartbeatBody)

    (consumer,) = body.consumers
    assert body.producers == []
    assert consumer == ConsumerGroup(group="g", subscriptions=consumer.subscriptions)
    assert consumer.subscriptions == [
        msgspec.structs.replace(SUBSCRIPTION, version=1794721803179630767)
    ]


def test_a_heartbeat_may_have_nulls_instead_of_sets() -> None:
    text = b'{"clientID":"c","producerDataSet":null,"consumerDataSet":null}'

    assert java_json.decode(text, HeartbeatBody) == HeartbeatBody(client_id="c")


def test_a_heartbeat_of_cpp_has_positions_instead_of_names() -> None:
    text = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":5,"consumeType":1,'
        b'"groupName":"g","messageModel":0,"subscriptionDataSet":[{"codeSet":["1"],'
        b'"subString":"*","subVersion":"1700000000000","tagsSet":[],"topic":"T"}]}]}'
    )

    (consumer,) = java_json.decode(text, HeartbeatBody).consumers

    assert (consumer.consume_from, consumer.consume_type) == (FROM_TIMESTAMP, PUSH)
    assert consumer.message_model == BROADCASTING
    assert consumer.subscriptions[0].version == 1700000000000


def test_a_way_of_consuming_that_is_not_known_yet_is_kept() -> None:
    text = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_NEW"}]}'

    (consumer,) = java_json.decode(text, HeartbeatBody).consumers

    assert consumer.consume_type == "CONSUME_NEW"
    assert (consumer.message_model, consumer.consume_from) == (CLUSTERING, FROM_LAST_OFFSET)


def test_a_heartbeat_must_say_whose_it_is() -> None:
    with pytest.raises(ProtocolError, match="missing required field `clientID`"):
        java_json.decode(b'{"consumerDataSet":[]}', HeartbeatBody)


def test_a_heartbeat_reply_has_javas_field_names() -> None:
    fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}

    reply = HeartbeatReply(takes_fingerprints=True)

    assert reply.encode() == fields
    assert HeartbeatReply.decode(fields) == reply
    assert HeartbeatReply.decode({}) == HeartbeatReply()


def test_members_are_a_list_of_ids() -> None:
    members = GroupMembers(client_ids=["a", "b"])

    assert java_json.encode(members) == b'{"consumerIdList":["a","b"]}'
    assert java_json.decode(java_json.encode(members), GroupMembers) == members


def test_a_subscription_to_check_comes_back() -> None:
    asked = SubscriptionToCheck(client_id="c", group="g", subscription=SUBSCRIPTION)

    encoded = java_json.encode(asked)

    assert encoded.startswith(b'{"clientId":"c","group":"g","subscriptionData":{"classFilterMode"')
    assert java_json.decode(encoded, SubscriptionToCheck) == asked


def test_consumer_connections_are_written_as_java_writes_them() -> None:
    text = (
        b'{"connectionSet":[{"clientAddr":"1.2.3.4:5","clientId":"c","language":"JAVA",'
        b'"version":479}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"T":'
        b'{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",'
        b'"subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}}}'
    )
    connections = ConsumerConnections(
        connections=[
            ClientConnection(address="1.2.3.4:5", client_id="c", language="JAVA", version=479)
        ],
        consume_from=FROM_LAST_OFFSET,
        consume_type=PUSH,
        message_model=CLUSTERING,
        subscriptions={"T": SUBSCRIPTION},
    )

    assert java_json.encode(connections) == text
    assert java_json.decode(text, ConsumerConnections) == connections


def test_producer_connections_come_back() -> None:
    text = (
        b'{"connectionSet":[{"clientAddr":"1.2.3.4:5","clientId":"c","language":"GO",'
        b'"version":317}]}'
    )
    connections = ProducerConnections(
        connections=[
            ClientConnection(address="1.2.3.4:5", client_id="c", language="GO", version=317)
        ]
    )

    assert java_json.encode(connections) == text
    assert java_json.decode(text, ProducerConnections) == connections


def test_a_table_of_producers_comes_back() -> None:
    text = (
        b'{"data":{"p":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":7,'
        b'"remoteIP":"1.2.3.4","version":479}]}}'
    )
    producer = Producer(
        client_id="c", language="JAVA", last_heard_ms=7, host="1.2.3.4", version=479
    )

    assert java_json.encode(ProducerTable(groups={"p": [producer]})) == text
    assert java_json.decode(text, ProducerTable).groups == {"p": [producer]}
