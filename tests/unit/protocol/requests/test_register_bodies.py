"""What brokers report about themselves, in both forms of the register body."""

from __future__ import annotations

import json
import re
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
from orbitmq.protocol.requests import registration
from orbitmq.protocol.requests.registration import (
    RegisterBody,
    decode_register_body,
    encode_register_body,
)

INT_32 = st.integers(-(2**31), 2**31 - 1)
INT_64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Zs"]), min_size=1, max_size=12)

VERSIONS = st.builds(DataVersion, counter=INT_64, state_version=INT_64, timestamp=INT_64)
# The compressed form has neither order nor unit flag.
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


def packed_topic(line: bytes) -> bytes:
    return packed(b"{}", 1, line, b"[]", 0)


def plain_topics(table: bytes) -> bytes:
    return b'{"topicConfigSerializeWrapper":{"topicConfigTable":' + table + b"}}"


def read(body: bytes, *, compressed: bool = False, version: int = OUR_VERSION) -> RegisterBody:
    return decode_register_body(body, compressed=compressed, version=version)


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
        plain_topics(b"null"),
        plain_topics(b"{}"),
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
    body = packed(b"{}", 0, b"[]")

    assert read(body, compressed=True, version=V5_0_0 - 1).read_topics() == {}
    with pytest.raises(ProtocolError, match="cut off"):
        read(body, compressed=True, version=V5_0_0)


def test_a_compressed_body_is_known_even_if_the_header_does_not_say_so() -> None:
    body = read(packed_topic(b"A 4 8 6 SINGLE_TAG {}"), compressed=False)

    assert list(body.read_topics()) == ["A"]


@pytest.mark.parametrize(
    ("attributes", "known"),
    [
        (b"", {}),
        (b" ", {}),
        (b" {}", {}),
        (b' {"message.type":"FIFO"}', {"message.type": "FIFO"}),
        (b' {"note":"a b  c"}', {"note": "a b  c"}),
        (b" {not json", {}),
        # Java would read it, but never writes it.
        (b" {a:1}", {}),
        (b" [] more", {}),
    ],
)
def test_attributes_are_read_where_they_can_be(attributes: bytes, known: dict[str, str]) -> None:
    body = read(packed_topic(b"A 4 8 6 SINGLE_TAG" + attributes), compressed=True)

    assert body.read_topics() == {
        "A": TopicConfig(name="A", read_queues=4, write_queues=8, attributes=known)
    }


def test_a_topic_name_that_is_not_utf_8_is_replaced_as_java_does() -> None:
    body = read(packed_topic(b"\xd6 4 8 6 SINGLE_TAG"), compressed=True)

    assert list(body.read_topics()) == ["\ufffd"]


# --- what is refused ---------------------------------------------------------------------------

