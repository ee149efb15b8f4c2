"""How brokers report themselves: headers and both forms of the register body."""

from __future__ import annotations

import json
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.java_json import Dialect
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import OUR_VERSION, V3_0_11, V5_0_0, DataVersion
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests import registration
from orbitmq.protocol.requests.registration import (
    BrokerHeartbeat,
    QueryDataVersion,
    QueryDataVersionReply,
    RegisterBody,
    RegisterBroker,
    RegisterBrokerReply,
    UnregisterBroker,
    decode_register_body,
    encode_register_body,
)

INT_32 = st.integers(-(2**31), 2**31 - 1)
INT_64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Zs"]), min_size=1, max_size=12)

VERSIONS = st.builds(DataVersion, counter=INT_64, state_version=INT_64, timestamp=INT_64)
# What the compressed form can say: neither order nor unit flag.
PACKABLE_TOPICS = st.dictionaries(
    NAMES,
    st.builds(
        TopicConfig,
        attributes=st.dictionaries(TEXT, TEXT, max_size=2),
        permission=INT_32,
        read_queues=INT_32,
        write_queues=INT_32,
        filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    ),
    max_size=4,
)


def named(topics: dict[str, TopicConfig]) -> dict[str, TopicConfig]:
    return {
        name: TopicConfig(
            name=name,
            attributes=topic.attributes,
            permission=topic.permission,
            read_queues=topic.read_queues,
            write_queues=topic.write_queues,
            filter_type=topic.filter_type,
        )
        for name, topic in topics.items()
    }


def packed(*pieces: bytes | int) -> bytes:
    """Compress pieces as they are and numbers in four bytes."""
    return zlib.compress(
        b"".join(
            struct.pack(">i", piece)
            if isinstance(piece, int)
            else struct.pack(">i", len(piece)) + piece
            for piece in pieces
        )
    )


def read(body: bytes, *, compressed: bool = False, version: int = OUR_VERSION) -> RegisterBody:
    return decode_register_body(body, compressed=compressed, version=version)


def read_packed_topic(line: bytes) -> TopicConfig:
    body = read(packed(b"{}", 1, line, b"[]", 0), compressed=True)
    (topic,) = body.read_topics().values()
    return topic


# --- headers -----------------------------------------------------------------------------------


def test_a_registration_of_a_5_x_broker_is_read() -> None:
    fields = {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "C",
        "haServerAddr": "127.0.0.1:10912",
        "brokerId": "0",
        "heartbeatTimeoutMillis": "10000",
        "enableActingMaster": "true",
        "compressed": "false",
        "bodyCrc32": "1159126793",
        "__ZONE_NAME": "z",
    }

    assert RegisterBroker.decode(fields) == RegisterBroker(
        broker_name="broker-a",
        broker_address="127.0.0.1:10911",
        cluster_name="C",
        ha_address="127.0.0.1:10912",
        broker_id=Long(0),
        heartbeat_timeout_ms=Long(10_000),
        enable_acting_master=True,
        body_crc=1_159_126_793,
    )


def test_a_registration_of_a_4_9_broker_says_nothing_about_acting_masters() -> None:
    fields = {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "C", "brokerId": "1"}

    header = RegisterBroker.decode(fields)

    assert header.enable_acting_master is None
    assert header.heartbeat_timeout_ms is None
    assert not header.compressed
    assert header.body_crc == 0


def test_headers_carry_the_names_of_java() -> None:
    who = {"clusterName": "C", "brokerAddr": "a:1", "brokerName": "b"}

    assert UnregisterBroker.decode({**who, "brokerId": "3"}).encode() == {**who, "brokerId": "3"}
    assert BrokerHeartbeat.decode(who).encode() == who
    assert QueryDataVersion.decode({**who, "brokerId": "3"}).encode() == {**who, "brokerId": "3"}
    assert QueryDataVersionReply(changed=True).encode() == {"changed": "true"}
    assert RegisterBrokerReply(ha_address="a:2", master_address="a:1").encode() == {
        "haServerAddr": "a:2",
        "masterAddr": "a:1",
    }
    assert RegisterBrokerReply().encode() == {}


