"""From the code of an answer to its error."""

from __future__ import annotations

import pytest

from orbitmq.errors import (
    BusyError,
    MasterReplacedError,
    NeedsOrbitError,
    NotSupportedError,
    RemoteError,
    RouteNotFoundError,
)
from orbitmq.protocol.codes import OWN_CODES, RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.failures import raise_for_failure

ADDRESS = "127.0.0.1:9876"
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
SEND = RequestCode.SEND_MESSAGE
REGISTER = RequestCode.REGISTER_BROKER


def test_success_raises_nothing() -> None:
    asked = Command(code=ROUTE)

    raise_for_failure(asked, asked.reply(), ADDRESS)


@pytest.mark.parametrize(
    ("request_code", "response_code", "kind", "retryable"),
    [
        (ROUTE, ResponseCode.SYSTEM_ERROR, RemoteError, False),
        (ROUTE, ResponseCode.SYSTEM_BUSY, BusyError, True),
        (SEND, ResponseCode.FLOW_CONTROL, BusyError, True),
        (SEND, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, NotSupportedError, False),
        (OWN_CODES.start, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, NeedsOrbitError, False),
        (ROUTE, ResponseCode.TOPIC_NOT_EXIST, RouteNotFoundError, True),
        (SEND, ResponseCode.TOPIC_NOT_EXIST, RemoteError, False),
        (REGISTER, ResponseCode.ILLEGAL_OPERATION, MasterReplacedError, False),
        (REGISTER, ResponseCode.SYSTEM_ERROR, RemoteError, False),
        (SEND, ResponseCode.ILLEGAL_OPERATION, RemoteError, False),
        (SEND, 4711, RemoteError, False),
        (SEND, -1, RemoteError, False),
    ],
)
def test_each_code_has_its_error(
    request_code: int, response_code: int, kind: type[RemoteError], *, retryable: bool
) -> None:
    asked = Command(code=request_code)
    answer = asked.reply(code=response_code, remark="so it is")

    with pytest.raises(RemoteError) as raised:
        raise_for_failure(asked, answer, ADDRESS)

    error = raised.value
    assert type(error) is kind
    assert error.retryable is retryable
    assert (error.code, error.remark) == (response_code, "so it is")


def test_the_message_names_address_call_code_and_remark() -> None:
    asked = Command(code=ROUTE)

    with pytest.raises(RouteNotFoundError) as raised:
        raise_for_failure(asked, asked.reply(code=17), ADDRESS)

    assert str(raised.value) == (
        "127.0.0.1:9876 answered GET_ROUTEINFO_BY_TOPIC (105) with code 17: no remark"
        " (create the topic, or check its name)"
    )
