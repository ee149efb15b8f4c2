"""Administers messages that are not due yet: lists, counts, delivers them early."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.errors import NotSupportedError
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pending import (
    CountPending,
    DeliverPending,
    ListPending,
    PendingCounts,
    PendingMessage,
    PendingPage,
)

if TYPE_CHECKING:
    from orbitmq.client.aio.admin.reach import Reach

_PAGE: Final = 500


@dataclass(slots=True, eq=False)
class Pending:
    """Works with the pending messages of OrbitMQ's brokers, which have requests for it."""

    _reach: Reach

    async def brokers(self) -> tuple[dict[str, str], dict[str, str]]:
        """The brokers that have these requests, and those that do not: address by name."""
        able: dict[str, str] = {}
        unable: dict[str, str] = {}
        for name, address in (await self._reach.masters()).items():
            try:
                await self._reach.ask(address, _count(1, 1, 1000))
            except NotSupportedError:
                unable[name] = address
            else:
                able[name] = address
        return able, unable

    async def find(self, address: str, message_id: str) -> list[PendingMessage]:
        """The pending messages of a broker with an id."""
        header = ListPending(
            message_id=message_id, due_from_ms=Long(0), due_until_ms=Long(0), limit=_PAGE
        )
        return (await self._page(address, header)).messages

    async def at(
        self, address: str, *, topic: str = "", due_from_ms: int = 0, due_until_ms: int = 0
    ) -> AsyncIterator[PendingMessage]:
        """List the pending messages of a broker, those due in earlier seconds first."""
        cursor: str | None = None
        while cursor != "":
            header = ListPending(
                topic=topic or None,
                due_from_ms=Long(due_from_ms),
                due_until_ms=Long(due_until_ms),
                cursor=cursor,
                limit=_PAGE,
            )
            page = await self._page(address, header)
            for message in sorted(page.messages, key=lambda one: one.due_ms):
                yield message
            cursor = page.cursor

    async def counts(
        self, address: str, *, span_ms: int, due_from_ms: int = 0, due_until_ms: int = 0
    ) -> dict[int, int]:
        """Count the pending messages of a broker by span of due time."""
        counts: dict[int, int] = {}
        while True:
            reply = await self._reach.ask(address, _count(due_from_ms, due_until_ms, span_ms))
            part = msgspec.json.decode(reply.body, type=PendingCounts)
            for start_ms, count in part.counts:
                counts[start_ms] = counts.get(start_ms, 0) + count
            if not part.next_ms:
                return counts
            due_from_ms = part.next_ms

    async def deliver(self, address: str, message_id: str, topic: str) -> None:
        """Have a message delivered now, instead of at its due time."""
        await self._reach.ask(address, DeliverPending(message_id=message_id, topic=topic))

    async def _page(self, address: str, header: ListPending) -> PendingPage:
        reply = await self._reach.ask(address, header)
        return msgspec.json.decode(reply.body, type=PendingPage)


def _count(due_from_ms: int, due_until_ms: int, span_ms: int) -> CountPending:
    return CountPending(
        due_from_ms=Long(due_from_ms), due_until_ms=Long(due_until_ms), span_ms=Long(span_ms)
    )
