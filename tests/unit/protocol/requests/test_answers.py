"""Answers to messages, under the names that Java reads."""

from __future__ import annotations

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.requests.answers import PushAnswer

FIELDS = {
    "producerGroup": "g",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "1",
    "sysFlag": "0",
    "bornTimestamp": "11",
    "flag": "5",
    "properties": "CORRELATION_ID\x01c\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "bornHost": "10.0.0.1:1",
    "storeHost": "10.0.0.2:2",
    "storeTimestamp": "12",
}


def test_an_answer_travels_under_the_names_of_java() -> None:
    answer = PushAnswer.decode(FIELDS)

    assert answer.store_timestamp_ms == 12
    assert answer.encode() == FIELDS


def test_an_answer_without_a_host_is_refused() -> None:
    with pytest.raises(ProtocolError, match="bornHost"):
        PushAnswer.decode({name: text for name, text in FIELDS.items() if name != "bornHost"})
