"""Brokers at name servers: register, unregister, heartbeat.

A register body is JSON, or with `compressed` a zlib stream of length-prefixed pieces:
    data version (JSON); number of topics; each topic as text; filter servers (JSON);
    from brokers of 5.0 on: number of static-topic mappings; each mapping (JSON)
where a topic is `name readQueues writeQueues permission filterType [attributes as JSON]`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.model.routes import QueueMapping
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import V3_0_11, V5_0_0, DataVersion
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.frame import FRAME_BYTES_MAX
from orbitmq.protocol.headers import Header, Long, wire

# A small compressed body may decompress to any size; it gets the bound of a plain one.
UNPACKED_BYTES_MAX: Final = FRAME_BYTES_MAX
_LENGTH: Final = struct.Struct(">i")
# Topics of one broker; reading this many takes half a second.
PIECES_MAX: Final = 200_000
_attributes = msgspec.json.Decoder(dict[str, str])
_INT_MAX: Final = 2**31 - 1
_ZLIB_FIRST_BYTE: Final = b"\x78"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker(Header):
    """A broker reports its address and, in the body, its topics."""

    CODE = RequestCode.REGISTER_BROKER
    broker_name: str
    broker_address: str = wire("brokerAddr")
    cluster_name: str
    ha_address: str | None = wire("haServerAddr", None)
    broker_id: Long
    heartbeat_timeout_ms: Long | None = wire("heartbeatTimeoutMillis", None)
    # Compat: absent from brokers before 5.0, which do not know the feature.
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc: int = wire("bodyCrc32", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerReply(Header):
    """Where a slave finds its master; the body may contain the order of topics."""

    ha_address: str | None = wire("haServerAddr", None)
    master_address: str | None = wire("masterAddr", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBroker(Header):
    """A broker leaves."""

    CODE = RequestCode.UNREGISTER_BROKER
    broker_name: str
    broker_address: str = wire("brokerAddr")
    cluster_name: str
    broker_id: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeat(Header):
    """A broker is alive and has nothing to report."""

    CODE = RequestCode.BROKER_HEARTBEAT
    cluster_name: str
    broker_address: str = wire("brokerAddr")
    broker_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetEpoch(Header):
    """Forget the largest epoch of a broker group, so that a master of any epoch may register."""

    CODE = RequestCode.FORGET_EPOCH
    cluster_name: str
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetEpochReply(Header):
    """Which epoch was forgotten; 0 if none was known."""

    epoch: Long


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersion(Header):
    """Ask whether the version in the body is new; counts as a heartbeat."""

    CODE = RequestCode.QUERY_DATA_VERSION
    cluster_name: str
    broker_address: str = wire("brokerAddr")
    broker_name: str | None = None
    broker_id: Long | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionReply(Header):
    """Whether the broker should register; the body is the version that the name server has."""

    changed: bool


class ReportedTopics(msgspec.Struct, kw_only=True):
    """The topics of a broker, and their version."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion, name="dataVersion")
    # Perf: kept as text; a broker's topics are parsed only if their version is new.
    topics: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="topicConfigTable")
    mappings: dict[str, QueueMapping] = msgspec.field(
        default_factory=dict, name="topicQueueMappingInfoMap"
    )

    @property
    def queue_mappings(self) -> dict[str, dict[str, Any]]:
        """The static topics, as plain maps to pass on."""
        return {topic: msgspec.to_builtins(mapping) for topic, mapping in self.mappings.items()}


class RegisterBody(msgspec.Struct, kw_only=True):
    """What a broker reports about itself."""

    filter_servers: list[str] | None = msgspec.field(default=None, name="filterServerList")
    topic_table: ReportedTopics = msgspec.field(
        default_factory=ReportedTopics, name="topicConfigSerializeWrapper"
    )

    def read_topics(self) -> dict[str, TopicConfig]:
        """Parse the topics, which are kept as text until then."""
        text = bytes(self.topic_table.topics)
        return {} if text == b"null" else java_json.decode(text, dict[str, TopicConfig])


def decode_register_body(body: bytes, *, compressed: bool, version: int) -> RegisterBody:
    """Read a register body of a broker of the given version."""
    if not body:
        return RegisterBody()
    if version < V3_0_11:
        return RegisterBody(topic_table=java_json.decode(body, ReportedTopics))
    # Compat: brokers from 5.0 on that compress the body do not say so in the header.
    if compressed or body.startswith(_ZLIB_FIRST_BYTE):
        return _decode_pieces(_unpack(body), version)
    return java_json.decode(body, RegisterBody)


