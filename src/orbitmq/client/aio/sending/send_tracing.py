"""Traces of a producer: a record about each attempt of a send.

A batch gets one record per message, so that each can be found by its own id. A one-way send gets
none, as in Java: nobody knows how it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.client.core.namespaces import unwrap
from orbitmq.client.core.sending.encoded_messages import EncodedMessages
from orbitmq.client.core.sending.send_plan import SendMode
from orbitmq.client.core.sending.send_results import SendStatus
from orbitmq.client.core.sending.transaction_states import TransactionState
from orbitmq.client.core.tracing.trace_records import (
    DELAYED,
    HALF,
    NORMAL,
    USUAL_REGION,
    Decided,
    Recalled,
    Sent,
)
from orbitmq.model import property_names
from orbitmq.model.messages import Message

if TYPE_CHECKING:
    from orbitmq.client.aio.sending.send_hooks import SendContext
    from orbitmq.client.aio.sending.trace_writer import TraceWriter
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.clock import Clock
    from orbitmq.model.recall_handles import RecallHandle

_BEGAN: Final = "trace began"
_STATES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
# Brokers whose replies say that they want no traces; more than there are in any cluster.
_SILENT_MAX: Final = 10_000


class SendTracing:
    """Writes a trace record about each attempt of a send, and about what comes after it."""

    def __init__(self, writer: TraceWriter, *, group: str, namespace: str, clock: Clock) -> None:
        self._writer = writer
        # Compat: records have names without the namespace.
        self._group = unwrap(namespace, group)
        self._namespace = namespace
        self._clock = clock
        self._silent: set[str] = set()

    def before_send(self, context: SendContext) -> None:
        """Note when the attempt begins."""
        context.notes[_BEGAN] = self._clock.now_ms(), self._clock.monotonic_ms()

    def after_send(self, context: SendContext) -> None:
        """Write what became of the attempt."""
        if context.mode is SendMode.ONEWAY or context.queue.topic == self._writer.topic:
            return
        if isinstance(context.message, EncodedMessages) or not self._is_wanted(context):
            return
        messages = [context.message] if isinstance(context.message, Message) else context.message
        began_ms, began_monotonic_ms = context.notes[_BEGAN]
        cost_ms = int(self._clock.monotonic_ms() - began_monotonic_ms)
        ids = _ids(context.message_id, len(messages))
        result = context.result
        offset_ids = _ids(result.offset_message_id if result else "", len(messages))
        for message, message_id, offset_id in zip(messages, ids, offset_ids, strict=True):
            self._writer.add(
                Sent(
                    time_ms=began_ms,
                    region=result.region if result else USUAL_REGION,
                    group=self._group,
                    topic=unwrap(self._namespace, message.topic),
                    message_id=message_id,
                    tags=message.tags,
                    keys=" ".join(message.keys),
                    store_host=context.address,
                    body_bytes=len(message.body),
                    cost_ms=cost_ms,
                    kind=kind_of(message),
                    offset_message_id=offset_id,
                    success=result is not None and result.status is SendStatus.OK,
                )
            )

    def decided(
        self,
        message: Message | ReceivedMessage,
        message_id: str,
        state: TransactionState,
        *,
        transaction_id: str | None,
        address: str,
        from_check: bool,
    ) -> None:
        """Write how a transaction ended."""
        self._writer.add(
            Decided(
                time_ms=self._clock.now_ms(),
                region=USUAL_REGION,
                group=self._group,
                topic=unwrap(self._namespace, message.topic),
                message_id=message_id,
                tags=message.tags,
                keys=" ".join(message.keys),
                store_host=address,
                transaction_id=transaction_id or "",
                state=_STATES[state],
                from_check=from_check,
            )
        )

    def recalled(self, handle: RecallHandle, *, success: bool) -> None:
        """Write that a message was taken back, or that its broker refused to."""
        self._writer.add(
            Recalled(
                time_ms=self._clock.now_ms(),
                region=USUAL_REGION,
                group=self._group,
                topic=unwrap(self._namespace, handle.topic),
                message_id=handle.unique_id,
                success=success,
            )
        )

    def _is_wanted(self, context: SendContext) -> bool:
        """Whether the broker takes traces, as its last reply said."""
        if context.result is None:
            return context.address not in self._silent
        if context.result.trace_on:
            self._silent.discard(context.address)
        elif len(self._silent) < _SILENT_MAX:
            self._silent.add(context.address)
        return context.result.trace_on


def kind_of(message: Message) -> int:
    """Return the kind of a message, as trace records number them."""
    if message.delay_level or message.has_due_time:
        return DELAYED
    is_half = message.reserved_properties.get(property_names.HALF_MESSAGE) == "true"
    return HALF if is_half else NORMAL


def _ids(joined: str, count: int) -> Sequence[str]:
    """Split the ids of a batch; a broker that stores a batch whole has one for all."""
    ids = joined.split(",")
    return ids if len(ids) == count else [joined] * count
