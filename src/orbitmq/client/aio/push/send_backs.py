"""Sends failed messages back to the broker, to be delivered again later.

First it asks the broker to make the copy itself. If that fails, the client sends a copy to the
retry topic of the group. If that fails too, the consumer keeps the message: it is never lost.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import OrbitError
from orbitmq.model import property_names
from orbitmq.model.messages import Message
from orbitmq.model.names import retry_topic
from orbitmq.record.properties import property_value

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.broker_calls import BrokerCalls
    from orbitmq.client.core.consuming.received_message import ReceivedMessage

log = logging.getLogger(__name__)

# Compat: the delay level of the first copy that a client sends; each further one adds a level.
_FIRST_DELAY_LEVEL: Final = 3


class SendBacks:
    """Sends messages of one group back; `send` sends an ordinary message."""

    def __init__(
        self,
        brokers: BrokerCalls,
        group: str,
        *,
        retries_max: int,
        send: Callable[[Message], Awaitable[object]],
    ) -> None:
        self._brokers = brokers
        self._group = group
        self._retries_max = retries_max
        self._send = send

    async def send_back(self, message: ReceivedMessage, delay_level: int, reason: str = "") -> bool:
        """Have a message delivered again; False if that failed, and the consumer must keep it."""
        try:
            await self._brokers.send_back(
                message,
                self._group,
                delay_level=delay_level,
                retries_max=self._retries_max,
                reason=reason,
            )
        except OrbitError as error:
            log.warning(
                "broker did not take a message back, sending a copy group=%s broker=%s message=%s "
                "reason=%s",
                self._group,
                message.broker_name,
                message.message_id,
                error,
            )
            return await self.send_copy(message, reason)
        return True

    async def send_copy(self, message: ReceivedMessage, reason: str = "") -> bool:
        """Send a copy to the retry topic; without retries left, brokers make it a dead letter."""
        try:
            copy = retry_copy(message, self._group, retries_max=self._retries_max, reason=reason)
            await self._send(copy)
        except OrbitError as error:
            log.warning(
                "copy not sent, the consumer keeps the message group=%s message=%s reason=%s",
                self._group,
                message.message_id,
                error,
            )
            return False
        return True


def retry_copy(
    message: ReceivedMessage, group: str, *, retries_max: int, reason: str = ""
) -> Message:
    """Make the message that a client sends to the retry topic of its group."""
    retries = message.reconsume_times
    properties = dict(message.properties)
    properties.pop(property_names.HALF_MESSAGE, None)
    origin = properties.get(property_names.ORIGIN_MESSAGE_ID) or message.offset_message_id
    properties |= {
        property_names.ORIGIN_MESSAGE_ID: origin,
        property_names.RETRY_TOPIC: (
            properties.get(property_names.RETRY_TOPIC) or message.stored_queue.topic
        ),
        property_names.RETRIES: str(retries + 1),
        property_names.RETRIES_MAX: str(retries_max),
        property_names.DELAY_LEVEL: str(_FIRST_DELAY_LEVEL + retries),
    }
    if reason:
        properties[property_names.FAILURE_REASON] = property_value(reason)
    return Message(retry_topic(group), message.body, flag=message.flag).with_reserved(properties)
