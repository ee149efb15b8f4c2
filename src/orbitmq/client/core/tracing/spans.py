"""OpenTelemetry spans of clients, by its conventions for messaging.

A producer's span goes along with its message, as properties (`traceparent` and what else the
application's propagators write), so that a consumer's span can refer to it.

Imported only by clients with `opentelemetry=True`: the package is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode

from orbitmq.client.core.sending.encoded_messages import EncodedMessages
from orbitmq.errors import MessageError
from orbitmq.model import property_names
from orbitmq.model.messages import Message
from orbitmq.record.layout import PROPERTIES_BYTES_MAX
from orbitmq.version import __version__

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.util.types import AttributeValue

    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.client.core.sending.send_results import SendResult

Messages = Message | Sequence[Message] | EncodedMessages
Attributes = dict[str, "AttributeValue"]

# Left free for what clients and brokers add to the properties of a message.
_SPARE_BYTES: Final = 2_048
_DESCRIPTION_CHARACTERS: Final = 500
_CREATE: Final = "create"
_SEND: Final = "send"
_PROCESS: Final = "process"
_RECEIVE: Final = "receive"


class ClientSpans:
    """Makes the spans of one client."""

    def __init__(self, *, client_id: str, namespace: str) -> None:
        self._tracer = trace.get_tracer("orbitmq", __version__)
        self._shared: Attributes = {
            "messaging.system": "rocketmq",
            "messaging.client.id": client_id,
        }
        if namespace:
            self._shared["messaging.rocketmq.namespace"] = namespace

    # --- producers ------------------------------------------------------------------------------

    def start_create(self, message: Message) -> Message:
        """Make the span of a message that is sent later, in a batch; returns it with its context."""
        attributes = self._attributes(_CREATE, message.topic) | _message_attributes(message)
        with self._tracer.start_as_current_span(
            f"{_CREATE} {message.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            return _with_context(message, span)

    def start_send(self, sent: Messages) -> tuple[Span, Messages]:
        """Start the span of a send; returns it, and the messages with its context."""
        if isinstance(sent, EncodedMessages):
            attributes = self._attributes(_SEND, sent.topic)
            name = f"{_SEND} {sent.topic}"
            return self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes), sent
        messages = [sent] if isinstance(sent, Message) else sent
        if not _are_messages(messages):
            # The sender refuses it.
            return trace.INVALID_SPAN, sent
        topic = messages[0].topic
        attributes = self._attributes(_SEND, topic)
        if isinstance(sent, Message):
            attributes |= _message_attributes(sent)
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        # A message that was created in a context of its own keeps it.
        links = _links(message.properties for message in messages)
        span = self._tracer.start_span(
            f"{_SEND} {topic}",
            kind=SpanKind.PRODUCER if len(links) < len(messages) else SpanKind.CLIENT,
            attributes=attributes,
            links=links,
        )
        traced = [_with_context(message, span) for message in messages]
        return span, traced[0] if isinstance(sent, Message) else traced

    def end_send(
        self,
        span: Span,
        result: SendResult | None,
        error: BaseException | None,
        address: str | None = None,
    ) -> None:
        """End the span of a send; one-way sends have neither a result nor an error."""
        if not span.is_recording():
            return
        if result is not None:
            if "," not in result.message_id:
                span.set_attribute("messaging.message.id", result.message_id)
            queue = result.queue
            partition = f"{queue.broker_name}:{queue.queue_id}"
            span.set_attribute("messaging.destination.partition.id", partition)
        if address:
            host, _, port = address.rpartition(":")
            span.set_attribute("server.address", host)
            span.set_attribute("server.port", int(port))
        _end(span, error)

    # --- consumers ------------------------------------------------------------------------------

    def start_process(
        self, messages: Sequence[ReceivedMessage], *, group: str, is_broadcast: bool
    ) -> tuple[Span, Token[Context]]:
        """Start the span of a listener's call, and make it the current one.

        A single message's span is a child of its producer's; that of several is linked to theirs.
        """
        attributes = self._received_attributes(_PROCESS, messages, group, is_broadcast=is_broadcast)
        # Not the present context, which is whatever started the consumer.
        context = Context()
        links: Sequence[Link] = ()
        if len(messages) == 1:
            context = propagate.extract(messages[0].properties, context)
        else:
            links = _links(message.properties for message in messages)
        span = self._tracer.start_span(
            f"{_PROCESS} {messages[0].topic}",
            context=context,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        return span, attach(trace.set_span_in_context(span, context))

    def end_process(
        self, span: Span, token: Token[Context], *, failure: str, error: BaseException | None
    ) -> None:
        """End the span of a listener's call; `failure` is empty if it succeeded."""
        detach(token)
        if failure and span.is_recording():
            span.set_attribute("error.type", type(error).__qualname__ if error else failure)
            span.set_status(StatusCode.ERROR, _description(error) if error else failure)
        span.end()

    def receive(
        self, messages: Sequence[ReceivedMessage], *, group: str, is_broadcast: bool
    ) -> None:
        """Make the span of messages that a program polled."""
        attributes = self._received_attributes(_RECEIVE, messages, group, is_broadcast=is_broadcast)
        attributes["messaging.operation.name"] = "poll"
        self._tracer.start_span(
            f"poll {messages[0].topic}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=_links(message.properties for message in messages),
        ).end()

    # --- attributes -----------------------------------------------------------------------------

    def _attributes(self, operation: str, topic: str) -> Attributes:
        return {
            **self._shared,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
        }

    def _received_attributes(
        self,
        operation: str,
        messages: Sequence[ReceivedMessage],
        group: str,
        *,
        is_broadcast: bool,
    ) -> Attributes:
        first = messages[0]
        attributes = self._attributes(operation, first.topic)
        attributes["messaging.consumer.group.name"] = group
        attributes["messaging.rocketmq.consumption_model"] = (
            "broadcasting" if is_broadcast else "clustering"
        )
        attributes["messaging.destination.partition.id"] = (
            f"{first.queue.broker_name}:{first.queue.queue_id}"
        )
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
            return attributes
        attributes["messaging.message.id"] = first.message_id
        attributes["messaging.message.body.size"] = len(first.body)
        return attributes | _tags_and_keys(first)


