"""Topics as brokers store and report them."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.model.topics import Permission, TopicConfig, UnitFlag


def test_a_topic_is_written_as_java_writes_it() -> None:
    topic = TopicConfig(name="T", read_queues=4, write_queues=8, attributes={"a": "b"})

    assert java_json.encode(topic) == (
        b'{"attributes":{"a":"b"},"order":false,"perm":6,"readQueueNums":4,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}'
    )
    assert java_json.decode(java_json.encode(topic), TopicConfig) == topic


def test_a_topic_of_4_9_has_no_attributes() -> None:
    text = b'{"order":true,"perm":4,"topicName":"T","topicSysFlag":2}'

    assert java_json.decode(text, TopicConfig) == TopicConfig(
        name="T", order=True, permission=4, unit_flag=2, read_queues=16, write_queues=16
    )


def test_null_attributes_are_no_attributes() -> None:
    assert java_json.decode(b'{"topicName":"T","attributes":null}', TopicConfig).attributes == {}


def test_topics_do_not_share_their_attributes() -> None:
    TopicConfig(name="T").attributes["a"] = "b"

    assert TopicConfig(name="T").attributes == {}


@pytest.mark.parametrize("member", ["perm", "readQueueNums", "writeQueueNums", "topicSysFlag"])
def test_numbers_wider_than_javas_are_refused(member: str) -> None:
    with pytest.raises(ProtocolError):
        java_json.decode(f'{{"{member}":2147483648}}'.encode(), TopicConfig)


def test_bits_have_the_values_of_java() -> None:
    assert [int(bit) for bit in Permission] == [1, 2, 4, 8]
    assert [int(bit) for bit in UnitFlag] == [1, 2]
    assert Permission.READ | Permission.WRITE == 6


def test_permissions_can_be_queried() -> None:
    topic = TopicConfig(name="T", permission=Permission.READ | Permission.INHERIT)

    assert topic.is_readable
    assert topic.is_template
    assert not topic.is_writable
    assert not TopicConfig(name="T").is_template
