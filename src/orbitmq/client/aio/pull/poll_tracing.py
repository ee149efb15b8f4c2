"""Traces of pull consumers, which count messages as consumed when polled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.client.aio.sending.trace_writer import TraceWriter
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.client.core.tracing.deliveries import DeliveryRecords
    from orbitmq.clock import Clock


class PollTracing:
    """Writes trace records about messages that the caller gets."""

    def __init__(self, writer: TraceWriter, records: DeliveryRecords, clock: Clock) -> None:
        self._writer = writer
        self._records = records
        self._clock = clock

    def note(self, messages: Sequence[ReceivedMessage]) -> None:
        """Write that the caller got messages, which counts as their success."""
        now_ms = self._clock.now_ms()
        begun = self._records.before(messages, time_ms=now_ms)
        for record in begun:
            self._writer.add(record)
        for ended in self._records.after(
            begun, time_ms=now_ms, spent_ms=0, count=len(messages), success=True
        ):
            self._writer.add(ended)
