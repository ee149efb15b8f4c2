"""Resuming: has producers asked again about a transaction that was given up.

Threads: the event loop's; records are read off it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.broker.transactions.half_messages import copied, resumed
from orbitmq.disk import off_loop
from orbitmq.errors import MessageError, RequestRefusedError
from orbitmq.model import property_names
from orbitmq.model.names import CHECKED_TOO_OFTEN_TOPIC, HALF_TOPIC
from orbitmq.protocol.codes import ResponseCode
from orbitmq.record.message_id import decode_message_id

if TYPE_CHECKING:
    from orbitmq.broker.storing import Storing
    from orbitmq.broker.transactions.half_queue import HalfQueue
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.log.draft import Receipt
    from orbitmq.store.message_store import MessageStore


class Resuming:
    """Opens transactions again, or has their checks counted from the start."""

    def __init__(self, store: MessageStore, halves: HalfQueue, storing: Storing) -> None:
        self._store = store
        self._halves = halves
        self._storing = storing
        # One at a time: a message that was given up is opened again once.
        self._lock = asyncio.Lock()

    async def resume(self, message_id: str) -> None:
        """Resume the transaction of a half message, or of one that was given up, by its place."""
        _, _, physical_offset = decode_message_id(message_id)
        async with self._lock:
            message = await off_loop(self._store.message_at, physical_offset)
            if message is None or message.topic not in (HALF_TOPIC, CHECKED_TOO_OFTEN_TOPIC):
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"message {message_id!r} belongs to no transaction that can be resumed",
                    hint=f"name a message of {CHECKED_TOO_OFTEN_TOPIC}, or an open half message",
                )
            if message.topic == HALF_TOPIC:
                receipt = self._restart_checks(message)
            else:
                receipt = await self._open_again(message)
            await self._storing.confirm([receipt])

    def _restart_checks(self, message: StoredMessage) -> Receipt:
        half = self._halves.find(message)
        if half is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "the transaction of this half message has ended already",
                hint=f"one that was given up is in {CHECKED_TOO_OFTEN_TOPIC}",
            )
        newest = self._halves.copy(half, copied(message, half, checks=0), checks=0)
        return self._halves.receipt_of(newest)

    async def _open_again(self, message: StoredMessage) -> Receipt:
        unique_id = message.properties.get(property_names.UNIQUE_ID, "")
        if not unique_id or not self._store.has_key_index:
            # Only the index tells whether it was, and twice would deliver it twice.
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"transaction {unique_id!r} may have been resumed before, which is found by its id "
                "in the key index only",
                hint="start the broker with messageIndexEnable=true"
                if unique_id
                else "it has no id; send its message again",
            )
        others = await off_loop(self._store.find, HALF_TOPIC, unique_id)
        if any(other.physical_offset > message.physical_offset for other in others):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"transaction {unique_id!r} was resumed before",
                hint="see whether it is open: orbitmq transaction show ID",
            )
        topic = message.properties.get(property_names.REAL_TOPIC, "")
        queue_id = message.properties.get(property_names.REAL_QUEUE_ID, "")
        if not topic or not queue_id.isdecimal():
            raise MessageError(f"the message at {message.physical_offset} names no valid queue")
        return self._halves.prepare(
            resumed(message), topic=topic, queue_id=int(queue_id[:10]), immunity_ms=None
        )
