"""What a message of the timer topic says: when it is due, and what it takes back."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from orbitmq.model import property_names
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.store.timers.layout import PRECISION_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.record.decode import StoredMessage

# Longer texts are no times; int() would take long for very long ones.
_DIGITS_MAX: Final = 18
# Enough that nobody finds two names with one key, and shorter than most names.
_KEY_BYTES: Final = 16


def whole_number(text: str | None) -> int | None:
    """Parse a whole number as Java does; None if it is none."""
    if text is None or len(text) > _DIGITS_MAX or not text.isascii():
        return None
    if not text.removeprefix("-").removeprefix("+").isdigit():
        return None
    try:
        return int(text)
    except ValueError:
        return None


def asked_due_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """The due time that a message asks for at `now_ms`; None if it is not a number."""
    for name, unit_ms in (
        (property_names.TIMER_DELAY_SECONDS, 1000),
        (property_names.TIMER_DELAY_MS, 1),
    ):
        if name in properties:
            delay = whole_number(properties[name])
            return None if delay is None else now_ms + delay * unit_ms
    return whole_number(properties.get(property_names.TIMER_DELIVER_MS))


def slot_ms_of(message: StoredMessage) -> int | None:
    """The slot of a message; None if it is not one of the timer topic."""
    if message.topic != TIMER_TOPIC:
        return None
    slot_ms = whole_number(message.properties.get(property_names.TIMER_DUE_MS))
    if slot_ms is None or slot_ms < 0:
        return None
    # Compat: other values of timerPrecisionMs give slots between seconds.
    return slot_ms // PRECISION_MS * PRECISION_MS


def due_ms_of(message: StoredMessage, slot_ms: int) -> int:
    """When a message of a slot is due; at the end of the slot if it does not say."""
    # A delay counts from when the broker received the message, just before it was stored.
    due_ms = asked_due_ms(message.properties, message.store_ms)
    if due_ms is None:
        return slot_ms + PRECISION_MS
    return min(max(due_ms, slot_ms + 1), slot_ms + PRECISION_MS)


def recall_key(topic: str, cancels: str) -> bytes:
    """The key of a marker for a topic that names a message."""
    name = f"{topic}\0{cancels}".encode(errors="surrogatepass")
    return hashlib.blake2b(name, digest_size=_KEY_BYTES).digest()


def recall_key_of(message: StoredMessage) -> bytes | None:
    """The key of the message that this one takes back; None if it takes back none."""
    cancels = message.properties.get(property_names.TIMER_CANCELS)
    if cancels is None:
        return None
    # Most markers name a message by its id alone, and messages of other topics may have that, too.
    return recall_key(message.properties.get(property_names.REAL_TOPIC, ""), cancels)


def keys_of(message: StoredMessage) -> tuple[bytes, ...]:
    """The keys by which a message can be taken back: by markers of its topic, or of none."""
    unique_id = message.properties.get(property_names.UNIQUE_ID)
    if unique_id is None:
        return ()
    topic = message.properties.get(property_names.REAL_TOPIC, "")
    # Compat: which of the two RocketMQ writes depends on appendTopicForTimerDeleteKey.
    names = unique_id, f"{topic}+{unique_id}"
    return tuple(recall_key(of, name) for of in (topic, "") for name in names)
