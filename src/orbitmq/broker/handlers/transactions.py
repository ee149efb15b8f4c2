"""Ends of transactions, as producers report them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.broker.transactions.half_messages import UNKNOWN
from orbitmq.errors import OrbitError
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.transactions import EndTransaction
from orbitmq.store.log.draft import StoreDurability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.transactions.ending import Ending
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class TransactionRequests:
    """Ends transactions."""

    ending: Ending

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.END_TRANSACTION: self.end}

    async def end(self, connection: Connection, request: Command) -> Command:
        """Commit a half message, roll it back, or leave it open.

        Compat: RocketMQ does not answer an unknown end at all.
        """
        asked = EndTransaction.decode(request.fields)
        if asked.outcome == UNKNOWN:
            log.debug(
                "transaction left open group=%s id=%s peer=%s",
                asked.producer_group[:255], asked.transaction_id, connection.address,
            )  # fmt: skip
            return request.reply()
        try:
            durability = await self.ending.end(asked)
        except OrbitError as error:
            if request.is_oneway:
                # Java's clients do not wait for the outcome, so only the log can tell.
                log.warning(
                    "end of a transaction refused group=%s id=%s peer=%s reason=%s",
                    asked.producer_group[:255],
                    (asked.transaction_id or asked.message_id or "")[:255],
                    connection.address,
                    error,
                )
            raise
        if durability is StoreDurability.DISK_TIMEOUT:
            return request.reply(code=ResponseCode.FLUSH_DISK_TIMEOUT)
        return request.reply()