NOT_AN_OBJECT = "Expected `object`, got `array`"
REFUSED_PLAIN = [
    (b"[]", NOT_AN_OBJECT),
    (b"{", "JSON is broken at character 1"),
    (b'{"topicConfigSerializeWrapper":[]}', NOT_AN_OBJECT),
    (b'{"filterServerList":[1]}', "Expected `str`, got `int` - at `$.filterServerList[0]`"),
    (
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":9223372036854775808}}}',
        "Expected `int` <= 9223372036854775807",
    ),
    (b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":[]}}}', NOT_AN_OBJECT),
]
# Topics are parsed on demand.
REFUSED_TOPICS = [
    (b"[]", NOT_AN_OBJECT),
    (b'{"T":5}', "Expected `object`, got `int`"),
    (b'{"T":{"perm":2147483648}}', "Expected `int` <= 2147483647 - at `$[...].perm`"),
    (b'{"T":{"readQueueNums":"x"}}', "Expected `int`, got `str` - at `$[...].readQueueNums`"),
]
REFUSED_PACKED_TOPICS = [
    (b"", "not enough values"),
    (b"A", "not enough values"),
    (b"A 4 8 6", "not enough values"),
    (b"A  4 8 6 SINGLE_TAG", "invalid literal"),
    (b"A x 8 6 SINGLE_TAG", "invalid literal"),
    (b"A 4 8 2147483648 SINGLE_TAG", "does not fit 32 bits"),
    (b"A 4 -2147483649 6 SINGLE_TAG", "does not fit 32 bits"),
    (b"A " + b"9" * 5000 + b" 8 6 SINGLE_TAG", "Exceeds the limit"),
]
REFUSED_PIECES: list[tuple[list[bytes | int], str]] = [
    ([], "cut off at byte 0"),
    ([-1], "claims -1 at byte 0"),
    ([5], "a piece at byte 4 overruns the compressed body"),
    ([b"{}"], "cut off at byte 6"),
    ([b"{}", -1], "claims -1 at byte 6"),
    ([b"{}", 1], "claims 1 pieces in 10 bytes"),
    ([b"{}", 2, 0], "claims 2 pieces in 14 bytes"),
    ([b"{}", 2**31 - 1, 0], "claims 2147483647 pieces in 14 bytes"),
    ([b"{}", 0, -5], "claims -5 at byte 10"),
    ([b"[]", 0, b"[]", 0], NOT_AN_OBJECT),
    ([b"{}", 0, b"{}", 0], "Expected `array`, got `object`"),
    ([b"{}", 0, b"[]", 1, b"[]"], NOT_AN_OBJECT),
    (
        [b"{}", 0, b"[]", 1, b'{"bname":"b"}'],
        "a static-topic mapping in a compressed body names no",
    ),
    ([b"{}", 0, b"[]", 2**31 - 1], "claims 2147483647 pieces in 20 bytes"),
]
REFUSED_STREAMS = [
    (b"x", "cut off at byte 0"),
    (b"{}", "a compressed body of 2 bytes is broken"),
    (b"x\x9c", "cut off at byte 0"),
    (b"\x78\x9c\x00\x00", "cut off at byte 0"),
    (b"\x00" * 40, "a compressed body of 40 bytes is broken"),
]


@pytest.mark.parametrize(("body", "why"), REFUSED_PLAIN)
def test_a_plain_body_of_another_shape_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(why)):
        read(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        *((plain_topics(table), why) for table, why in REFUSED_TOPICS),
        *((packed_topic(line), why) for line, why in REFUSED_PACKED_TOPICS),
    ],
    ids=[repr(text)[:40] for text, _ in REFUSED_TOPICS + REFUSED_PACKED_TOPICS],
)
def test_unreadable_topics_are_refused_when_they_are_parsed(body: bytes, why: str) -> None:
    known = read(body)

    with pytest.raises(ProtocolError, match=re.escape(why)):
        known.read_topics()


def test_a_compressed_topic_is_refused_with_its_text() -> None:
    known = read(packed_topic(b"A 4 8 6"), compressed=True)

    with pytest.raises(ProtocolError, match="a topic in a compressed body reads b'A 4 8 6'"):
        known.read_topics()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        *((packed(*pieces), why) for pieces, why in REFUSED_PIECES),
        *REFUSED_STREAMS,
    ],
    ids=[
        *(f"pieces {pieces}" for pieces, _ in REFUSED_PIECES),
        *(f"bytes {body!r}"[:40] for body, _ in REFUSED_STREAMS),
    ],
)
def test_a_compressed_body_of_another_shape_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(why)):
        read(body, compressed=True)


def test_a_body_that_would_decompress_to_too_much_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "UNPACKED_BYTES_MAX", 1000)
    body = packed_topic(b"A 4 8 6 SINGLE_TAG " + b" " * 100_000)
    assert len(body) < 300

    with pytest.raises(ProtocolError, match="decompresses to more than 1000"):
        read(body, compressed=True)


def test_the_number_of_topics_in_a_compressed_body_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "PIECES_MAX", 3)
    lines = [f"{name} 4 8 6 SINGLE_TAG".encode() for name in "ABCD"]

    assert len(read(packed(b"{}", 3, *lines[:3], b"[]", 0)).read_topics()) == 3
    with pytest.raises(ProtocolError, match=r"claims 4 pieces .*\(3 are accepted at most"):
        read(packed(b"{}", 4, *lines, b"[]", 0))


# --- round trips -------------------------------------------------------------------------------


@given(PACKABLE_TOPICS, VERSIONS)
def test_topics_survive_a_round_trip_in_either_form(
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
    # Compressed content is changed before compression, since zlib has a checksum.
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
