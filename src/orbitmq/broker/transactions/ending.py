"""Ending transactions: commits a half message to its queue, or rolls it back.

Only the group that prepared a transaction may end it, and only once.

Threads: the event loop's; a half that is not in memory is read off it.
Crash: the committed copy is in the log before its mark, and both before the reply.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.broker.durability import IN_MEMORY, Durability
from orbitmq.broker.transactions.half_messages import COMMIT, ROLL_BACK, committed
from orbitmq.disk import off_loop
from orbitmq.errors import RequestRefusedError, TopicMissingError
from orbitmq.model import property_names
from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.broker.confirmations import Confirmations
    from orbitmq.broker.transactions.half_messages import Half
    from orbitmq.broker.transactions.half_queue import HalfQueue
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.transactions import EndTransaction
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_CHECK_HINT: Final = "the broker will ask a producer of the group how it ended"


class Ending:
    """Commits and rolls back."""

    def __init__(
        self,
        store: MessageStore,
        halves: HalfQueue,
        confirmations: Confirmations,
        *,
        has_queue: Callable[[str, int], bool],
        on_committed: Callable[[Draft], None],
        clock: Clock,
    ) -> None:
        self._store = store
        self._halves = halves
        self._confirmations = confirmations
        self._has_queue = has_queue
        self._on_committed = on_committed
        self._clock = clock

    async def end(self, asked: EndTransaction) -> Durability:
        """Commit or roll back, and wait for the disk; returns how durable that is."""
        message = await self._read(asked)
        _check(asked, message)
        half = self._halves.find(message)
        if half is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"transaction {_id_of(message)!r} has ended already",
                hint="end each transaction once",
            )
        self._check_in_time(asked, half)
        end = self._commit(message, half) if asked.outcome == COMMIT else self._roll_back(half)
        return await self._durability(end)

    def _commit(self, message: StoredMessage, half: Half) -> PhysicalOffset:
        draft = committed(message, half)
        if not self._has_queue(draft.topic, draft.queue_id):
            raise TopicMissingError(
                f"the transaction is for queue {draft.queue_id} of topic {draft.topic!r}, which does "
                "not exist",
                hint=f"create it again: orbitmq topic create {draft.topic}; {_CHECK_HINT}",
            )
        self._store.append(draft)
        self._on_committed(draft)
        self._halves.outcomes.commit(half.topic)
        return self._halves.end(half)

    def _roll_back(self, half: Half) -> PhysicalOffset:
        end = self._halves.roll_back(half)
        self._halves.outcomes.roll_back(half.topic)
        return end

    async def _durability(self, end: PhysicalOffset) -> Durability:
        self._store.settle()
        if not self._confirmations.waits:
            return IN_MEMORY
        return await self._confirmations.wait_until_safe(end)

    async def _read(self, asked: EndTransaction) -> StoredMessage:
        """Read the half that a request names."""
        offset = asked.half_offset
        is_hidden = self._store.visible <= asked.physical_offset < self._store.log_end
        if is_hidden and self._confirmations.waits:
            # A copy for a check may be answered before it is safe.
            await self._confirmations.wait_until_safe(PhysicalOffset(asked.physical_offset + 1))
        message = None
        if offset >= 0:
            try:
                message = self._halves.read(offset, may_wait=False)
            except BlockingIOError:
                message = await off_loop(self._halves.read, offset)
        if message is None or message.physical_offset != asked.physical_offset:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"Find prepared transaction message failed: there is no half message at {offset} of "
                f"its queue and {asked.physical_offset} of the log",
                hint="it was deleted, or never was there",
            )
        return message

    def _check_in_time(self, asked: EndTransaction, half: Half) -> None:
        """Refuse an end that comes after the time the producer set, unless it answers a check."""
        if asked.is_answer or half.immunity_ms is None:
            return
        age_ms = self._clock.now_ms() - half.since_ms
        if age_ms > half.immunity_ms:
            raise RequestRefusedError(
                ResponseCode.ILLEGAL_OPERATION,
                f"the transaction was prepared {age_ms} ms ago; its producer set a limit of "
                f"{half.immunity_ms} ms ({property_names.CHECK_IMMUNITY_SECONDS})",
                hint=_CHECK_HINT,
            )


def _check(asked: EndTransaction, message: StoredMessage) -> None:
    """Refuse the end of another group, or of another transaction."""
    group = message.properties.get(property_names.PRODUCER_GROUP)
    if group != asked.producer_group:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"The producer group wrong: the transaction is of group {group!r}, not "
            f"{asked.producer_group[:255]!r}",
            hint="end it with a producer of its group",
        )
    own = _id_of(message)
    named = asked.transaction_id or asked.message_id
    # Compat: older clients name the message by where it is stored.
    if named and named not in (own, message.message_id):
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the half message there is of transaction {own!r}, not {named[:255]!r}",
            hint="end a transaction with the ids and offsets of its receipt",
        )
    if asked.outcome not in (COMMIT, ROLL_BACK):
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"commitOrRollback cannot be {asked.outcome}",
            hint="8 commits, 12 rolls back, 0 leaves it open",
        )


def _id_of(message: StoredMessage) -> str:
    return message.properties.get(property_names.UNIQUE_ID, "")
