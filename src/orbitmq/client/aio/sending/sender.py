"""The sender: what all sends of one producer share, and how each begins.

Threads: one event loop; large bodies are compressed in another thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client.aio.sending.attempts import (
    Asked,
    PendingSend,
    SendParts,
    command_of,
    new_context,
)
from orbitmq.client.aio.sending.send_targets import SendTargets, Target, Way
from orbitmq.client.core.sending import send_plan
from orbitmq.client.core.sending.encoded_messages import EncodedMessages
from orbitmq.client.core.sending.outgoing import Compressing, Outgoing, Preparing
from orbitmq.errors import (
    BrokerUnknownError,
    FailedTry,
    MessageError,
    MessageTypeError,
    OrbitError,
)
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue
from orbitmq.record.compression import Compression

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.aio.sending.send_hooks import SendHooks
    from orbitmq.client.core.sending.send_results import SendResult
    from orbitmq.client.options import ProducerOptions


class Sender:
    """Sends for one producer."""

    def __init__(
        self, instance: ClientInstance, *, group: str, options: ProducerOptions, hooks: SendHooks
    ) -> None:
        self.targets = SendTargets(instance, group=group, options=options)
        self._parts = SendParts(
            instance, group=group, options=options, hooks=hooks, targets=self.targets
        )
        self._preparing = Preparing(
            instance.unique_ids,
            namespace=options.namespace,
            body_bytes_max=options.max_message_bytes,
            compressing=Compressing(
                kind=Compression[options.compress_kind.upper()],
                level=options.compress_level,
                over_bytes=options.compress_above_bytes,
            ),
        )

    # --- how a send begins --------------------------------------------------------------------

    def begin(self, asked: Asked, done: asyncio.Future[SendResult]) -> PendingSend | None:
        """Make the first try at once; None when something has to be waited for before."""
        if self._preparing.takes_long(asked.message):
            return None
        outgoing = self._preparing.prepare(asked.message)
        target = self.targets.known(outgoing.topic)
        if target is None:
            return None
        way: Way | None = None
        if asked.queue is not None or asked.selector is not None:
            way = target.way_to(_chosen_queue(asked, target))
            if way is None:
                return None
        now_ms = self._parts.clock.monotonic_ms()
        sending = PendingSend(
            self._parts, asked, outgoing, target, way, now_ms + asked.timeout_ms, done
        )
        sending.begin(now_ms)
        return sending

    async def begin_slowly(self, asked: Asked, done: asyncio.Future[SendResult]) -> PendingSend:
        """Wait for what the first try needs, and make it."""
        deadline_ms = self._parts.clock.monotonic_ms() + asked.timeout_ms
        outgoing, target, way = await self._prepare(asked, deadline_ms)
        sending = PendingSend(self._parts, asked, outgoing, target, way, deadline_ms, done)
        sending.begin(self._parts.clock.monotonic_ms())
        return sending

    async def send_oneway(self, asked: Asked) -> None:
        """Send once, without an answer."""
        began_ms = self._parts.clock.monotonic_ms()
        deadline_ms = began_ms + asked.timeout_ms
        outgoing, target, way = await self._prepare(asked, deadline_ms)
        now_ms = self._parts.clock.monotonic_ms()
        if way is None:
            way = target.ways[target.choice.next(self._parts.faults, now_ms)]
        address = self.targets.address_of(way.broker_name)
        context = None
        if self._parts.hooks:
            context = new_context(self._parts, asked, outgoing, way, address or "")
            self._parts.hooks.before(context)
        try:
            if address is None:
                raise BrokerUnknownError(way.broker_name, topic=outgoing.topic)
            await self._send_oneway(outgoing, way, address, deadline_ms)
        except OrbitError as error:
            if context is not None:
                context.error = error
            ended_ms = self._parts.clock.monotonic_ms()
            if send_plan.is_fault_of_broker(error):
                self._parts.faults.note_failure(way.broker_name, ended_ms)
            if send_plan.makes_route_doubtful(error):
                self.targets.refresh_soon(outgoing.topic)
            raise send_plan.failure(
                way.shown.topic,
                [FailedTry(way.broker_name, address or "", error, ended_ms - now_ms)],
                elapsed_ms=ended_ms - began_ms,
                timeout_ms=asked.timeout_ms,
            ) from error
        finally:
            if context is not None:
                self._parts.hooks.after(context)

    async def _prepare(
        self, asked: Asked, deadline_ms: float
    ) -> tuple[Outgoing, Target, Way | None]:
        """Find out all that a send needs, however long each step takes."""
        if self._preparing.takes_long(asked.message):
            outgoing = await asyncio.to_thread(self._preparing.prepare, asked.message)
        else:
            outgoing = self._preparing.prepare(asked.message)
        target = await self.targets.find(
            outgoing.topic, timeout_ms=deadline_ms - self._parts.clock.monotonic_ms()
        )
        if asked.queue is None and asked.selector is None:
            return outgoing, target, None
        queue = _chosen_queue(asked, target)
        left_ms = deadline_ms - self._parts.clock.monotonic_ms()
        return outgoing, target, await self.targets.find_way(target, queue, timeout_ms=left_ms)

    async def _send_oneway(
        self, outgoing: Outgoing, way: Way, address: str, deadline_ms: float
    ) -> None:
        connection = self._parts.rpc.ready(address)
        if connection is not None and outgoing.retries is None:
            frame = way.frames.encode(
                connection.unused_opaque(),
                outgoing.body,
                outgoing.properties,
                outgoing.flag,
                outgoing.system_flag,
                self._parts.clock.now_ms(),
                batch=outgoing.is_batch,
                oneway=True,
            )
            connection.send_oneway(frame)
        else:
            command = command_of(outgoing, way, self._parts.clock.now_ms())
            left_ms = deadline_ms - self._parts.clock.monotonic_ms()
            await self._parts.rpc.invoke_oneway(address, command, timeout_ms=left_ms)

    # --- the end ------------------------------------------------------------------------------

    async def all_ended(self) -> None:
        """Return once no send is under way; each ends by its deadline."""
        await self._parts.all_ended()

    async def stop(self) -> None:
        """Give up what runs beside the sends."""
        await self.targets.stop()


def _chosen_queue(asked: Asked, target: Target) -> MessageQueue:
    """Give the queue of the user's choice."""
    queue = asked.queue
    by = "queue"
    if asked.selector is not None:
        if queue is not None:
            raise MessageError("a send got both a queue and a selector", hint="give one of them")
        if not callable(asked.selector):
            raise MessageTypeError(
                "selector", asked.selector, takes="a function of queues, message and argument"
            )
        message = asked.message
        if isinstance(message, EncodedMessages):
            raise MessageError("a selector cannot look into encoded messages", hint="give a queue")
        first = message if isinstance(message, Message) else message[0]
        queue = asked.selector(target.shown, first, asked.argument)
        by = "what the selector returned"
    if not isinstance(queue, MessageQueue):
        raise MessageTypeError(by, queue, takes="a MessageQueue")
    if not target.is_topic_of(queue):
        raise target.no_such(queue)
    return queue
