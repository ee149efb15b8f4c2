"""Send rules: how a send changes the properties, topic and queue of a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.model import property_names
from orbitmq.model.names import SCHEDULE_TOPIC

# Properties that set or take back a due time.
TIMER_PROPERTIES: Final = (
    property_names.TIMER_DELAY_SECONDS,
    property_names.TIMER_DELAY_MS,
    property_names.TIMER_DELIVER_MS,
    property_names.TIMER_CANCELS,
)
# Properties that make a message of a batch special; an odd unique id does, too.
_SPECIAL: Final = re.compile(
    rb"(?:^|\x02)(?:"
    + b"|".join(
        re.escape(name.encode())
        for name in (
            property_names.DELAY_LEVEL,
            property_names.HALF_MESSAGE,
            property_names.POP_CHECK_POINT,
            property_names.REGION,
            property_names.TRACE_ON,
            property_names.CLUSTER,
        )
    )
    + rb"|(?:TIMER_|INNER_|__RMQ)[^\x01]*)\x01"
)
_UNIQUE_IDS: Final = re.compile(rb"(?:^|\x02)UNIQ_KEY\x01([^\x02]*)")
_PLAIN_ID: Final = re.compile(rb"[0-9A-Za-z]{1,64}")
_VALUE_END: Final = b"\x02"
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,64}")
_LEVEL_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a message goes."""

    topic: str
    queue_id: int


def delay_level(properties: Mapping[str, str]) -> int:
    """The delay level a message asks for; 0 for none."""
    text = properties.get(property_names.DELAY_LEVEL)
    # Compat: Java takes no spaces and no underscores, which int() does; nor more than 32 bits.
    if text is None or _WHOLE_NUMBER.fullmatch(text) is None:
        return 0
    level = int(text)
    return level if 0 < level <= _LEVEL_MAX else 0


def delay(properties: dict[str, str], destination: Destination, levels: int) -> Destination:
    """Redirect a message that asks for a delay to the queue of its level.

    Its real destination is added to `properties`.
    """
    level = min(delay_level(properties), levels)
    if level <= 0:
        return destination
    # Compat: a delay level takes precedence over a timer.
    for name in TIMER_PROPERTIES:
        properties.pop(name, None)
    properties[property_names.DELAY_LEVEL] = str(level)
    properties[property_names.REAL_TOPIC] = destination.topic
    properties[property_names.REAL_QUEUE_ID] = str(destination.queue_id)
    return Destination(topic=SCHEDULE_TOPIC, queue_id=level - 1)


def waits_for_store(properties: Mapping[str, str]) -> bool:
    """Whether the producer wants its reply only once the message is durable."""
    return properties.get(property_names.WAIT_FOR_STORE, "true").lower() == "true"


def has_plain_properties(encoded: bytes) -> bool:
    """Whether the properties of a message in a batch have a unique id, and nothing special.

    Compat: RocketMQ stores the properties of a batch as received, whatever they are.
    """
    ids = _UNIQUE_IDS.findall(encoded)
    return (
        len(ids) == 1
        and _PLAIN_ID.fullmatch(ids[0]) is not None
        and _SPECIAL.search(encoded) is None
    )


def with_broker_properties(encoded: bytes, broker_properties: bytes) -> bytes:
    """Append the broker's properties to those of the sender."""
    separator = b"" if encoded.endswith(_VALUE_END) else _VALUE_END
    return encoded + separator + broker_properties
