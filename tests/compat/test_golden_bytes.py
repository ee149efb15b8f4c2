"""Frames recorded from official RocketMQ processes: we read them, and write the same.

How each file was made stands in README.md beside this test.
"""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.java_json import Dialect
from orbitmq.model.routes import BrokerGroup, ClusterView, QueueRoute, TopicRoute
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RESPONSE_FLAG, Command, decode_frame, request
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.headers import Header
from orbitmq.protocol.languages import Language
from orbitmq.protocol.requests.key_values import KeyValueReply, KeyValueTable
from orbitmq.protocol.requests.offsets import GetCommittedOffset, OffsetReply
from orbitmq.protocol.requests.pulling import PullMessages, PullReply
from orbitmq.protocol.requests.registration import (
    QueryDataVersion,
    QueryDataVersionReply,
    RegisterBody,
    RegisterBroker,
    RegisterBrokerReply,
    UnregisterBroker,
    decode_register_body,
    encode_register_body,
)
from orbitmq.protocol.requests.routing import GetRoute, TopicList
from orbitmq.protocol.requests.sending import SendMessage, SendMessageShort, SendReply
from orbitmq.record.decode import decode_record
from orbitmq.record.properties import decode_properties

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
FILES = {file.relative_to(GOLDEN).as_posix(): file for file in sorted(GOLDEN.rglob("*.bin"))}

TOPIC = "golden-topic"
BROKER = "broker-a"
CLUSTER = "InteropCluster"
JAVA_4 = "java-4.9.7"
JAVA_5 = "java-5.5.0"
GO_REQUESTS = {name for name in FILES if re.fullmatch(r"go-client-.*\.request\.bin", name)}
CLIENTS = ["java-client-4.9.8", "java-client-5.5.0", "go-client-2.1.2"]
SERVERS = [JAVA_4, JAVA_5]
VERSION_NUMBERS = {JAVA_4: 407, JAVA_5: 513}
# What a broker makes for itself before anybody asks.
OWN_TOPICS = {BROKER, CLUSTER, "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"}


def golden(name: str) -> bytes:
    return FILES[f"{name}.bin"].read_bytes()


def decoded(name: str) -> Command:
    return decode_frame(golden(name))


def register_body(name: str) -> tuple[RegisterBroker, RegisterBody]:
    command = decoded(name)
    header = RegisterBroker.decode(command.fields)
    body = decode_register_body(command.body, compressed=header.compressed, version=command.version)
    return header, body


# --- every frame -------------------------------------------------------------------------------


def test_every_recording_is_described_and_every_description_has_its_recording() -> None:
    described = set(re.findall(r"`([\w./-]+\.bin)`", (HERE / "README.md").read_text()))

    assert described == set(FILES)


def test_every_recording_is_small_and_names_no_machine() -> None:
    for name, file in FILES.items():
        content = file.read_bytes()

        assert len(content) <= 8192, name
        assert set(re.findall(rb"\d+\.\d+\.\d+\.\d+", content)) <= {b"127.0.0.1"}, name
        assert not re.search(rb"/(home|root|tmp|work|Users)/", content), name


def test_every_recording_is_read() -> None:
    for name, file in FILES.items():
        command = decode_frame(file.read_bytes())

        assert command.is_response is name.endswith(".reply.bin"), name
        assert not command.is_oneway, name
        assert command.language is (Language.GO if name in GO_REQUESTS else Language.JAVA), name


def test_every_recording_of_java_is_written_again_byte_for_byte() -> None:
    # The Go client orders the members of its headers in its own way.
    for name in sorted(FILES.keys() - GO_REQUESTS):
        frame = FILES[name].read_bytes()
        command = decode_frame(frame)

        again = command.encode()

        if command.encoding is Encoding.JSON and not command.fields:
            # Java leaves out fields that it has not; we say that there are none.
            assert decode_frame(again) == command, name
            again = command_without_fields(again)
            frame = command_without_fields(frame)
        assert again == frame, name


