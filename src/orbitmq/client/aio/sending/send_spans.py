"""A sender that makes an OpenTelemetry span of each send.

Threads: one event loop. The span's parent is the current one of the caller, in whichever thread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec
from opentelemetry.trace import INVALID_SPAN

from orbitmq.client.aio.sending.sender import Sender
from orbitmq.client.core.tracing.spans import ClientSpans

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.aio.sending.attempts import PendingSend, SendRequest
    from orbitmq.client.aio.sending.send_hooks import SendHooks
    from orbitmq.client.core.sending.send_results import SendResult
    from orbitmq.client.options import ProducerOptions
    from orbitmq.model.messages import Message

log = logging.getLogger(__name__)


class SpanSender(Sender):
    """Sends for one producer, and makes spans."""

    def __init__(
        self, instance: ClientInstance, *, group: str, options: ProducerOptions, hooks: SendHooks
    ) -> None:
        super().__init__(instance, group=group, options=options, hooks=hooks)
        self._spans = ClientSpans(client_id=instance.client_id, namespace=options.namespace)
        # Sends whose span has begun, but which must wait for a route or for compression.
        self._begun: dict[asyncio.Future[SendResult], tuple[Span, SendRequest]] = {}

    def created(self, message: Message) -> Message:
        """Make the span of a message that waits to be sent in a batch."""
        try:
            return self._spans.start_create(message)
        except Exception:
            log.exception("no span for a message")
            return message

    def begin_now(
        self, request: SendRequest, done: asyncio.Future[SendResult]
    ) -> PendingSend | None:
        """Make the first attempt at once; None if it must wait."""
        span, traced = self._start(request, done)
        try:
            sending = super().begin_now(traced, done)
        except Exception as error:
            self._spans.end_send(span, None, error)
            raise
        if sending is None:
            self._begun[done] = span, traced
        return sending

    async def begin_when_ready(
        self, request: SendRequest, done: asyncio.Future[SendResult]
    ) -> PendingSend:
        """Wait for what the first attempt needs, then make it."""
        begun = self._begun.pop(done) if done in self._begun else self._start(request, done)
        span, traced = begun
        try:
            return await super().begin_when_ready(traced, done)
        except BaseException as error:
            self._spans.end_send(span, None, error)
            raise

    async def send_oneway(self, request: SendRequest) -> None:
        """Send once, without a reply."""
        span, traced = self._begin(request)
        error: BaseException | None = None
        try:
            await super().send_oneway(traced)
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._spans.end_send(span, None, error)

    def _start(
        self, request: SendRequest, done: asyncio.Future[SendResult]
    ) -> tuple[Span, SendRequest]:
        span, traced = self._begin(request)

        def end(_: object) -> None:
            self._begun.pop(done, None)
            if done.cancelled():
                self._spans.end_send(span, None, asyncio.CancelledError("the send was cancelled"))
            elif (error := done.exception()) is not None:
                self._spans.end_send(span, None, error)
            else:
                result = done.result()
                address = self.targets.address_of(result.queue.broker_name)
                self._spans.end_send(span, result, None, address)

        done.add_done_callback(end)
        return span, traced

    def _begin(self, request: SendRequest) -> tuple[Span, SendRequest]:
        """Start the span; a failure of the application's tracing set-up fails no send."""
        try:
            span, messages = self._spans.start_send(request.message)
        except Exception:
            log.exception("no span for a send")
            return INVALID_SPAN, request
        return span, msgspec.structs.replace(request, message=messages)