# --- the plain body ----------------------------------------------------------------------------


def test_a_body_of_a_4_9_broker_is_read() -> None:
    body = read(
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,'
        b'"timestamp":1700000000000},"topicConfigTable":{"T":{"order":true,"perm":6,'
        b'"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":1,'
        b'"writeQueueNums":8}}}}',
        version=407,
    )

    assert body.filter_servers == []
    assert body.topic_table.data_version == DataVersion(counter=1, timestamp=1_700_000_000_000)
    assert body.topic_table.queue_mappings == {}
    assert body.read_topics() == {
        "T": TopicConfig(name="T", order=True, read_queues=4, write_queues=8, unit_flag=1)
    }


def test_static_topics_of_a_5_x_broker_are_passed_on_in_either_dialect() -> None:
    body = read(
        b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{"T":{}},'
        b'"topicQueueMappingInfoMap":{"T":{"bname":"broker-a","currIdMap":{0:0,1:1},"dirty":false,'
        b'"epoch":1700000000000,"scope":"__global__","topic":"T","totalQueues":2}}}}'
    )

    mapping = body.topic_table.queue_mappings["T"]

    assert json.loads(java_json.encode(mapping, Dialect.STANDARD)) == {
        "bname": "broker-a",
        "currIdMap": {"0": 0, "1": 1},
        "dirty": False,
        "epoch": 1_700_000_000_000,
        "scope": "__global__",
        "topic": "T",
        "totalQueues": 2,
    }
    assert b'"currIdMap":{0:0,1:1}' in java_json.encode(mapping)
    assert list(body.read_topics()) == ["T"]


def test_a_static_topic_too_deep_to_be_passed_on_is_not_kept() -> None:
    depth = 700
    deep = b"[" * depth + b"]" * depth
    body = read(
        b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":{"x":' + deep + b"}}}}"
    )

    assert "x" not in body.topic_table.queue_mappings["T"]


@pytest.mark.parametrize("version", [V3_0_11, OUR_VERSION])
def test_no_body_is_a_broker_without_topics(version: int) -> None:
    body = read(b"", version=version)

    assert body.read_topics() == {}
    assert body.filter_servers is None
    assert body.topic_table.data_version == DataVersion()


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":null}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}',
        b'{"filterServerList":null,"topicConfigSerializeWrapper":null}',
    ],
)
def test_absent_and_null_tables_are_empty(body: bytes) -> None:
    assert read(body).read_topics() == {}


def test_before_3_0_11_the_body_was_the_table_of_topics_alone() -> None:
    body = read(
        b'{"dataVersion":{"counter":7},"topicConfigTable":{"T":{"topicName":"T"}}}',
        version=V3_0_11 - 1,
    )

    assert body.topic_table.data_version.counter == 7
    assert body.read_topics() == {"T": TopicConfig(name="T")}
    assert body.filter_servers is None


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b'{"topicConfigSerializeWrapper":[]}',
        b'{"filterServerList":[1]}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":9223372036854775808}}}',
        b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":[]}}}',
    ],
)
def test_a_plain_body_of_another_shape_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(body)


@pytest.mark.parametrize(
    "topics", [b"[]", b'{"T":5}', b'{"T":{"perm":2147483648}}', b'{"T":{"readQueueNums":"x"}}']
)
def test_topics_of_another_shape_are_refused_when_they_are_asked_for(topics: bytes) -> None:
    body = read(b'{"topicConfigSerializeWrapper":{"topicConfigTable":' + topics + b"}}")

    with pytest.raises(ProtocolError):
        body.read_topics()


# --- the compressed body -----------------------------------------------------------------------


