"""Transactions: ended by producers, listed and checked for tools."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from orbitmq.broker.transactions.half_messages import UNKNOWN
from orbitmq.errors import OrbitError, RequestRefusedError
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.transactions import (
    CheckTransactions,
    EndTransaction,
    ListTransactions,
    ResumeTransaction,
)
from orbitmq.transport.request_loop import starts_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.transactions.ending import Ending
    from orbitmq.broker.transactions.open_transactions import OpenTransactions
    from orbitmq.broker.transactions.resuming import Resuming
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class TransactionRequests:
    """Ends, lists and checks transactions."""

    ending: Ending
    open_transactions: OpenTransactions
    resuming: Resuming
    # False while the broker starts or stops.
    is_open: Callable[[], bool]

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.LIST_TRANSACTIONS: self.list_open,
            RequestCode.CHECK_TRANSACTIONS: self.check,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    @starts_at_once
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
        return request.reply(code=durability.code)

    @starts_at_once
    async def list_open(self, connection: Connection, request: Command) -> Command:
        """List open transactions, or those with one id."""
        asked = ListTransactions.decode(request.fields)
        page = await self.open_transactions.page(
            asked.transaction_id,
            asked.limit,
            check_wanted=partial(self._check_wanted, connection),
        )
        return request.reply(body=msgspec.json.encode(page))

    @starts_at_once
    async def check(self, connection: Connection, request: Command) -> Command:
        """Have producers asked about open transactions now."""
        asked = CheckTransactions.decode(request.fields)
        sent = await self.open_transactions.check(
            asked.transaction_id,
            asked.limit,
            check_wanted=partial(self._check_wanted, connection),
        )
        log.info(
            "transactions checked on request asked=%d without_producer=%d peer=%s",
            sent.asked, sent.without_producer, connection.address,
        )  # fmt: skip
        return request.reply(body=msgspec.json.encode(sent))

    def _check_wanted(self, connection: Connection) -> None:
        """Refuse what only a tool wants once the tool is gone, or the broker has to stop."""
        if connection.closed:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY, f"the connection of {connection.address} is closed"
            )
        if not self.is_open():
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST] the broker is stopping"
            )

    async def resume(self, connection: Connection, request: Command) -> Command:
        """Have producers asked again about a transaction that was given up."""
        asked = ResumeTransaction.decode(request.fields)
        await self.resuming.resume(asked.message_id)
        log.info("transaction resumed id=%s peer=%s", asked.message_id, connection.address)
        return request.reply()
