"""Pulls, the ordinary way: those that the hot path passes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.requests.pulling import PullMessages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.delivery.pulls import Pulls
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False)
class PullRequests:
    """Hands messages to consumers."""

    pulls: Pulls

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return dict.fromkeys((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), self.pull)

    def pull(self, connection: Connection, request: Command) -> None:
        """Answer a pull, now or later; raises if it is refused."""
        reply = self.pulls.answer(
            connection,
            PullMessages.decode(request.fields),
            opaque=request.opaque,
            encoding=request.encoding,
            is_oneway=request.is_oneway,
        )
        if reply:
            connection.write(reply)