def test_the_pieces_of_a_compressed_body_are_read() -> None:
    body = read(
        packed(
            *(b'{"counter":3}', 2, b"A 4 8 6 SINGLE_TAG {}", b"B 1 1 4 MULTI_TAG"),
            *(b'["f:1"]', 1, b'{"topic":"A","currIdMap":{0:5},"totalQueues":1}'),
        ),
        compressed=True,
    )

    assert body.topic_table.data_version == DataVersion(counter=3)
    assert body.filter_servers == ["f:1"]
    assert body.read_topics() == {
        "A": TopicConfig(name="A", read_queues=4, write_queues=8),
        "B": TopicConfig(
            name="B", read_queues=1, write_queues=1, permission=4, filter_type="MULTI_TAG"
        ),
    }
    assert body.topic_table.queue_mappings["A"]["currIdMap"] == {0: 5}


def test_brokers_before_5_0_send_no_static_topics() -> None:
    body = read(packed(b"{}", 0, b"[]"), compressed=True, version=V5_0_0 - 1)

    assert body.read_topics() == {}
    with pytest.raises(ProtocolError, match="cut off"):
        read(packed(b"{}", 0, b"[]"), compressed=True, version=V5_0_0)


def test_a_compressed_body_is_known_even_if_the_header_does_not_say_so() -> None:
    body = read(packed(b"{}", 1, b"A 4 8 6 SINGLE_TAG {}", b"[]", 0), compressed=False)

    assert list(body.read_topics()) == ["A"]


@pytest.mark.parametrize(
    ("line", "attributes"),
    [
        (b"A 4 8 6 SINGLE_TAG", {}),
        (b"A 4 8 6 SINGLE_TAG ", {}),
        (b"A 4 8 6 SINGLE_TAG {}", {}),
        (b'A 4 8 6 SINGLE_TAG {"message.type":"FIFO"}', {"message.type": "FIFO"}),
        (b'A 4 8 6 SINGLE_TAG {"note":"a b  c"}', {"note": "a b  c"}),
        (b"A 4 8 6 SINGLE_TAG {not json", {}),
        (b"A 4 8 6 SINGLE_TAG [] more", {}),
    ],
)
def test_attributes_are_read_where_they_can_be(line: bytes, attributes: dict[str, str]) -> None:
    topic = read_packed_topic(line)

    assert topic == TopicConfig(name="A", read_queues=4, write_queues=8, attributes=attributes)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"A",
        b"A 4 8 6",
        b"A  4 8 6 SINGLE_TAG",
        b"A x 8 6 SINGLE_TAG",
        b"A 4 8 2147483648 SINGLE_TAG",
        b"A 4 -2147483649 6 SINGLE_TAG",
        b"A " + b"9" * 5000 + b" 8 6 SINGLE_TAG",
    ],
)
def test_a_topic_that_cannot_be_read_is_refused_with_its_text(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="a topic in a compressed body reads"):
        read_packed_topic(line)


def test_a_topic_name_that_is_not_utf_8_is_replaced_as_java_does() -> None:
    assert read_packed_topic(b"\xd6 4 8 6 SINGLE_TAG").name == "\ufffd"


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [-1],
        [5],
        [b"{}"],
        [b"{}", -1],
        [b"{}", 1],
        [b"{}", 2**31 - 1],
        [b"{}", 0, -5],
        [b"[]", 0, b"[]", 0],
        [b"{}", 0, b"{}", 0],
        [b"{}", 0, b"[]", 1, b"[]"],
        [b"{}", 0, b"[]", 1, b'{"bname":"b"}'],
        [b"{}", 0, b"[]", 2**31 - 1],
    ],
)
def test_pieces_that_do_not_fit_are_refused(pieces: list[bytes | int]) -> None:
    with pytest.raises(ProtocolError):
        read(packed(*pieces), compressed=True)


@pytest.mark.parametrize("body", [b"x", b"{}", b"x\x9c", b"\x78\x9c\x00\x00", b"\x00" * 40])
def test_what_is_not_compressed_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        read(body, compressed=True)


