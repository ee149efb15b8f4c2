"""Requests by message, and the wait for the reply of the consumer that gets them.

The reply comes from a broker as a call (326), so the brokers must know this client before the
request is sent: those of the cluster's reply topic, as a replier may use any of them.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from orbitmq.client.aio.sending.attempts import SendRequest
from orbitmq.client.core import namespaces
from orbitmq.client.core.request_reply import as_request, reply_message, reply_topic
from orbitmq.client.core.sending.send_plan import SendMode
from orbitmq.clock import time_limit
from orbitmq.errors import (
    MessageTypeError,
    OrbitError,
    ReplyNotDeliveredError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendError,
    SendTimeoutError,
)
from orbitmq.model.messages import Message

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.aio.sending.send_targets import SendTarget
    from orbitmq.client.aio.sending.sender import Sender
    from orbitmq.client.core.consuming.consume_results import Reply
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.client.core.sending.queue_selectors import Selector
    from orbitmq.client.core.sending.send_results import SendResult
    from orbitmq.client.core.topic_routes import PublishRoute
    from orbitmq.client.options import ProducerOptions
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue

# Brokers that do not reply to a heartbeat are left alone for this long.
_UNREACHABLE_MS: Final = 5_000.0
_TOPICS_MAX: Final = 10_000


class Requesting:
    """Sends the requests of one producer, and waits for their replies."""

    def __init__(self, instance: ClientInstance, sender: Sender, options: ProducerOptions) -> None:
        self._instance = instance
        self._sender = sender
        self._options = options
        self._clock = instance.clock
        self._introducing = asyncio.Lock()
        # The reply topics of the clusters that requests went to.
        self.reply_topics: set[str] = set()
        # By topic: its route, and the brokers that may deliver replies.
        self._repliers: dict[str, tuple[PublishRoute, tuple[str, ...]]] = {}
        # Until when a broker is not tried again.
        self._unreachable: dict[str, float] = {}

    async def request(
        self,
        message: Message,
        *,
        timeout_ms: float,
        queue: MessageQueue | None,
        selector: Selector | None,
        argument: Any,
    ) -> ReceivedMessage:
        """Send a request, and return the reply."""
        if not isinstance(message, Message):
            raise MessageTypeError("the request", message, takes="a Message")
        answers = self._instance.answers
        send_timeout_ms, left_ms = self._options.send_timeout_ms, timeout_ms
        correlation_id = str(uuid.uuid4())
        request = as_request(
            message,
            client_id=self._instance.client_id,
            correlation_id=correlation_id,
            timeout_ms=timeout_ms,
        )
        answer = answers.expect(correlation_id)
        sent: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        sent.add_done_callback(partial(_fail, answer))
        try:
            async with time_limit(self._clock, timeout_ms):
                began_ms = self._clock.monotonic_ms()
                await self._introduce(message.topic, timeout_ms=timeout_ms)
                left_ms = timeout_ms - (self._clock.monotonic_ms() - began_ms)
                await self._send(
                    SendRequest(
                        request,
                        SendMode.ASYNC,
                        max(1.0, min(left_ms, send_timeout_ms)),
                        queue,
                        selector,
                        argument,
                    ),
                    sent,
                )
                return await answer
        except (TimeoutError, SendTimeoutError) as error:
            if isinstance(error, SendTimeoutError) and send_timeout_ms < left_ms:
                raise
            raise RequestTimeoutError(
                message.topic,
                correlation_id,
                timeout_ms=timeout_ms,
                sent=sent.done() and not sent.cancelled() and sent.exception() is None,
            ) from error
        finally:
            answers.forget(correlation_id)

    async def _send(self, request: SendRequest, sent: asyncio.Future[SendResult]) -> None:
        # The reply may arrive before the acknowledgement, which nobody waits for then.
        if self._sender.begin_now(request, sent) is None:
            await self._sender.begin_when_ready(request, sent)

    async def _introduce(self, topic: str, *, timeout_ms: float) -> None:
        """Make sure that the brokers which may deliver the reply know this client."""
        wrapped = namespaces.wrap(self._options.namespace, topic)
        target = self._sender.targets.known(wrapped)
        if target is None:
            target = await self._sender.targets.find(wrapped, timeout_ms=timeout_ms)
        known = self._repliers.get(wrapped)
        if known is None or known[0] is not target.route:
            known = await self._find_repliers(wrapped, target, timeout_ms=timeout_ms)
        strangers = self._instance.unaware(known[1])
        if strangers:
            async with self._introducing:
                await self._introduce_to(strangers, timeout_ms=timeout_ms / 2)

    async def _introduce_to(self, addresses: set[str], *, timeout_ms: float) -> None:
        now_ms = self._clock.monotonic_ms()
        strangers = {
            address
            for address in self._instance.unaware(addresses)
            if self._unreachable.get(address, 0.0) <= now_ms
        }
        if not strangers:
            return
        # A broker that is down must not take all the time: others may deliver the reply.
        with suppress(TimeoutError):
            async with time_limit(self._clock, timeout_ms):
                await self._instance.introduce_to(strangers)
        until_ms = self._clock.monotonic_ms() + _UNREACHABLE_MS
        self._unreachable = dict.fromkeys(self._instance.unaware(strangers), until_ms)

    async def _find_repliers(
        self, wrapped: str, target: SendTarget, *, timeout_ms: float
    ) -> tuple[PublishRoute, tuple[str, ...]]:
        routes = self._instance.routes
        names = {queue.broker_name for queue in target.route.queues}
        for cluster in routes.clusters_of(names):
            topic = reply_topic(cluster)
            try:
                found = await self._sender.targets.find(topic, timeout_ms=timeout_ms)
            except RouteNotFoundError:
                continue
            self.reply_topics.add(topic)
            names |= {queue.broker_name for queue in found.route.queues}
        addresses = tuple(
            address for name in names if (address := routes.master_of(name)) is not None
        )
        if len(self._repliers) >= _TOPICS_MAX:
            self._repliers.clear()
        self._repliers[wrapped] = target.route, addresses
        return target.route, addresses


def _fail(answer: asyncio.Future[ReceivedMessage], sent: asyncio.Future[SendResult]) -> None:
    """End a request whose send has failed."""
    if not sent.cancelled() and (error := sent.exception()) is not None and not answer.done():
        answer.set_exception(error)


async def send_reply(
    sender: Sender,
    request: ReceivedMessage,
    reply: Reply,
    *,
    timeout_ms: float,
    retries: int,
    clock: Clock,
) -> SendResult:
    """Send a reply by the broker that the request came from, or else by others of the cluster."""
    message = reply_message(request, reply)
    deadline_ms = clock.monotonic_ms() + timeout_ms
    target = await sender.targets.find(message.topic, timeout_ms=timeout_ms)
    by_broker = {queue.broker_name: queue for queue in reversed(target.queues)}
    first = by_broker.pop(request.broker_name, None)
    queues = [*([first] if first is not None else []), *by_broker.values()]
    failure: OrbitError | None = None
    for queue in queues[: retries + 1]:
        left_ms = deadline_ms - clock.monotonic_ms()
        if left_ms <= 0 and failure is not None:
            break
        # At least one attempt, whose failure then says what took the time.
        left_ms = max(1.0, left_ms)
        attempt = SendRequest(message, SendMode.AWAITED, left_ms, queue, None, None)
        try:
            return await sender.send(attempt)
        except SendError as error:
            cause = error.__cause__
            failure = cause if isinstance(cause, ReplyNotDeliveredError) else failure or error
    assert failure is not None
    raise failure
