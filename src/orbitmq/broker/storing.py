"""Storing: how handlers store messages and wait until they are safe.

Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.broker.durability import IN_MEMORY, Durability
from orbitmq.errors import RequestRefusedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.log.draft import Receipt
from orbitmq.store.reading.memory_log import FIRST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.confirmations import Confirmations
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore

_RETRY: Final = "the request may have taken effect; retry it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where messages are stored, and how durable they are so far."""

    receipts: Sequence[Receipt]
    durability: Durability


class Storing:
    """Stores messages, and waits until they are as safe as the broker promises."""

    def __init__(
        self,
        store: MessageStore,
        confirmations: Confirmations,
        *,
        lacks_copies: Callable[[], str] = lambda: "",
    ) -> None:
        """Make it.

        Args:
            store: where messages go.
            confirmations: says when they are safe.
            lacks_copies: why nothing may be stored for want of slaves; empty if it may.
        """
        self._store = store
        self._confirmations = confirmations
        self._lacks_copies = lacks_copies

    @property
    def body_bytes_max(self) -> int:
        """The largest body, also of a batch."""
        return self._store.appender.body_bytes_max

    async def put(self, drafts: Sequence[Draft], *, wait: bool = True) -> Stored:
        """Store messages of one queue, all or none of them.

        Without `wait` it returns before they are safe.
        """
        return await self.confirm(self._store.append_batch(drafts), wait=wait)

    async def confirm(self, receipts: Sequence[Receipt], *, wait: bool = True) -> Stored:
        """Publish messages that were appended, and wait as `put` does."""
        durability = IN_MEMORY
        self._store.settle()
        end = receipts[-1].end
        if wait and self._confirmations.waits and end < FIRST_OFFSET:
            durability = await self._confirmations.wait_until_safe(end)
        return Stored(receipts=receipts, durability=durability)

    async def put_durably(self, drafts: Sequence[Draft]) -> Sequence[Receipt]:
        """Store messages of one queue and wait for disk and slaves, whatever the flush mode.

        Raises if they are not safe in time: they may be stored, and whoever retries must cope with
        that. While too few slaves are near, nobody waits for them, unless they are required.
        """
        self._check_copies()
        receipts = self._store.append_batch(drafts)
        self._store.publish()
        self._store.request_flush()
        reached = await self._confirmations.wait_until_safe(receipts[-1].end, on_disk=True)
        if reached.late:
            raise RequestRefusedError(reached.code, reached.late, hint=_RETRY)
        if reached.code is ResponseCode.SLAVE_NOT_AVAILABLE:
            self._check_copies()
        return receipts

    def _check_copies(self) -> None:
        lacking = self._lacks_copies()
        if lacking:
            raise RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, lacking, hint=_RETRY)
