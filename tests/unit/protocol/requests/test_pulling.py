"""Pull requests and their replies: names on the wire."""

from __future__ import annotations

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pulling import (
    LitePullMessages,
    PullFlag,
    PullForbidden,
    PullMessages,
    PullReply,
)

REQUIRED = {
    "consumerGroup": "g",
    "topic": "T",
    "queueId": "1",
    "queueOffset": "7",
    "maxMsgNums": "32",
    "sysFlag": "3",
    "commitOffset": "5",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1700000000000",
}
OPTIONAL = {
    "subscription": "TagA || TagB",
    "expressionType": "TAG",
    "maxMsgBytes": "262144",
    "requestSource": "1",
    "proxyFrowardClientId": "c",
    "bname": "broker-a",
}


@pytest.mark.parametrize(("kind", "code"), [(PullMessages, 11), (LitePullMessages, 361)])
def test_a_pull_has_its_code_and_javas_field_names(kind: type[PullMessages], code: int) -> None:
    header = kind(
        consumer_group="g",
        topic="T",
        queue_id=1,
        queue_offset=Long(7),
        messages_max=32,
        system_flag=PullFlag.COMMIT_OFFSET | PullFlag.SUSPEND,
        commit_offset=Long(5),
        suspend_timeout_ms=Long(15_000),
        expression="TagA || TagB",
        subscription_version=Long(1_700_000_000_000),
        expression_type="TAG",
        bytes_max=262_144,
        request_source=1,
        proxied_client_id="c",
        broker_name="broker-a",
    )

    fields = header.encode()

    assert code == kind.CODE
    assert fields == REQUIRED | OPTIONAL
    assert kind.decode(fields) == header


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_pull_without_a_required_field_is_refused(missing: str) -> None:
    fields = {name: text for name, text in REQUIRED.items() if name != missing}

    with pytest.raises(ProtocolError, match=f"field '{missing}' of PullMessages is missing"):
        PullMessages.decode(fields)


def test_what_the_go_client_leaves_out_is_not_there() -> None:
    header = PullMessages.decode(REQUIRED)

    assert (header.expression, header.expression_type, header.bytes_max) == (None, None, None)
    assert header.encode() == REQUIRED


def test_flags_have_javas_bits() -> None:
    lite = PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL

    assert lite == 0b10110
    assert PullFlag(1) is PullFlag.COMMIT_OFFSET
    assert PullFlag(8) is PullFlag.CLASS_FILTER


def test_a_reply_has_javas_field_names() -> None:
    reply = PullReply(
        suggested_broker_id=Long(1), next_offset=Long(8), min_offset=Long(0), max_offset=Long(9)
    )

    fields = reply.encode()

    assert fields == {
        "suggestWhichBrokerId": "1",
        "nextBeginOffset": "8",
        "minOffset": "0",
        "maxOffset": "9",
    }
    assert PullReply.decode(fields) == reply


def test_a_refusal_says_what_forbids_the_pull() -> None:
    reply = PullReply(
        suggested_broker_id=Long(0),
        next_offset=Long(0),
        min_offset=Long(0),
        max_offset=Long(0),
        offset_delta=Long(2),
        topic_unit_flag=1,
        group_unit_flag=0,
        forbidden=PullForbidden.GROUP,
    )

    fields = reply.encode()

    assert fields["forbiddenType"] == "2"
    assert (fields["offsetDelta"], fields["topicSysFlag"], fields["groupSysFlag"]) == (
        "2",
        "1",
        "0",
    )
    assert PullReply.decode(fields) == reply
