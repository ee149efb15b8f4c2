"""Administers open transactions: what waits for its end, and who was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from orbitmq.errors import NotSupportedError, TransactionMissingError
from orbitmq.protocol.requests.transactions import (
    ChecksSent,
    CheckTransactions,
    ListTransactions,
    OpenTransaction,
    TransactionPage,
)

if TYPE_CHECKING:
    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.protocol.headers import Header

T = TypeVar("T")

LIMIT: Final = 100


@dataclass(slots=True, eq=False)
class Transactions:
    """Lists open transactions, and has producers asked about them; needs OrbitMQ's brokers."""

    _reach: Reach

    async def open(self, *, limit: int = LIMIT) -> dict[str, TransactionPage]:
        """List the open transactions of each broker, those that wait longest first."""
        return await self._pages(None, limit)

    async def find(self, transaction_id: str) -> dict[str, list[OpenTransaction]]:
        """Find the open transactions with an id, by broker; raises if there is none."""
        pages = await self._pages(transaction_id, LIMIT)
        found = {name: page.transactions for name, page in pages.items() if page.transactions}
        if not found:
            raise _missing(transaction_id)
        return found

    async def check(
        self, transaction_id: str | None = None, *, limit: int = LIMIT
    ) -> dict[str, ChecksSent]:
        """Have producers asked now: about the transactions with an id, or those that wait longest.

        Those that were asked about within the last second are not asked about again.
        """
        header = CheckTransactions(transaction_id=transaction_id, limit=limit)
        sent = await self._ask_all(header, ChecksSent)
        if transaction_id is not None and not any(
            each.asked + each.without_producer for each in sent.values()
        ):
            raise _missing(transaction_id)
        return sent

    async def _pages(self, transaction_id: str | None, limit: int) -> dict[str, TransactionPage]:
        header = ListTransactions(transaction_id=transaction_id, limit=limit)
        return await self._ask_all(header, TransactionPage)

    async def _ask_all(self, header: Header, kind: type[T]) -> dict[str, T]:
        """Ask each broker that can tell; raises NotSupportedError if there are others only."""
        replies: dict[str, T] = {}
        refusal: NotSupportedError | None = None
        for name, address in (await self._reach.masters()).items():
            try:
                reply = await self._reach.ask(address, header)
            except NotSupportedError as error:
                # Compat: RocketMQ's brokers cannot tell.
                refusal = error
            else:
                replies[name] = msgspec.json.decode(reply.body, type=kind)
        if refusal is not None and not replies:
            raise refusal
        return replies


def _missing(transaction_id: str) -> TransactionMissingError:
    return TransactionMissingError(
        f"no open transaction has the id {transaction_id[:255]!r}",
        hint="it has ended, or never was; see the open ones: orbitmq transaction list",
    )
