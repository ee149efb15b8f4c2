"""Limits on the bodies of requests."""

from __future__ import annotations

import pytest

from orbitmq.errors import BodyTooLargeError
from orbitmq.protocol.body_limits import BODY_BYTES_MAX, body_bytes_max, check_body
from orbitmq.protocol.codes import RequestCode


def test_the_body_of_a_heartbeat_is_bounded() -> None:
    check_body(RequestCode.HEART_BEAT, BODY_BYTES_MAX)
    with pytest.raises(BodyTooLargeError, match=r"HEART_BEAT.* 1048577 bytes.* limit of 1048576"):
        check_body(RequestCode.HEART_BEAT, BODY_BYTES_MAX + 1)


def test_lists_of_topics_may_be_larger() -> None:
    check_body(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, 4 * BODY_BYTES_MAX)
    with pytest.raises(BodyTooLargeError):
        check_body(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, 4 * BODY_BYTES_MAX + 1)


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.STAGE_ROWS,
        RequestCode.REGISTER_BROKER,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    ],
)
def test_requests_with_messages_or_all_topics_may_fill_a_frame(code: RequestCode) -> None:
    check_body(code, 2**31)

    assert body_bytes_max(code) is None


def test_every_other_request_has_a_limit() -> None:
    assert sum(body_bytes_max(code) is None for code in RequestCode) == 10
