"""Replies that listeners return, sent to the programs that wait for them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.sending.producer import inner_producer
from orbitmq.errors import MessageError, OrbitError

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.core.consuming.consume_results import Reply
    from orbitmq.client.core.consuming.received_message import ReceivedMessage

log = logging.getLogger(__name__)

# Replies that find nobody are logged at most this often: with several repliers to each request, as
# in broadcasting, that is most of them.
_REPEAT_MS: Final = 60_000


class ListenerReplies:
    """Sends the replies of one consumer's listener.

    A message is done even if its reply cannot be delivered: nobody waits for another one.
    """

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._loop = asyncio.get_running_loop()
        # Since the last one that was logged.
        self._undelivered = 0
        self._log_again_ms = instance.clock.monotonic_ms()

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
            self._note(message, error)

    def _note(self, message: ReceivedMessage, error: OrbitError) -> None:
        self._undelivered += 1
        now_ms = self._instance.clock.monotonic_ms()
        if now_ms >= self._log_again_ms:
            log.warning(
                "reply not delivered times=%d message=%r reason=%s",
                self._undelivered,
                message,
                error,
            )
            self._undelivered, self._log_again_ms = 0, now_ms + _REPEAT_MS

    def send_from_thread(self, message: ReceivedMessage, reply: Reply) -> None:
        """Do the same from the thread of a plain listener, which waits."""
        asyncio.run_coroutine_threadsafe(self.send(message, reply), self._loop).result()
