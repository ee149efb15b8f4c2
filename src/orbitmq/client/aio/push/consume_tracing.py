"""Traces of a push consumer: records before and after each call of the listener.

Threads: those of the listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.client.core.consuming.consume_results import Success
from orbitmq.client.core.tracing.trace_records import CONSUME_CODES

if TYPE_CHECKING:
    from orbitmq.client.aio.push.consume_hooks import ConsumeContext
    from orbitmq.client.aio.sending.trace_writer import TraceWriter
    from orbitmq.client.core.tracing.deliveries import DeliveryRecords
    from orbitmq.client.core.tracing.trace_records import Delivered
    from orbitmq.clock import Clock

_BEGUN: Final = "trace begun"


class ConsumeTracing:
    """Writes a trace record about each message, before and after the call of the listener."""

    def __init__(self, writer: TraceWriter, records: DeliveryRecords, clock: Clock) -> None:
        self._writer = writer
        self._records = records
        self._clock = clock

    def before_consume(self, context: ConsumeContext) -> None:
        """Write that the call begins."""
        begun = self._records.before(context.messages, time_ms=self._clock.now_ms())
        context.notes[_BEGUN] = begun
        for record in begun:
            self._writer.add(record)

    def after_consume(self, context: ConsumeContext) -> None:
        """Write how the call ended."""
        begun: list[Delivered] = context.notes.get(_BEGUN, [])  # type: ignore[assignment]  # as set above
        assert context.outcome is not None
        for record in self._records.after(
            begun,
            time_ms=self._clock.now_ms(),
            spent_ms=context.spent_ms,
            count=len(context.messages),
            success=isinstance(context.result, Success),
            code=CONSUME_CODES.index(context.outcome.value),
        ):
            self._writer.add(record)