def command_without_fields(frame: bytes) -> bytes:
    """Take the empty object of fields out of a JSON header, and the prefix, which counts it."""
    return frame[8:].replace(b'"extFields":{},', b"", 1)


# --- requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "version"), [("java-client-4.9.8", 409), ("java-client-5.5.0", 513)]
)
def test_our_route_request_has_the_bytes_of_a_java_client(client: str, version: int) -> None:
    recorded = decoded(f"{client}/route.request")

    ours = request(GetRoute(topic=TOPIC))
    ours.language, ours.version, ours.opaque = Language.JAVA, version, recorded.opaque

    assert recorded.version == version
    assert ours.encode() == golden(f"{client}/route.request")


def test_the_route_request_of_the_go_client_is_read() -> None:
    recorded = decoded("go-client-2.1.2/route.request")

    assert recorded == Command(
        code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
        fields={"topic": TOPIC},
        opaque=recorded.opaque,
        version=317,
        language=Language.GO,
    )


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("form", ["json", "binary", "compressed"])
def test_a_registration_is_read(server: str, form: str) -> None:
    command = decoded(f"{server}/register-{form}.request")
    header, body = register_body(f"{server}/register-{form}.request")

    assert command.code == RequestCode.REGISTER_BROKER
    assert command.version == VERSION_NUMBERS[server]
    assert command.encoding is (Encoding.BINARY if form == "binary" else Encoding.JSON)
    assert header.encode() == command.fields
    assert (header.broker_name, header.cluster_name, header.broker_id) == (BROKER, CLUSTER, 0)
    assert header.enable_acting_master is (None if server == JAVA_4 else False)
    assert header.body_crc == zlib.crc32(command.body) & 0x7FFFFFFF
    topics = body.read_topics()
    assert topics.keys() >= OWN_TOPICS
    assert all(topic.name == name for name, topic in topics.items())
    assert topics["TBW102"].permission == 7
    assert body.filter_servers == []
    assert body.topic_table.data_version.timestamp > 0


def test_a_5_x_broker_compresses_its_body_without_saying_so() -> None:
    header, _ = register_body(f"{JAVA_5}/register-compressed.request")
    refusal = decoded(f"{JAVA_5}/register-compressed.reply")

    # The official name server refuses what its own broker sends; we take it.
    assert not header.compressed
    assert refusal.code == ResponseCode.SYSTEM_ERROR
    assert register_body(f"{JAVA_4}/register-compressed.request")[0].compressed


@pytest.mark.parametrize("form", ["json", "binary"])
def test_our_plain_register_body_has_the_bytes_of_a_5_x_broker(form: str) -> None:
    command = decoded(f"{JAVA_5}/register-{form}.request")
    _, body = register_body(f"{JAVA_5}/register-{form}.request")

    ours = encode_register_body(body.read_topics(), body.topic_table.data_version)

    assert ours == re.sub(
        rb'("mappingDataVersion":{.*?"timestamp":)\d+', rb"\g<1>0", command.body, count=1
    )


def test_our_plain_register_body_says_all_that_a_4_9_broker_says() -> None:
    command = decoded(f"{JAVA_4}/register-json.request")
    _, body = register_body(f"{JAVA_4}/register-json.request")

    ours = json.loads(encode_register_body(body.read_topics(), body.topic_table.data_version))

    theirs = json.loads(command.body)
    ours_topics = ours["topicConfigSerializeWrapper"]["topicConfigTable"]
    for name, topic in theirs["topicConfigSerializeWrapper"]["topicConfigTable"].items():
        assert ours_topics[name] == {**topic, "attributes": {}}


def test_our_compressed_register_body_unpacks_to_the_bytes_of_a_5_x_broker() -> None:
    command = decoded(f"{JAVA_5}/register-compressed.request")
    _, body = register_body(f"{JAVA_5}/register-compressed.request")

    ours = encode_register_body(body.read_topics(), body.topic_table.data_version, compressed=True)

    assert zlib.decompress(ours) == zlib.decompress(command.body)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    ("name", "header"),
    [("unregister-json", UnregisterBroker), ("query-data-version-json", QueryDataVersion)],
)
def test_other_requests_of_brokers_are_read_whole(
    server: str, name: str, header: type[Header]
) -> None:
    command = decoded(f"{server}/{name}.request")

    assert command.code == header.CODE
    assert header.decode(command.fields).encode() == command.fields


