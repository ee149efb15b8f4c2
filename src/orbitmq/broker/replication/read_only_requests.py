"""Requests that change nothing a master decides: those a slave answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import RequestRefusedError
from orbitmq.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

_ANSWERED: Final = frozenset(
    {
        # Reading.
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        # Consumers, which commit here while the master is gone.
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.CHECK_CLIENT_CONFIG,
        # Tables and figures.
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.FOLLOW_MASTER,
        RequestCode.READ_STANDING,
        RequestCode.LIST_QUEUE_ENDS,
        RequestCode.LIST_STORE_TABLES,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.LIST_QUERIES,
        RequestCode.LIST_ARCHIVES,
        # This broker alone.
        RequestCode.PROMOTE_BROKER,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
    }
)


def read_only_handlers(
    handlers: Mapping[int, Handler], why: Callable[[], tuple[str, str]]
) -> dict[int, Handler]:
    """Handlers of which those refuse that change something; `why` is a reason and a hint."""

    def refuse(_: Connection, __: Command) -> Command:
        reason, hint = why()
        # Compat: clients try another broker then.
        raise RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, reason, hint=hint)

    return {code: handler if code in _ANSWERED else refuse for code, handler in handlers.items()}
