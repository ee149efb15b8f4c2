"""Send rules: what becomes of properties, topic and queue of a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.model import property_names
from orbitmq.model.names import SCHEDULE_TOPIC

# Said of a message that asks for something which this broker cannot do.
_NOT_BUILT: Final = {
    property_names.HALF_MESSAGE: "transactions",
    property_names.TIMER_DELAY_SECONDS: "timers",
    property_names.TIMER_DELAY_MS: "timers",
    property_names.TIMER_DELIVER_MS: "timers",
    property_names.TIMER_CANCELS: "timers",
    property_names.REPLY_TO_CLIENT: "requests that wait for a reply",
}
_TIMERS: Final = (
    property_names.TIMER_DELAY_SECONDS,
    property_names.TIMER_DELAY_MS,
    property_names.TIMER_DELIVER_MS,
    property_names.TIMER_CANCELS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a message goes."""

    topic: str
    queue_id: int


def missing_feature(properties: Mapping[str, str]) -> str:
    """Name what a message asks for that is not built here; empty when there is nothing."""
    for name, feature in _NOT_BUILT.items():
        value = properties.get(name)
        if value is None:
            continue
        if name == property_names.HALF_MESSAGE and value.lower() != "true":
            continue
        if name in _TIMERS and delay_level(properties) > 0:
            # Compat: a delay level takes precedence, and the timer is dropped.
            continue
        return feature
    return ""


def delay_level(properties: Mapping[str, str]) -> int:
    """The delay level a message asks for; 0 for none."""
    text = properties.get(property_names.DELAY_LEVEL, "0")
    try:
        return max(int(text), 0)
    except ValueError:
        return 0


def delay(properties: dict[str, str], place: Place, levels: int) -> Place:
    """Send a message that asks for a delay through the queue of its level.

    `properties` is changed to say where it goes afterwards.
    """
    level = min(delay_level(properties), levels)
    if level <= 0:
        return place
    for name in _TIMERS:
        properties.pop(name, None)
    properties[property_names.DELAY_LEVEL] = str(level)
    properties[property_names.REAL_TOPIC] = place.topic
    properties[property_names.REAL_QUEUE_ID] = str(place.queue_id)
    return Place(topic=SCHEDULE_TOPIC, queue_id=level - 1)


def waits_for_store(properties: Mapping[str, str]) -> bool:
    """Whether the producer wants its answer only once the message is safe."""
    return properties.get(property_names.WAIT_FOR_STORE, "true").lower() == "true"
