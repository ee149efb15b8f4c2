"""Requests that find messages: names on the wire."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests.queries import (
    FindMessages,
    FindMessagesReply,
    QueueEntries,
    QueueEntry,
    ReadMessage,
    ReadQueueEntries,
)

BY_KEY = {"topic": "T", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9"}


@pytest.mark.parametrize(
    ("header", "code", "fields"),
    [
        (
            FindMessages(
                topic="T",
                key="k",
                messages_max=32,
                begin_ms=Long(0),
                end_ms=Long(9),
                by_unique_key=True,
            ),
            12,
            {**BY_KEY, "_UNIQUE_KEY_QUERY": "true"},
        ),
        (ReadMessage(physical_offset=Long(1000)), 33, {"offset": "1000"}),
        (
            ReadMessage(physical_offset=Long(1000), topic="T"),
            33,
            {"offset": "1000", "topic": "T"},
        ),
        (
            ReadQueueEntries(
                topic="T", queue_id=1, queue_offset=Long(5), count=10, consumer_group="g"
            ),
            321,
            {"topic": "T", "queueId": "1", "index": "5", "count": "10", "consumerGroup": "g"},
        ),
    ],
)
def test_a_request_has_its_code_and_javas_field_names(
    header: Header, code: int, fields: dict[str, str]
) -> None:
    assert code == header.CODE
    assert header.encode() == fields
    assert type(header).decode(fields) == header


def test_a_key_is_one_that_the_sender_chose_unless_said_otherwise() -> None:
    assert not FindMessages.decode(BY_KEY).by_unique_key


@pytest.mark.parametrize("missing", BY_KEY)
def test_a_search_without_a_required_field_is_refused(missing: str) -> None:
    fields = {name: text for name, text in BY_KEY.items() if name != missing}

    with pytest.raises(ProtocolError, match=f"field '{missing}' of FindMessages is missing"):
        FindMessages.decode(fields)


def test_a_reply_has_javas_field_names() -> None:
    fields = {"indexLastUpdateTimestamp": "7", "indexLastUpdatePhyoffset": "1000"}

    reply = FindMessagesReply(indexed_until_ms=Long(7), indexed_until=Long(1000))

    assert reply.encode() == fields
    assert FindMessagesReply.decode(fields) == reply


def test_entries_of_a_queue_come_back() -> None:
    text = (
        b'{"maxQueueIndex":9,"minQueueIndex":0,"queueData":[{"eval":true,"physicOffset":1000,'
        b'"physicSize":104,"tagsCode":2598919}],"subscriptionData":{"classFilterMode":false,'
        b'"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":0,"tagsSet":[],'
        b'"topic":"T"}}'
    )
    entries = QueueEntries(
        max_offset=9,
        min_offset=0,
        entries=[
            QueueEntry(physical_offset=1000, record_bytes=104, tag_hash=2598919, matches=True)
        ],
        subscription=Subscription(topic="T", expression="*"),
    )

    assert java_json.encode(entries) == text
    assert java_json.decode(text, QueueEntries) == entries
