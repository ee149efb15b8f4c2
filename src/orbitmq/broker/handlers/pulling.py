"""Pulls, the ordinary way: what the hot path leaves, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.requests.pulling import PullMessages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.delivery.pulls import Pulls
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


class PullRequests:
    """Hands messages to consumers."""

    def __init__(self, pulls: Pulls) -> None:
        self._pulls = pulls

    def by_code(self) -> Mapping[int, Handler]:
        """Give the handler of each request code."""
        return dict.fromkeys((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), self.pull)

    def pull(self, connection: Connection, request: Command) -> None:
        """Answer a pull by itself, now or later; a refusal is raised."""
        reply = self._pulls.answer(
            connection,
            PullMessages.decode(request.fields),
            opaque=request.opaque,
            encoding=request.encoding,
            is_oneway=request.is_oneway,
        )
        if reply:
            connection.write(reply)