def _message_attributes(message: Message) -> Attributes:
    attributes: Attributes = {"messaging.message.body.size": len(message.body)}
    kind = "normal"
    reserved = message.reserved_properties
    if message.sharding_key:
        kind = "fifo"
        attributes["messaging.rocketmq.message.group"] = message.sharding_key
    if message.delay_level or message.has_due_time:
        kind = "delay"
        if message.delay_level:
            attributes["messaging.rocketmq.message.delay_time_level"] = message.delay_level
        elif due_ms := reserved.get(property_names.TIMER_DELIVER_MS):
            attributes["messaging.rocketmq.message.delivery_timestamp"] = int(due_ms)
    if reserved.get(property_names.HALF_MESSAGE) == "true":
        kind = "transaction"
    attributes["messaging.rocketmq.message.type"] = kind
    return attributes | _tags_and_keys(message)


def _tags_and_keys(message: Message | ReceivedMessage) -> Attributes:
    attributes: Attributes = {}
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = list(message.keys)
    return attributes


def _are_messages(messages: object) -> bool:
    return (
        isinstance(messages, Sequence)
        and len(messages) > 0
        and all(isinstance(message, Message) for message in messages)
    )


# --- contexts -------------------------------------------------------------------------------------


def _with_context(message: Message, span: Span) -> Message:
    """Return a message with the context of a span, unless it has one or has no room for it."""
    if _context_of(message.properties) is not None:
        return message
    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    # What a propagator leaves empty cannot be a property.
    carrier = {name: value for name, value in carrier.items() if value}
    used = sum(
        len(name.encode(errors="replace")) + len(value.encode(errors="replace")) + 2
        for properties in (carrier, message.properties, message.reserved_properties)
        for name, value in properties.items()
    )
    used += len(
        " ".join((message.tags, message.sharding_key, *message.keys)).encode(errors="replace")
    )
    if not carrier or used + _SPARE_BYTES > PROPERTIES_BYTES_MAX:
        return message
    try:
        return message.with_properties(carrier)
    except MessageError:
        # A propagator of the application writes what no property can hold.
        return message


def _context_of(properties: Mapping[str, str]) -> SpanContext | None:
    """Return the span that properties refer to."""
    context = trace.get_current_span(propagate.extract(properties, Context())).get_span_context()
    return context if context.is_valid else None


def _links(each: Iterable[Mapping[str, str]]) -> list[Link]:
    contexts = map(_context_of, each)
    return [Link(context) for context in contexts if context is not None]


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(StatusCode.ERROR, _description(error))
    span.end()


def _description(error: BaseException) -> str:
    return str(error)[:_DESCRIPTION_CHARACTERS]
