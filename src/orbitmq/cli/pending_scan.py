"""Messages that are not due yet, found by reading the whole timer topic.

RocketMQ 5 brokers have no other way to tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.clock import SystemClock
from orbitmq.errors import RouteNotFoundError
from orbitmq.model import property_names
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.model.recall_handles import RecallHandle
from orbitmq.protocol.requests.pending import PendingMessage
from orbitmq.store.timers.layout import PRECISION_MS
from orbitmq.store.timers.timer_messages import asked_due_ms, whole_number

if TYPE_CHECKING:
    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.core.consuming.received_message import ReceivedMessage


async def scanned(admin: Admin) -> list[tuple[PendingMessage, ReceivedMessage]]:
    """Read the timer topic of all brokers; none has it if none has timers, as in RocketMQ 4."""
    try:
        return await _scanned(admin)
    except RouteNotFoundError:
        return []


async def _scanned(admin: Admin) -> list[tuple[PendingMessage, ReceivedMessage]]:
    now_ms = SystemClock().now_ms()
    found: dict[tuple[str, str, str], tuple[PendingMessage, ReceivedMessage]] = {}
    async for message in admin.messages.between(TIMER_TOPIC, 0, now_ms):
        slot_ms = whole_number(message.properties.get(property_names.TIMER_DUE_MS))
        topic = message.properties.get(property_names.REAL_TOPIC, "")
        unique_id = message.properties.get(property_names.UNIQUE_ID, "")
        if slot_ms is None or slot_ms + PRECISION_MS <= now_ms:
            continue
        if property_names.TIMER_CANCELS in message.properties:
            found.pop((message.broker_name, topic, unique_id), None)
            continue
        asked_ms = asked_due_ms(message.properties, message.store_ms) or slot_ms + PRECISION_MS
        due_ms = min(max(asked_ms, slot_ms + 1), slot_ms + PRECISION_MS)
        if due_ms > now_ms:
            handle = RecallHandle(
                topic=topic,
                broker_name=message.broker_name,
                time_ms=slot_ms + 1,
                unique_id=unique_id,
            )
            pending = PendingMessage(
                message_id=unique_id,
                topic=topic,
                due_ms=due_ms,
                stored_ms=message.store_ms,
                keys=" ".join(message.keys),
                body_bytes=len(message.body),
                recall_handle=handle.encode(),
            )
            found[message.broker_name, topic, unique_id] = pending, message
    return list(found.values())
