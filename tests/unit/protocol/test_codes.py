"""The table of codes."""

from __future__ import annotations

import pytest

from orbitmq.protocol.codes import (
    NOBODY,
    OWN_CODES,
    PLANNED,
    RequestCode,
    ResponseCode,
    request_name,
)


def test_no_two_rows_share_a_number() -> None:
    assert len(RequestCode.__members__) == len({int(code) for code in RequestCode})
    assert len(ResponseCode.__members__) == len({int(code) for code in ResponseCode})


def test_every_request_has_a_receiver_and_a_purpose() -> None:
    for code in RequestCode:
        assert code.receivers, code
        assert code.purpose, code


def test_only_a_receiver_answers() -> None:
    for code in RequestCode:
        assert code.answered_by in {NOBODY, code.answered_by & code.receivers}, code


def test_planned_requests_are_not_answered_yet() -> None:
    assert [code for code in PLANNED if code.answered_by] == []


def test_no_code_of_rocketmq_is_in_our_own_range() -> None:
    assert [code.name for code in RequestCode if code in OWN_CODES] == [
        "STAGE_ROWS",
        "DECIDE_WRITES",
        "APPOINT_COORDINATOR",
        "MOVE_ROWS",
        "LIST_QUERIES",
        "FORGET_QUERY",
        "LIST_TRANSACTIONS",
        "CHECK_TRANSACTIONS",
        "FOLLOW_MASTER",
        "READ_STANDING",
        "PROMOTE_BROKER",
        "LIST_QUEUE_ENDS",
        "LIST_QUEUE_LOCKS",
        "LIST_STORE_TABLES",
        "LIST_PENDING",
        "COUNT_PENDING",
        "DELIVER_PENDING",
        "OPEN_ARCHIVE",
        "ADVANCE_ARCHIVE",
        "LIST_ARCHIVES",
        "RELEASE_ARCHIVE",
        "FORGET_EPOCH",
    ]


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (RequestCode.SEND_MESSAGE, 10),
        (RequestCode.PULL_MESSAGE, 11),
        (RequestCode.HEART_BEAT, 34),
        (RequestCode.REGISTER_BROKER, 103),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, 105),
        (RequestCode.SEND_MESSAGE_V2, 310),
        (RequestCode.QUERY_DATA_VERSION, 322),
        (RequestCode.LITE_PULL_MESSAGE, 361),
        (RequestCode.BROKER_HEARTBEAT, 904),
        (RequestCode.SWITCH_TIMER_ENGINE, 5001),
        (RequestCode.POP_MESSAGE, 200_050),
        (RequestCode.TRIGGER_LITE_DISPATCH, 200_079),
        (ResponseCode.SUCCESS, 0),
        (ResponseCode.TOPIC_NOT_EXIST, 17),
        (ResponseCode.QUERY_NOT_FOUND, 22),
    ],
)
def test_codes_that_every_client_depends_on_have_their_numbers(
    code: RequestCode | ResponseCode, number: int
) -> None:
    assert code == number


def test_a_request_is_named_whether_known_or_not() -> None:
    assert request_name(105) == "GET_ROUTEINFO_BY_TOPIC (105)"
    assert request_name(200_074) == "GET_BROKER_LITE_INFO (200074)"
    assert request_name(99_999) == "request code 99999"
    assert request_name(-1) == "request code -1"