def encode_register_body(
    topics: Mapping[str, TopicConfig],
    data_version: DataVersion,
    *,
    filter_servers: Sequence[str] = (),
    compressed: bool = False,
) -> bytes:
    """Write the register body of a broker, for servers of any version."""
    if compressed:
        return zlib.compress(_encode_pieces(topics, data_version, filter_servers))
    return java_json.encode(
        {
            "filterServerList": list(filter_servers),
            "topicConfigSerializeWrapper": {
                "dataVersion": data_version,
                "mappingDataVersion": DataVersion(),
                "topicConfigTable": dict(topics),
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
        }
    )


def _unpack(body: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        pieces = unpacker.decompress(body, UNPACKED_BYTES_MAX)
    except zlib.error as error:
        raise ProtocolError(f"a compressed body of {len(body)} bytes is broken: {error}") from error
    if unpacker.unconsumed_tail:
        raise ProtocolError(
            f"a body of {len(body)} bytes decompresses to more than {UNPACKED_BYTES_MAX}"
        )
    return pieces


def _encode_pieces(
    topics: Mapping[str, TopicConfig], data_version: DataVersion, filter_servers: Sequence[str]
) -> bytes:
    pieces = bytearray(_piece(java_json.encode(data_version)))
    pieces += _LENGTH.pack(len(topics))
    for topic in topics.values():
        attributes = java_json.encode(topic.attributes).decode()
        pieces += _piece(
            f"{topic.name} {topic.read_queues} {topic.write_queues} {topic.permission}"
            f" {topic.filter_type} {attributes}".encode()
        )
    pieces += _piece(java_json.encode(list(filter_servers)))
    pieces += _LENGTH.pack(0)
    return bytes(pieces)


def _piece(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


@dataclass(slots=True, eq=False)
class _Pieces:
    """Reads length-prefixed pieces in sequence."""

    content: bytes
    position: int = 0

    def number(self) -> int:
        """Read a count or length of four bytes, which must not be negative."""
        end = self.position + _LENGTH.size
        if end > len(self.content):
            raise ProtocolError(f"a compressed body is cut off at byte {self.position}")
        (number,) = _LENGTH.unpack_from(self.content, self.position)
        if number < 0:
            raise ProtocolError(f"a compressed body claims {number} at byte {self.position}")
        self.position = end
        return int(number)

    def count(self) -> int:
        """Read the number of pieces that follow; a small body may claim any number."""
        count = self.number()
        if count > PIECES_MAX or count * _LENGTH.size > len(self.content) - self.position:
            raise ProtocolError(
                f"a compressed body claims {count} pieces in {len(self.content)} bytes",
                hint=f"{PIECES_MAX} are accepted at most",
            )
        return count

    def piece(self) -> bytes:
        """Read one piece."""
        end = self.number() + self.position
        if end > len(self.content):
            raise ProtocolError(f"a piece at byte {self.position} overruns the compressed body")
        piece = self.content[self.position : end]
        self.position = end
        return piece


class _PackedRegisterBody(RegisterBody, kw_only=True):
    """A register body that was compressed."""

    # Perf: kept as text, for the same reason as in a plain body.
    lines: list[bytes]

    def read_topics(self) -> dict[str, TopicConfig]:
        """Read the topics."""
        topics = map(_decode_topic, self.lines)
        return {topic.name: topic for topic in topics}


def _decode_pieces(content: bytes, version: int) -> RegisterBody:
    pieces = _Pieces(content)
    data_version = java_json.decode(pieces.piece(), DataVersion)
    lines = [pieces.piece() for _ in range(pieces.count())]
    filter_servers = java_json.decode(pieces.piece(), list[str])
    mappings: dict[str, QueueMapping] = {}
    if version >= V5_0_0:
        for _ in range(pieces.count()):
            mapping = java_json.decode(pieces.piece(), QueueMapping)
            if mapping.topic is None:
                raise ProtocolError("a static-topic mapping in a compressed body names no topic")
            mappings[mapping.topic] = mapping
    return _PackedRegisterBody(
        filter_servers=filter_servers,
        topic_table=ReportedTopics(data_version=data_version, mappings=mappings),
        lines=lines,
    )


def _decode_topic(line: bytes) -> TopicConfig:
    try:
        name, read_queues, write_queues, permission, filter_type, *rest = line.decode(
            errors="replace"
        ).split(" ", 5)
        return TopicConfig(
            name=name,
            read_queues=_java_int(read_queues),
            write_queues=_java_int(write_queues),
            permission=_java_int(permission),
            filter_type=filter_type,
            attributes=_decode_attributes(rest[0]) if rest else {},
        )
    except ValueError as error:
        raise ProtocolError(f"a topic in a compressed body reads {line[:80]!r}: {error}") from error


def _java_int(text: str) -> int:
    number = int(text)
    if not -_INT_MAX - 1 <= number <= _INT_MAX:
        raise ValueError(f"{number} does not fit 32 bits")
    return number


def _decode_attributes(text: str) -> dict[str, str]:
    try:
        return _attributes.decode(text) if text else {}
    except (msgspec.MsgspecError, RecursionError):
        # Compat: as in Java, unreadable attributes do not cost the topic. Perf: only standard JSON
        # is read, which is what Java writes: there may be 200,000 of them.
        return {}
