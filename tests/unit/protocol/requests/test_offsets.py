"""Requests about offsets: names on the wire, and bodies for every kind of consumer."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests.offsets import (
    CloneOffsets,
    CommitOffset,
    GetAllCommittedOffsets,
    GetCommittedOffset,
    GetDelayProgress,
    GetMaxOffset,
    GetMinOffset,
    GetOldestTime,
    OffsetReply,
    OldestTimeReply,
    QueueOffsetList,
    QueueOffsets,
    ResetConsumerOffsets,
    ResetOffsets,
    SearchOffset,
)

QUEUE = {"topic": "T", "queueId": "1"}
GROUP = {"consumerGroup": "g", **QUEUE}


@pytest.mark.parametrize(
    ("header", "code", "fields"),
    [
        (GetCommittedOffset(consumer_group="g", topic="T", queue_id=1), 14, GROUP),
        (
            GetCommittedOffset(consumer_group="g", topic="T", queue_id=1, zero_if_missing=False),
            14,
            {**GROUP, "setZeroIfNotFound": "false"},
        ),
        (
            CommitOffset(
                consumer_group="g", topic="T", queue_id=1, commit_offset=Long(9), broker_name="b"
            ),
            15,
            {**GROUP, "commitOffset": "9", "bname": "b"},
        ),
        (
            SearchOffset(topic="T", queue_id=1, timestamp_ms=Long(7), boundary="UPPER"),
            29,
            {**QUEUE, "timestamp": "7", "boundaryType": "UPPER"},
        ),
        (GetMaxOffset(topic="T", queue_id=1), 30, {**QUEUE, "committed": "true"}),
        (GetMinOffset(topic="T", queue_id=1), 31, QUEUE),
        (GetOldestTime(topic="T", queue_id=1), 32, QUEUE),
        (GetAllCommittedOffsets(), 43, {}),
        (GetDelayProgress(), 45, {}),
        (
            ResetOffsets(topic="T", group="g", timestamp_ms=Long(-1), force=True),
            222,
            {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true", "queueId": "-1"},
        ),
        (
            ResetConsumerOffsets(
                topic="T", group="g", timestamp_ms=Long(7), force=False, queue_id=1, offset=Long(5)
            ),
            220,
            {
                **QUEUE,
                "group": "g",
                "timestamp": "7",
                "isForce": "false",
                "offset": "5",
            },
        ),
        (
            CloneOffsets(source_group="a", target_group="b", topic="T", offline=True),
            314,
            {"srcGroup": "a", "destGroup": "b", "topic": "T", "offline": "true"},
        ),
    ],
)
def test_a_request_has_its_code_and_javas_field_names(
    header: Header, code: int, fields: dict[str, str]
) -> None:
    assert code == header.CODE
    assert header.encode() == fields
    assert type(header).decode(fields) == header


@pytest.mark.parametrize("missing", ["consumerGroup", "topic", "queueId", "commitOffset"])
def test_a_commit_without_a_required_field_is_refused(missing: str) -> None:
    fields = {**GROUP, "commitOffset": "9"}
    del fields[missing]

    with pytest.raises(ProtocolError, match=f"field '{missing}' of CommitOffset is missing"):
        CommitOffset.decode(fields)


def test_a_clone_goes_over_all_topics_unless_one_is_named() -> None:
    assert CloneOffsets.decode({"srcGroup": "a", "destGroup": "b"}) == CloneOffsets(
        source_group="a", target_group="b", topic=None, offline=False
    )


@pytest.mark.parametrize(
    ("boundary", "upper"),
    [(None, False), ("LOWER", False), ("UPPER", True), ("upper", True), ("other", False)],
)
def test_the_upper_boundary_is_asked_for_by_name(boundary: str | None, *, upper: bool) -> None:
    header = SearchOffset(topic="T", queue_id=1, timestamp_ms=Long(7), boundary=boundary)

    assert header.wants_last_before is upper


def test_replies_have_javas_field_names() -> None:
    assert OffsetReply(offset=Long(5)).encode() == {"offset": "5"}
    assert OffsetReply.decode({"offset": "5"}).offset == 5
    assert OldestTimeReply(timestamp_ms=Long(-1)).encode() == {"timestamp": "-1"}
    assert OldestTimeReply.decode({"timestamp": "-1"}).timestamp_ms == -1


def test_offsets_are_keyed_by_queues_as_java_and_go_read_them() -> None:
    offsets = QueueOffsets(
        offsets=ObjectKeyed({MessageQueue(broker_name="b", queue_id=0, topic="T"): 5})
    )

    encoded = java_json.encode(offsets)

    assert encoded == b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'
    assert java_json.decode(encoded, QueueOffsets) == offsets


def test_offsets_with_quoted_keys_are_read_too() -> None:
    text = rb'{"offsetTable":{"{\"topic\":\"T\",\"brokerName\":\"b\",\"queueId\":0}":5}}'

    assert java_json.decode(text, QueueOffsets).offsets == {
        MessageQueue(broker_name="b", queue_id=0, topic="T"): 5
    }


def test_offsets_are_a_list_for_cpp() -> None:
    offsets = QueueOffsets(
        offsets=ObjectKeyed({MessageQueue(broker_name="b", queue_id=0, topic="T"): 5})
    )

    encoded = java_json.encode(offsets.as_list())

    assert encoded == b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"}]}'
    assert java_json.decode(encoded, QueueOffsetList) == offsets.as_list()
