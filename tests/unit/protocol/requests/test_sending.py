"""Send requests: the same fields under long names and under letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.sending import (
    SendBatch,
    SendMessage,
    SendMessageShort,
    SendReply,
)

# Long name and letter of every field, with a value; the first eight are required.
FIELDS = [
    ("producerGroup", "a", "g"),
    ("topic", "b", "T"),
    ("defaultTopic", "c", "TBW102"),
    ("defaultTopicQueueNums", "d", "4"),
    ("queueId", "e", "-1"),
    ("sysFlag", "f", "769"),
    ("bornTimestamp", "g", "1700000000000"),
    ("flag", "h", "7"),
    ("properties", "i", "TAGS\x01TagA\x02"),
    ("reconsumeTimes", "j", "1"),
    ("unitMode", "k", "false"),
    ("maxReconsumeTimes", "l", "16"),
    ("batch", "m", "true"),
    ("bname", "n", "broker-a"),
]
REQUIRED = FIELDS[:8]
BY_NAME = {name: text for name, _, text in FIELDS}
BY_LETTER = {letter: text for _, letter, text in FIELDS}
VALUES = {
    "producer_group": "g",
    "topic": "T",
    "template_topic": "TBW102",
    "template_queues": 4,
    "queue_id": -1,
    "system_flag": 769,
    "born_timestamp_ms": Long(1_700_000_000_000),
    "flag": 7,
    "properties": "TAGS\x01TagA\x02",
    "retries": 1,
    "unit_mode": False,
    "retries_max": 16,
    "batch": True,
    "broker_name": "broker-a",
}


@pytest.mark.parametrize(
    ("kind", "code", "fields"),
    [
        (SendMessage, 10, BY_NAME),
        (SendMessageShort, 310, BY_LETTER),
        (SendBatch, 320, BY_LETTER),
    ],
)
def test_every_field_has_javas_name_or_letter(
    kind: type[SendMessage], code: int, fields: dict[str, str]
) -> None:
    header = kind.decode(fields)

    assert code == kind.CODE
    assert {name: getattr(header, name) for name in VALUES} == VALUES
    assert type(header) is kind
    assert header.encode() == fields


@pytest.mark.parametrize("name", [name for name, _, _ in REQUIRED])
def test_a_send_without_a_required_field_is_refused(name: str) -> None:
    letter = next(letter for known, letter, _ in FIELDS if known == name)

    for kind, fields in ((SendMessage, BY_NAME), (SendMessageShort, BY_LETTER)):
        there = {key: text for key, text in fields.items() if key not in {name, letter}}
        with pytest.raises(ProtocolError, match=f"field '{name}' of {kind.__name__} is missing"):
            kind.decode(there)


def test_what_old_clients_leave_out_is_not_there() -> None:
    header = SendMessageShort.decode({letter: text for _, letter, text in REQUIRED})

    assert (header.properties, header.retries, header.retries_max) == (None, None, None)
    assert (header.batch, header.unit_mode, header.broker_name) == (None, None, None)
    assert set(header.encode()) == set("abcdefgh")


def test_a_letter_means_nothing_among_long_names() -> None:
    with pytest.raises(ProtocolError, match="field 'producerGroup' of SendMessage is missing"):
        SendMessage.decode(BY_LETTER)


@given(st.text(), st.integers(-(2**31), 2**31 - 1))
def test_a_send_comes_back(properties: str, queue_id: int) -> None:
    required = {letter: text for _, letter, text in REQUIRED}
    header = SendMessageShort.decode({**required, "i": properties, "e": str(queue_id)})

    assert (header.properties, header.queue_id) == (properties, queue_id)
    assert SendMessageShort.decode(header.encode()) == header


def test_a_reply_says_where_the_message_is_and_what_java_looks_up_besides() -> None:
    reply = SendReply(
        message_id="C0A8010A00002A9F000000000001E240", queue_id=1, queue_offset=Long(7)
    )

    fields = reply.encode()

    assert fields == {
        "msgId": "C0A8010A00002A9F000000000001E240",
        "queueId": "1",
        "queueOffset": "7",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert SendReply.decode(fields) == reply


def test_a_reply_may_name_a_transaction_a_batch_and_a_recall_handle() -> None:
    reply = SendReply(
        message_id="id",
        queue_id=0,
        queue_offset=Long(0),
        transaction_id="t",
        batch_unique_id="b",
        recall_handle="r",
        region="r1",
        trace=False,
    )

    fields = reply.encode()

    assert fields == {
        "msgId": "id",
        "queueId": "0",
        "queueOffset": "0",
        "transactionId": "t",
        "batchUniqId": "b",
        "recallHandle": "r",
        "MSG_REGION": "r1",
        "TRACE_ON": "false",
    }
    assert SendReply.decode(fields) == reply
