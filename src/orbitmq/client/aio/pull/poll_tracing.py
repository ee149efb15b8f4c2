"""Traces of pull consumers, which count messages as consumed when polled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbitmq.client.core.namespaces import unwrap
from orbitmq.client.core.tracing.deliveries import DeliveryRecords
from orbitmq.model.subscriptions import BROADCASTING

if TYPE_CHECKING:
    from orbitmq.client.aio.sending.trace_writer import TraceWriter
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.client.core.tracing.spans import ClientSpans
    from orbitmq.client.options import ConsumerOptions
    from orbitmq.clock import Clock


class PollTracing:
    """Writes trace records about messages that the caller gets, and makes spans."""

    def __init__(
        self,
        writer: TraceWriter | None,
        spans: ClientSpans | None,
        *,
        group: str,
        is_broadcast: bool,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._spans = spans
        self._group = group
        self._is_broadcast = is_broadcast
        self._records = DeliveryRecords(group)
        self._clock = clock

    def note(self, messages: Sequence[ReceivedMessage]) -> None:
        """Report that the caller got messages."""
        if self._writer is not None:
            self._write(self._writer, messages)
        if self._spans is not None:
            self._spans.receive(messages, group=self._group, is_broadcast=self._is_broadcast)

    def _write(self, writer: TraceWriter, messages: Sequence[ReceivedMessage]) -> None:
        now_ms = self._clock.now_ms()
        begun = self._records.before(messages, time_ms=now_ms)
        for record in begun:
            writer.add(record)
        # Nobody knows how long the caller takes, or whether it succeeds.
        for ended in self._records.after(
            begun, time_ms=now_ms, spent_ms=0, count=len(messages), success=True
        ):
            writer.add(ended)


def poll_tracing_of(
    writer: TraceWriter | None,
    options: ConsumerOptions,
    *,
    client_id: str,
    group: str,
    clock: Clock,
) -> PollTracing | None:
    """Make what the options ask for; None if that is nothing."""
    spans = None
    if options.opentelemetry:
        # Imported here, as the package is optional.
        from orbitmq.client.core.tracing.spans import ClientSpans

        spans = ClientSpans(client_id=client_id, namespace=options.namespace)
    if writer is None and spans is None:
        return None
    return PollTracing(
        writer,
        spans,
        group=unwrap(options.namespace, group),
        is_broadcast=options.message_model == BROADCASTING,
        clock=clock,
    )
