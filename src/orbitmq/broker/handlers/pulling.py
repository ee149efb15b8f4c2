"""Pulls, the ordinary way: what the hot path leaves, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.hot_headers import PullFields
from orbitmq.protocol.requests.pulling import PullMessages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.delivery.pulls import Pulls
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


class Pulling:
    """Hands messages to consumers."""

    def __init__(self, pulls: Pulls) -> None:
        self._pulls = pulls

    def by_code(self) -> Mapping[int, Handler]:
        """Give the handler of each request code."""
        return dict.fromkeys((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), self.pull)

    def pull(self, connection: Connection, request: Command) -> None:
        """Answer a pull by itself, now or later; a refusal is raised."""
        asked = PullMessages.decode(request.fields)
        reply = self._pulls.answer(
            connection,
            PullFields(
                group=asked.consumer_group,
                topic=asked.topic,
                queue_id=asked.queue_id,
                offset=asked.queue_offset,
                count_max=asked.messages_max,
                system_flag=asked.system_flag,
                commit_offset=asked.commit_offset,
                hold_ms=asked.suspend_timeout_ms,
                expression=asked.expression or "",
                subscription_version=asked.subscription_version,
                expression_type=asked.expression_type or "",
                bulk_count=asked.bulk_count or 0,
                bulk_bytes=asked.bulk_bytes or 0,
            ),
            opaque=request.opaque,
            encoding=request.encoding,
            is_oneway=request.is_oneway,
        )
        if reply:
            connection.write(reply)
