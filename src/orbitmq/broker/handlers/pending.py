"""Messages that are not due yet, for tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from orbitmq.errors import RequestRefusedError
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.pending import CountPending, DeliverPending, ListPending

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.timers.pending_messages import PendingMessages
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False, kw_only=True)
class PendingRequests:
    """Lists, counts and brings forward messages."""

    pending: PendingMessages
    is_enabled: Callable[[], bool]
    # Why sends are refused now, as a code and a remark; None if they are accepted.
    refusal: Callable[[], tuple[ResponseCode, str] | None]

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.LIST_PENDING: self.list_,
            RequestCode.COUNT_PENDING: self.count,
            RequestCode.DELIVER_PENDING: self.deliver,
        }

    async def list_(self, _: Connection, request: Command) -> Command:
        """List messages, page by page."""
        self._check_enabled()
        page = await self.pending.page(ListPending.decode(request.fields))
        return request.reply(body=msgspec.json.encode(page))

    async def count(self, _: Connection, request: Command) -> Command:
        """Count messages by due time."""
        self._check_enabled()
        counts = await self.pending.counts(CountPending.decode(request.fields))
        return request.reply(body=msgspec.json.encode(counts))

    async def deliver(self, _: Connection, request: Command) -> Command:
        """Deliver a message before its time."""
        self._check_enabled()
        refusal = self.refusal()
        if refusal is not None:
            raise RequestRefusedError(*refusal)
        asked = DeliverPending.decode(request.fields)
        await self.pending.bring_forward(asked.message_id, asked.topic)
        return request.reply()

    def _check_enabled(self) -> None:
        if not self.is_enabled():
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "timers are off",
                hint="set timerWheelEnable=true and restart the broker",
            )
