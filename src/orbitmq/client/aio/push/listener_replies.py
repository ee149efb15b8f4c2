"""Replies that listeners return, sent to the programs that wait for them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.client.aio.sending.producer import inner_producer
from orbitmq.errors import MessageError, OrbitError

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.core.consuming.consume_results import Reply
    from orbitmq.client.core.consuming.received_message import ReceivedMessage

log = logging.getLogger(__name__)


class ListenerReplies:
    """Sends the replies of one consumer's listener.

    A message is done even if its reply cannot be delivered: nobody waits for another one.
    """

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._loop = asyncio.get_running_loop()

    async def send(self, message: ReceivedMessage, reply: Reply) -> None:
        """Send the reply to a message; raises MessageError if the reply is invalid."""
        if not message.wants_reply:
            log.debug("reply dropped, nobody asked for one message=%r", message)
            return
        producer = await self._instance.inner_producer(inner_producer)
        try:
            await producer.reply(message, reply)
        except MessageError:
            raise
        except OrbitError as error:
            log.warning("reply not delivered message=%r reason=%s", message, error)

    def send_from_thread(self, message: ReceivedMessage, reply: Reply) -> None:
        """Do the same from the thread of a plain listener, which waits."""
        asyncio.run_coroutine_threadsafe(self.send(message, reply), self._loop).result()