# --- replies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
def test_a_registration_is_answered_with_the_order_of_topics(server: str) -> None:
    plain = decoded(f"{server}/register-json.reply")
    with_order = decoded(f"{server}/register-binary.reply")

    assert RegisterBrokerReply.decode(plain.fields) == RegisterBrokerReply()
    assert plain.body == b""
    table = java_json.decode(with_order.body, KeyValueTable)
    assert table == KeyValueTable(table={TOPIC: f"{BROKER}:4"})
    assert java_json.encode(table) == with_order.body


@pytest.mark.parametrize("server", SERVERS)
def test_a_data_version_is_read(server: str) -> None:
    asked = decoded(f"{server}/query-data-version-json.request")
    reply = decoded(f"{server}/query-data-version-json.reply")

    assert QueryDataVersionReply.decode(reply.fields) == QueryDataVersionReply(changed=False)
    version = java_json.decode(reply.body, DataVersion)
    assert version == java_json.decode(asked.body, DataVersion)
    if server == JAVA_5:
        assert java_json.encode(version) == reply.body


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("asker", ["old", "new", "binary"])
def test_a_route_is_read(server: str, asker: str) -> None:
    reply = decoded(f"{server}/route-{asker}.reply")

    route = java_json.decode(reply.body, TopicRoute)

    assert reply.code == ResponseCode.SUCCESS
    (group,) = route.brokers
    assert re.fullmatch(r"127\.0\.0\.1:\d+", group.addresses.pop(0))
    assert group == BrokerGroup(name=BROKER, cluster=CLUSTER, addresses={})
    assert route.queues == [
        QueueRoute(broker_name=BROKER, permission=6, read_queues=4, write_queues=4)
    ]


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        (f"{JAVA_5}/route-old", Dialect.FASTJSON),
        (f"{JAVA_5}/route-new", Dialect.STANDARD),
        (f"{JAVA_5}/route-binary", Dialect.STANDARD),
        ("go-client-2.1.2/route", Dialect.FASTJSON),
        ("java-client-5.5.0/route", Dialect.STANDARD),
    ],
)
def test_our_route_has_the_bytes_of_the_java_name_server(name: str, dialect: Dialect) -> None:
    body = decoded(f"{name}.reply").body

    assert java_json.encode(java_json.decode(body, TopicRoute), dialect) == body


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        (f"{JAVA_4}/route-old", Dialect.FASTJSON),
        (f"{JAVA_4}/route-new", Dialect.STANDARD),
        ("java-client-4.9.8/route", Dialect.STANDARD),
    ],
)
def test_our_route_adds_only_the_acting_master_to_that_of_4_9(name: str, dialect: Dialect) -> None:
    body = decoded(f"{name}.reply").body

    ours = java_json.encode(java_json.decode(body, TopicRoute), dialect)

    assert ours.replace(b',"enableActingMaster":false', b"") == body


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("asker", ["new", "binary"])
def test_a_missing_route_is_code_17(server: str, asker: str) -> None:
    reply = decoded(f"{server}/route-missing-{asker}.reply")

    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert reply.remark.startswith(
        "No topic route info in name server for the topic: no-such-topic\n"
    )
    assert reply.body == b""


