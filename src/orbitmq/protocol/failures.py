"""The one table from failure codes in answers to errors."""

from __future__ import annotations

from typing import Final

from orbitmq.errors import (
    BusyError,
    MasterReplacedError,
    NeedsOrbitError,
    NotSupportedError,
    RemoteError,
    ReplyNotDeliveredError,
    RouteNotFoundError,
)
from orbitmq.protocol.codes import OWN_CODES, RequestCode, ResponseCode, request_name
from orbitmq.protocol.command import Command

_ERRORS: Final[dict[int, tuple[type[RemoteError], str]]] = {
    ResponseCode.SYSTEM_BUSY: (BusyError, "retry after a pause"),
    ResponseCode.FLOW_CONTROL: (BusyError, "retry after a pause"),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: (
        NotSupportedError,
        "the server is older, or has another role",
    ),
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: (RemoteError, "correct the expression"),
}
_ROUTE_ERROR: Final = (RouteNotFoundError, "create the topic, or check its name")
_ANSWERS: Final = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
_ANSWER_ERROR: Final = (
    ReplyNotDeliveredError,
    "the requester has stopped, has lost its connection, or has waited long enough",
)
_REGISTER_ERROR: Final = (MasterReplacedError, "start this broker as a slave")
NEEDS_ORBIT: Final = "this needs an OrbitMQ broker"
_OWN_CODE_ERROR: Final = (NeedsOrbitError, NEEDS_ORBIT)


def raise_for_failure(request: Command, response: Command, address: str) -> None:
    """Raise the error of a response's code, unless it is success."""
    if response.code != ResponseCode.SUCCESS:
        raise failure_of(request.code, response, address)


def failure_of(asked: int, response: Command, address: str) -> RemoteError:
    """Make the error of a response to a request of code `asked`."""
    code = response.code
    kind, hint = _ERRORS.get(code, (RemoteError, ""))
    if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and asked in OWN_CODES:
        kind, hint = _OWN_CODE_ERROR
    if code == ResponseCode.TOPIC_NOT_EXIST and asked == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        kind, hint = _ROUTE_ERROR
    if code == ResponseCode.ILLEGAL_OPERATION and asked == RequestCode.REGISTER_BROKER:
        kind, hint = _REGISTER_ERROR
    if code == ResponseCode.SYSTEM_ERROR and asked in _ANSWERS:
        kind, hint = _ANSWER_ERROR
    return kind(code, response.remark, call=request_name(asked), address=address, hint=hint)
