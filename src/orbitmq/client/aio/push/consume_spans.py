"""OpenTelemetry spans of a push consumer: one around each call of the listener.

Threads: those of the listener, for which the span is the current one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from orbitmq.client.core.consuming.consume_results import Success
from orbitmq.client.core.tracing.spans import ClientSpans

if TYPE_CHECKING:
    from orbitmq.client.aio.push.consume_hooks import ConsumeContext

_SPAN: Final = "span"


class ConsumeSpans:
    """Makes a span of each call of the listener."""

    def __init__(self, client_id: str, namespace: str, *, group: str, is_broadcast: bool) -> None:
        self._spans = ClientSpans(client_id=client_id, namespace=namespace)
        self._group = group
        self._is_broadcast = is_broadcast

    def before_consume(self, context: ConsumeContext) -> None:
        """Start the span."""
        context.notes[_SPAN] = self._spans.start_process(
            context.messages, group=self._group, is_broadcast=self._is_broadcast
        )

    def after_consume(self, context: ConsumeContext) -> None:
        """End it."""
        begun: Any = context.notes.get(_SPAN)
        if begun is None:
            return
        span, token = begun
        assert context.outcome is not None
        failure = "" if isinstance(context.result, Success) else context.outcome.value
        self._spans.end_process(span, token, failure=failure, error=context.error)