def test_a_body_that_unpacks_to_too_much_is_refused_before_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "UNPACKED_BYTES_MAX", 1000)
    body = packed(b"{}", 1, b"A 4 8 6 SINGLE_TAG " + b" " * 100_000, b"[]", 0)
    assert len(body) < 300

    with pytest.raises(ProtocolError, match="unpacks to over 1000"):
        read(body, compressed=True)


# --- round trips -------------------------------------------------------------------------------


@given(PACKABLE_TOPICS, VERSIONS)
def test_topics_come_back_from_either_form(
    topics: dict[str, TopicConfig], version: DataVersion
) -> None:
    topics = named(topics)

    for compressed in (False, True):
        body = read(
            encode_register_body(topics, version, compressed=compressed), compressed=compressed
        )
        assert body.read_topics() == topics
        assert body.topic_table.data_version == version
        assert body.filter_servers == []


def test_the_plain_form_keeps_order_and_unit_flag() -> None:
    topics = {"T": TopicConfig(name="T", order=True, unit_flag=3)}

    assert read(encode_register_body(topics, DataVersion())).read_topics() == topics


def test_a_body_is_read_by_servers_of_any_version() -> None:
    topics = {"T": TopicConfig(name="T")}
    plain = encode_register_body(topics, DataVersion())
    compressed = encode_register_body(topics, DataVersion(), compressed=True)

    for version in (V3_0_11, V5_0_0 - 1, V5_0_0, OUR_VERSION):
        assert read(plain, version=version).read_topics() == topics
        assert read(compressed, compressed=True, version=version).read_topics() == topics


@given(
    PACKABLE_TOPICS,
    st.booleans(),
    st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_mutated_bodies_are_read_or_refused_with_a_protocol_error(
    topics: dict[str, TopicConfig],
    compressed: bool,  # noqa: FBT001  # given by Hypothesis
    mutations: list[tuple[int, int]],
) -> None:
    body = encode_register_body(named(topics), DataVersion(), compressed=compressed)
    # What is compressed is changed inside, past the checksum of zlib.
    content = bytearray(zlib.decompress(body) if compressed else body)
    for position, byte in mutations:
        content[position % len(content)] = byte
    mutated = zlib.compress(content) if compressed else bytes(content)
    try:
        read(mutated, compressed=compressed).read_topics()
    except ProtocolError:
        return


@given(st.binary(max_size=60), st.booleans(), st.sampled_from([0, V3_0_11, OUR_VERSION]))
def test_arbitrary_bodies_are_read_or_refused_with_a_protocol_error(
    body: bytes,
    compressed: bool,  # noqa: FBT001  # given by Hypothesis
    version: int,
) -> None:
    try:
        read(body, compressed=compressed, version=version).read_topics()
    except ProtocolError:
        return


@pytest.mark.parametrize("count", [2, 200_001, 2**31 - 1])
def test_a_compressed_body_cannot_claim_more_topics_than_it_can_hold_or_we_take(count: int) -> None:
    version = b'{"counter":1}'
    pieces = len(version).to_bytes(4) + version + count.to_bytes(4) + bytes(4)

    with pytest.raises(ProtocolError, match=f"claims {count} pieces"):
        decode_register_body(zlib.compress(pieces), compressed=True, version=OUR_VERSION)


def test_attributes_that_are_not_standard_json_are_dropped_without_a_second_look() -> None:
    line = b"T 1 1 6 SINGLE_TAG {a:1}"
    version = b'{"counter":1}'
    pieces = b"".join(
        (
            *(len(version).to_bytes(4), version),
            *((1).to_bytes(4), len(line).to_bytes(4), line),
            *((2).to_bytes(4), b"[]", bytes(4)),
        )
    )

    body = decode_register_body(zlib.compress(pieces), compressed=True, version=OUR_VERSION)

    assert body.read_topics()["T"].attributes == {}
