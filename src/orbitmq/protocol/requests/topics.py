"""Topics of a broker: create, change, delete, list; their bounds and consumers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from orbitmq.java_json import JavaLong, ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTopic(Header):
    """Create or change a topic."""

    CODE = RequestCode.UPDATE_AND_CREATE_TOPIC
    topic: str
    template_topic: str = wire("defaultTopic")
    read_queues: int = wire("readQueueNums")
    write_queues: int = wire("writeQueueNums")
    permission: int = wire("perm")
    filter_type: str = wire("topicFilterType")
    unit_flag: int | None = wire("topicSysFlag", None)
    order: bool = False
    # Changes, such as "+message.type=FIFO,-reserve.time".
    attributes: str | None = None
    force: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTopics(Header):
    """Create or change the topics of a `TopicConfigList`."""

    CODE = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST


class TopicConfigList(msgspec.Struct, kw_only=True):
    """Topics to create or change."""

    topics: list[TopicConfig] = msgspec.field(default_factory=list, name="topicConfigList")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic(Header):
    """Delete a topic of a broker."""

    CODE = RequestCode.DELETE_TOPIC_IN_BROKER
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTopicConfigs(Header):
    """Ask for every topic of a broker; the reply's body is a `TopicConfigTable`.

    Compat: callers newer than RocketMQ 5.3.3 ask page by page. They also accept a reply with every
    topic and no total, as older brokers give it.
    """

    CODE = RequestCode.GET_ALL_TOPIC_CONFIG
    first: int | None = wire("topicSeq", None)
    topics_max: int | None = wire("maxTopicNum", None)
    # The version of the earlier pages, as JSON.
    data_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTopicConfigsReply(Header):
    """How many topics there are, if the body is one page of them."""

    topic_count: int | None = wire("totalTopicNum", None)


class TopicConfigTable(msgspec.Struct, kw_only=True):
    """The topics of a broker, and their version."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion, name="dataVersion")
    mapping_data_version: DataVersion = msgspec.field(
        default_factory=DataVersion, name="mappingDataVersion"
    )
    topics: dict[str, TopicConfig] = msgspec.field(default_factory=dict, name="topicConfigTable")
    # Compat: Java peers expect both maps, which are for static topics only.
    mapping_details: dict[str, Any] = msgspec.field(
        default_factory=dict, name="topicQueueMappingDetailMap"
    )
    mappings: dict[str, Any] = msgspec.field(default_factory=dict, name="topicQueueMappingInfoMap")


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicConfig(Header):
    """Ask for one topic; the reply's body is a `TopicConfig`."""

    CODE = RequestCode.GET_TOPIC_CONFIG
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicStats(Header):
    """Ask for the bounds of a topic's queues; the reply's body is `TopicStats`."""

    CODE = RequestCode.GET_TOPIC_STATS_INFO
    topic: str


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a queue, and when its last message was stored."""

    last_update_ms: JavaLong = msgspec.field(default=0, name="lastUpdateTimestamp")
    max_offset: JavaLong = msgspec.field(default=0, name="maxOffset")
    min_offset: JavaLong = msgspec.field(default=0, name="minOffset")


class TopicStats(msgspec.Struct, kw_only=True):
    """The bounds of every queue of a topic, and its messages per second."""

    queues: ObjectKeyed[MessageQueue, QueueStats] = msgspec.field(
        default_factory=ObjectKeyed, name="offsetTable"
    )
    puts_per_second: float = msgspec.field(default=0.0, name="topicPutTps")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTopicConsumers(Header):
    """Ask which groups consume a topic; the reply's body is `GroupNames`."""

    CODE = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    topic: str


class GroupNames(msgspec.Struct, kw_only=True):
    """Names of consumer groups."""

    groups: list[str] = msgspec.field(default_factory=list, name="groupList")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListBrokerSystemTopics(Header):
    """Ask for the topics a broker created for itself; the reply's body is a `TopicList`."""

    CODE = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
