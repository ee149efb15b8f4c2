"""Timer rules: how a send with a due time changes properties, topic and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.broker.send_rules import Destination, delay_level
from orbitmq.errors import MessageError, RequestRefusedError
from orbitmq.model import property_names
from orbitmq.model.names import TIMER_TOPIC, is_retry_topic
from orbitmq.model.recall_handles import RecallHandle
from orbitmq.protocol.codes import ResponseCode
from orbitmq.record.properties import encode_properties
from orbitmq.store.timers.layout import slot_of
from orbitmq.store.timers.timer_messages import asked_due_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

_ASKING: Final = (
    property_names.TIMER_DELAY_SECONDS,
    property_names.TIMER_DELAY_MS,
    property_names.TIMER_DELIVER_MS,
)
# As long as what delivery adds.
_ADDED: Final = dict.fromkeys(
    (property_names.TIMER_ENQUEUED_MS, property_names.TIMER_DEQUEUED_MS), "9" * 19
)


def asks_for_timer(properties: Mapping[str, str]) -> bool:
    """Whether a message asks for a due time.

    Compat: not one with a delay level, which takes precedence, nor one that was a timer before.
    """
    return (
        any(name in properties for name in _ASKING)
        and delay_level(properties) <= 0
        and property_names.TIMER_DUE_MS not in properties
    )


def set_timer(
    properties: dict[str, str],
    destination: Destination,
    *,
    is_enabled: bool,
    now_ms: int,
    seconds_max: int,
) -> Destination:
    """Redirect a message that is due later to the timer topic.

    Its real destination, and its slot, are added to `properties`.
    """
    if not asks_for_timer(properties):
        return destination
    if not is_enabled:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            "the message has a due time, and timers are off",
            hint="set timerWheelEnable=true and restart the broker",
        )
    due_ms = asked_due_ms(properties, now_ms)
    if due_ms is None:
        asked = {name: properties[name][:30] for name in _ASKING if name in properties}
        raise MessageError(
            f"the due time of the message is not a number: {asked}",
            hint="write milliseconds since 1970 to TIMER_DELIVER_MS, or a delay to TIMER_DELAY_MS",
        )
    if due_ms <= now_ms:
        if property_names.TIMER_CANCELS in properties:
            raise MessageError(
                f"a recall for {due_ms} comes too late: it is {now_ms}",
                hint="the message is delivered already",
            )
        return destination
    if due_ms - now_ms > seconds_max * 1000:
        raise MessageError(
            f"the message is due in {(due_ms - now_ms) / 1000:.0f} seconds, above the limit of "
            f"{seconds_max}",
            hint="choose an earlier time, or raise timerMaxDelaySec",
        )
    properties[property_names.TIMER_DUE_MS] = str(slot_of(due_ms))
    properties[property_names.REAL_TOPIC] = destination.topic
    properties[property_names.REAL_QUEUE_ID] = str(destination.queue_id)
    # Raises if the delivered copy, which has more, would be too large.
    encode_properties(properties | _ADDED)
    return Destination(topic=TIMER_TOPIC, queue_id=0)


def recall_handle_of(
    properties: Mapping[str, str], destination: Destination, broker_name: str
) -> str | None:
    """The recall handle for a receipt; None if the message cannot be taken back."""
    topic = properties.get(property_names.REAL_TOPIC, "")
    if destination.topic != TIMER_TOPIC or is_retry_topic(topic):
        return None
    return RecallHandle(
        topic=topic,
        broker_name=broker_name,
        # Compat: in the same slot again if it is taken as a due time.
        time_ms=int(properties[property_names.TIMER_DUE_MS]) + 1,
        unique_id=properties[property_names.UNIQUE_ID],
    ).issued