@pytest.mark.parametrize("server", SERVERS)
def test_ids_of_brokers_are_unquoted_in_the_view_of_clusters_for_old_and_new(server: str) -> None:
    bodies = {
        decoded(f"{server}/clusters-{asker}.reply").body for asker in ("old", "new", "binary")
    }

    (body,) = bodies
    view = java_json.decode(body, ClusterView)
    assert view.clusters == {CLUSTER: [BROKER]}
    assert list(view.brokers[BROKER].addresses) == [0]
    ours = java_json.encode(view)
    assert ours.replace(b',"enableActingMaster":false', b"") == body.replace(
        b',"enableActingMaster":false', b""
    )


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", ["topics-old", "topics-new", "cluster-topics-new"])
def test_a_topic_list_is_read_and_written_again(server: str, name: str) -> None:
    body = decoded(f"{server}/{name}.reply").body

    topics = java_json.decode(body, TopicList)

    assert set(topics.topics) >= OWN_TOPICS | {TOPIC}
    assert java_json.encode(topics) == body


@pytest.mark.parametrize("server", SERVERS)
def test_system_topics_come_with_the_address_of_a_broker(server: str) -> None:
    body = decoded(f"{server}/system-topics-new.reply").body

    topics = java_json.decode(body, TopicList)

    assert topics.topics == [CLUSTER, BROKER]
    assert topics.broker_address is not None
    assert java_json.encode(topics) == body


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("asker", ["old", "new", "binary"])
def test_our_reply_with_a_value_has_the_bytes_of_the_java_name_server(
    server: str, asker: str
) -> None:
    name = f"{server}/get-key-value-{asker}.reply"
    recorded = decoded(name)
    asked = Command(code=RequestCode.GET_KV_CONFIG, opaque=7, encoding=recorded.encoding)

    ours = asked.reply(KeyValueReply(value=f"{BROKER}:4"))
    ours.language, ours.version = Language.JAVA, VERSION_NUMBERS[server]

    assert ours.encode() == golden(name)


@pytest.mark.parametrize("server", SERVERS)
def test_other_replies_about_key_values_are_read(server: str) -> None:
    put = decoded(f"{server}/put-key-value-new.reply")
    missing = decoded(f"{server}/get-key-value-missing-new.reply")

    assert (put.code, put.flag, put.remark) == (ResponseCode.SUCCESS, RESPONSE_FLAG, "")
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    assert missing.remark == "No config item, Namespace: none Key: none"
    for asker in ("old", "new"):
        body = decoded(f"{server}/list-key-values-{asker}.reply").body
        assert body == java_json.encode(KeyValueTable(table={TOPIC: f"{BROKER}:4"}))


def test_4_9_answers_in_the_encoding_of_the_request_and_5_x_in_its_own() -> None:
    assert decoded(f"{JAVA_4}/route-binary.reply").encoding is Encoding.BINARY
    assert decoded(f"{JAVA_5}/route-binary.reply").encoding is Encoding.JSON


# --- clients and brokers -----------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("name", "kinds", "reply_kind"),
    [
        ("send", (SendMessage, SendMessageShort), SendReply),
        ("committed-offset", (GetCommittedOffset,), OffsetReply),
        ("pull", (PullMessages,), PullReply),
    ],
)
def test_our_types_hold_every_field_of_a_client_and_its_broker(
    client: str, name: str, kinds: tuple[type[Header], ...], reply_kind: type[Header]
) -> None:
    asked, answered = decoded(f"{client}/{name}.request"), decoded(f"{client}/{name}.reply")
    kind = next(kind for kind in kinds if asked.code == kind.CODE)

    assert kind.decode(asked.fields).encode() == asked.fields
    assert answered.code == ResponseCode.SUCCESS
    assert reply_kind.decode(answered.fields).encode() == answered.fields


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_pulls_the_body_and_the_tag_that_it_sent(client: str) -> None:
    frame = decoded(f"{client}/send.request")
    spelling = SendMessage if frame.code == SendMessage.CODE else SendMessageShort
    sent = spelling.decode(frame.fields)
    pulled = decode_record(decoded(f"{client}/pull.reply").body)

    assert sent.topic == pulled.topic == TOPIC
    assert frame.body == pulled.body == b"message 0"
    assert sent.properties is not None
    assert decode_properties(sent.properties.encode())["TAGS"] == "TagA"
    assert pulled.properties["TAGS"] == "TagA"
