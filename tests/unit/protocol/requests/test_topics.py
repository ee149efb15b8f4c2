"""Requests about topics: names on the wire, and bodies as Java writes them."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.topics import (
    DeleteTopic,
    GetTopicConfig,
    GetTopicStats,
    GroupNames,
    ListBrokerSystemTopics,
    ListTopicConfigs,
    ListTopicConfigsReply,
    ListTopicConsumers,
    QueueBounds,
    TopicConfigList,
    TopicConfigTable,
    TopicStats,
    UpdateTopic,
    UpdateTopics,
)

TOPIC = {"topic": "T"}
UPDATE = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "8",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}
TOPIC_JSON = (
    b'{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"T","topicSysFlag":0,"writeQueueNums":8}'
)
TOPIC_CONFIG = TopicConfig(name="T", read_queues=8, write_queues=8)


@pytest.mark.parametrize(
    ("header", "code", "fields"),
    [
        (
            UpdateTopic(
                topic="T",
                template_topic="TBW102",
                read_queues=8,
                write_queues=4,
                permission=6,
                filter_type="SINGLE_TAG",
            ),
            17,
            UPDATE,
        ),
        (
            UpdateTopic(
                topic="T",
                template_topic="TBW102",
                read_queues=8,
                write_queues=4,
                permission=6,
                filter_type="SINGLE_TAG",
                unit_flag=0,
                order=True,
                attributes="+message.type=FIFO",
                force=False,
            ),
            17,
            {
                **UPDATE,
                "order": "true",
                "topicSysFlag": "0",
                "attributes": "+message.type=FIFO",
                "force": "false",
            },
        ),
        (UpdateTopics(), 18, {}),
        (DeleteTopic(topic="T"), 215, TOPIC),
        (ListTopicConfigs(), 21, {}),
        (
            ListTopicConfigs(first=0, topics_max=2000, data_version=""),
            21,
            {"topicSeq": "0", "maxTopicNum": "2000", "dataVersion": ""},
        ),
        (GetTopicConfig(topic="T"), 351, TOPIC),
        (GetTopicStats(topic="T"), 202, TOPIC),
        (ListTopicConsumers(topic="T"), 300, TOPIC),
        (ListBrokerSystemTopics(), 305, {}),
    ],
)
def test_a_request_has_its_code_and_javas_field_names(
    header: Header, code: int, fields: dict[str, str]
) -> None:
    assert code == header.CODE
    assert header.encode() == fields
    assert type(header).decode(fields) == header


@pytest.mark.parametrize("missing", [name for name in UPDATE if name != "order"])
def test_a_topic_is_not_changed_without_a_required_field(missing: str) -> None:
    fields = {name: text for name, text in UPDATE.items() if name != missing}

    with pytest.raises(ProtocolError, match=f"field '{missing}' of UpdateTopic is missing"):
        UpdateTopic.decode(fields)


def test_a_page_of_topics_says_how_many_there_are() -> None:
    assert ListTopicConfigsReply(topic_count=3).encode() == {"totalTopicNum": "3"}
    assert ListTopicConfigsReply.decode({}) == ListTopicConfigsReply(topic_count=None)


def test_a_list_of_topics_to_change_comes_back() -> None:
    text = b'{"topicConfigList":[' + TOPIC_JSON + b"]}"

    assert java_json.encode(TopicConfigList(topics=[TOPIC_CONFIG])) == text
    assert java_json.decode(text, TopicConfigList).topics == [TOPIC_CONFIG]


def test_a_table_of_topics_has_the_members_that_java_expects() -> None:
    text = (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7},'
        b'"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
        b'"topicConfigTable":{"T":' + TOPIC_JSON + b"},"
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}'
    )
    table = TopicConfigTable(
        data_version=DataVersion(counter=1, timestamp=7), topics={"T": TOPIC_CONFIG}
    )

    assert java_json.encode(table) == text
    assert java_json.decode(text, TopicConfigTable) == table


def test_a_table_of_rocketmq_4_knows_no_static_topics() -> None:
    text = b'{"dataVersion":{"counter":1,"timestamp":7},"topicConfigTable":{"T":' + TOPIC_JSON
    text += b"}}"

    assert java_json.decode(text, TopicConfigTable).topics == {"T": TOPIC_CONFIG}


def test_the_bounds_of_queues_are_written_as_java_writes_them() -> None:
    text = (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:'
        b'{"lastUpdateTimestamp":7,"maxOffset":9,"minOffset":1}},"topicPutTps":0.5}'
    )
    stats = TopicStats(
        queues=ObjectKeyed(
            {
                MessageQueue(broker_name="b", queue_id=0, topic="T"): QueueBounds(
                    last_update_ms=7, max_offset=9, min_offset=1
                )
            }
        ),
        puts_per_second=0.5,
    )

    assert java_json.encode(stats) == text
    assert java_json.decode(text, TopicStats) == stats


def test_group_names_come_back() -> None:
    assert java_json.encode(GroupNames(groups=["g"])) == b'{"groupList":["g"]}'
    assert java_json.decode(b'{"groupList":["g"]}', GroupNames).groups == ["g"]
