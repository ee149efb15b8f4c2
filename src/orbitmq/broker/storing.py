"""Storing: how handlers store messages and wait for the disk.

Threads: the event loop's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.errors import RequestRefusedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.config import FlushMode
from orbitmq.store.log.draft import Receipt, StoreDurability
from orbitmq.store.reading.memory_log import FIRST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.confirmations import Confirmations
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where messages are stored, and how durable they are so far."""

    receipts: Sequence[Receipt]
    durability: StoreDurability

    @property
    def code(self) -> ResponseCode:
        """The response code for the producer."""
        if self.durability is StoreDurability.DISK_TIMEOUT:
            return ResponseCode.FLUSH_DISK_TIMEOUT
        return ResponseCode.SUCCESS


class Storing:
    """Stores messages, and waits for the disk if the flush mode promises that."""

    def __init__(
        self, store: MessageStore, confirmations: Confirmations, *, flush_mode: FlushMode
    ) -> None:
        self._store = store
        self._confirmations = confirmations
        self._is_sync = flush_mode is FlushMode.SYNC

    @property
    def body_bytes_max(self) -> int:
        """The largest body, also of a batch."""
        return self._store.appender.body_bytes_max

    async def put(self, drafts: Sequence[Draft], *, wait: bool = True) -> Stored:
        """Store messages of one queue, all or none of them.

        Without `wait` it returns before they are on disk.
        """
        return await self.confirm(self._store.append_batch(drafts), wait=wait)

    async def confirm(self, receipts: Sequence[Receipt], *, wait: bool = True) -> Stored:
        """Publish messages that were appended, and wait for the disk as `put` does."""
        durability = StoreDurability.MEMORY
        if not self._is_sync:
            self._store.publish()
        else:
            self._store.request_flush()
            if wait and receipts[-1].end < FIRST_OFFSET:
                durability = await self._confirmations.wait_for_disk(receipts[-1].end)
        return Stored(receipts=receipts, durability=durability)

    async def put_durably(self, drafts: Sequence[Draft]) -> Sequence[Receipt]:
        """Store messages of one queue and wait for the disk, whatever the flush mode."""
        receipts = self._store.append_batch(drafts)
        self._store.publish()
        self._store.request_flush()
        durability = await self._confirmations.wait_for_disk(receipts[-1].end)
        if durability is not StoreDurability.DISK:
            raise RequestRefusedError(
                ResponseCode.FLUSH_DISK_TIMEOUT,
                "the flush took longer than syncFlushTimeout",
                hint="the request may have taken effect; retry it",
            )
        return receipts
