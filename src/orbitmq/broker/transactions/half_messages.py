"""Half messages: which sends are ones, and what is stored of them.

Records, as RocketMQ writes them:
    half       in queue 0 of RMQ_SYS_TRANS_HALF_TOPIC; its real queue is in its properties
    copy       the half again, after a check or when it has become old: with the number of its checks
               and the offset of its first copy
    committed  in the real queue; its prepared offset is the log offset of the half
    given up   in queue 0 of TRANS_CHECK_MAX_TIME_TOPIC, after too many checks
    mark       in queue 0 of RMQ_SYS_TRANS_OP_HALF_TOPIC, tag `d`: the body is the offset of a half
               that has ended, or that a copy replaces
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.send_rules import TIMER_PROPERTIES, delay_level
from orbitmq.errors import MessageError
from orbitmq.model import property_names
from orbitmq.model.names import CHECKED_TOO_OFTEN_TOPIC, HALF_DONE_TOPIC, HALF_TOPIC
from orbitmq.record.layout import PROPERTIES_BYTES_MAX, TRANSACTION_MASK, SystemFlag
from orbitmq.record.properties import encode_properties
from orbitmq.store.log.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.record.decode import StoredMessage

QUEUE_ID: Final = 0
COMMIT: Final = int(SystemFlag.COMMITTED)
ROLL_BACK: Final = int(SystemFlag.ROLLED_BACK)
UNKNOWN: Final = 0

_MARK_PROPERTIES: Final = encode_properties({property_names.TAGS: "d"})
# Compat: RocketMQ 5 writes several offsets, each followed by a comma; 4.9 reads only a single number.
_MARK: Final = re.compile(rb"\d{1,19}(?:,\d{1,19})*,?")
_NUMBER: Final = re.compile(r"\d{1,18}")
# What a copy adds to the properties of a half, at most.
_COPY_BYTES: Final = 100


class Half(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The newest copy of a half message, as far as it is kept in memory."""

    # Names the transaction: the offset of its first copy in the half queue.
    first_offset: int
    offset: int
    physical_offset: int
    record_bytes: int
    # The queue that it is for; -1 if it names none.
    topic: str
    queue_id: int
    # How often a producer was asked.
    checks: int
    # When the first copy was stored.
    since_ms: int
    # How long it is not checked; None for the broker's option.
    immunity_ms: int | None
    # The client that was asked last, and when; empty and 0 if that is not known.
    asked_client: str = ""
    asked_ms: int = 0

    @property
    def end(self) -> int:
        """The offset in the log after its record."""
        return self.physical_offset + self.record_bytes


def is_half(properties: Mapping[str, str], *, system_flag: int, retries: int) -> bool:
    """Whether a send prepares a transaction; raises MessageError for what cannot be stored.

    Compat: a consumer that cannot send a committed message back sends it as a delayed retry with all
    its properties, so it still says that it is a half message.
    """
    if properties.get(property_names.HALF_MESSAGE, "").lower() != "true":
        if system_flag & TRANSACTION_MASK:
            raise MessageError(
                f"system flag {system_flag:#x} names a state of transactions, but the message has no "
                f"property {property_names.HALF_MESSAGE}",
                hint="it was not stored; send it with a transaction producer, or without the flag",
            )
        return False
    is_delayed = delay_level(properties) > 0
    if retries > 0 and is_delayed:
        return False
    if retries > 0 or is_delayed or any(name in properties for name in TIMER_PROPERTIES):
        what = f"a retry ({retries})" if retries > 0 else "a delay"
        raise MessageError(
            f"a message of a transaction cannot have {what}",
            hint="it was not stored; send it without the transaction, or without the delay",
        )
    return True


def half_properties(
    properties: Mapping[str, str], *, topic: str, queue_id: int, group: str
) -> dict[str, str]:
    """The properties of a half message; raises MessageError if they have no room to grow."""
    changed = {
        property_names.PRODUCER_GROUP: group,
        **properties,
        property_names.TRANSACTION_ID: properties[property_names.UNIQUE_ID],
        property_names.REAL_TOPIC: topic,
        property_names.REAL_QUEUE_ID: str(queue_id),
    }
    # Only the broker counts checks.
    for name in (property_names.CHECK_TIMES, property_names.HALF_QUEUE_OFFSET):
        changed.pop(name, None)
    properties_bytes = len(encode_properties(changed))
    if properties_bytes + _COPY_BYTES > PROPERTIES_BYTES_MAX:
        raise MessageError(
            f"properties of {properties_bytes} bytes leave no room for those of a transaction; "
            f"{PROPERTIES_BYTES_MAX - _COPY_BYTES} are allowed",
            hint="move large values into the body",
        )
    return changed


def half_of(message: StoredMessage) -> Half:
    """Describe a half message as it was stored; a copy counts its time from its own store time."""
    properties = message.properties
    first_offset = _number(properties.get(property_names.HALF_QUEUE_OFFSET))
    is_copy = first_offset is not None and first_offset < message.queue_offset
    checks = _number(properties.get(property_names.CHECK_TIMES)) or 0
    queue_id = _number(properties.get(property_names.REAL_QUEUE_ID))
    return Half(
        first_offset=first_offset if is_copy and first_offset is not None else message.queue_offset,
        offset=message.queue_offset,
        physical_offset=message.physical_offset,
        record_bytes=message.size,
        topic=sys.intern(properties.get(property_names.REAL_TOPIC, "")),
        queue_id=-1 if queue_id is None else queue_id,
        checks=checks,
        # By the broker's clock: that of the producer may be wrong.
        since_ms=message.store_ms,
        immunity_ms=immunity_ms_of(properties),
        # A copy is stored when a producer is asked.
        asked_ms=message.store_ms if checks else 0,
    )


def immunity_ms_of(properties: Mapping[str, str]) -> int | None:
    """How long a producer wants no check; None if it did not say, or not as a number."""
    seconds = _number(properties.get(property_names.CHECK_IMMUNITY_SECONDS))
    return None if seconds is None else seconds * 1000


def copied(message: StoredMessage, half: Half, *, checks: int) -> Draft:
    """A draft of the next copy of a half message."""
    properties = dict(message.properties)
    properties[property_names.HALF_QUEUE_OFFSET] = str(half.first_offset)
    properties.pop(property_names.CHECK_TIMES, None)
    if checks:
        properties[property_names.CHECK_TIMES] = str(checks)
    return _draft(message, HALF_TOPIC, QUEUE_ID, encode_properties(properties))


def committed(message: StoredMessage, half: Half) -> Draft:
    """A draft for the real queue; raises MessageError if the half names none.

    Compat: it keeps all properties, its real queue among them.
    """
    properties = message.properties
    topic = properties.get(property_names.REAL_TOPIC)
    queue_id = _number(properties.get(property_names.REAL_QUEUE_ID))
    if not topic or topic == HALF_TOPIC or queue_id is None:
        raise MessageError(f"the half message at {message.physical_offset} names no valid queue")
    return _draft(
        message,
        topic,
        queue_id,
        message.properties_bytes,
        system_flag=message.system_flag & ~TRANSACTION_MASK | COMMIT,
        prepared_offset=half.physical_offset,
    )


def given_up(message: StoredMessage, half: Half) -> Draft:
    """A draft for the topic of halves that were checked too often, or have become too old."""
    return _draft(
        message,
        CHECKED_TOO_OFTEN_TOPIC,
        QUEUE_ID,
        message.properties_bytes,
        prepared_offset=half.physical_offset,
    )


def resumed(message: StoredMessage) -> Draft:
    """A draft of a new half message, from one that was given up."""
    properties = dict(message.properties)
    for name in (property_names.CHECK_TIMES, property_names.HALF_QUEUE_OFFSET):
        properties.pop(name, None)
    return _draft(message, HALF_TOPIC, QUEUE_ID, encode_properties(properties))


def mark(offset: int, *, now_ms: int, host: bytes) -> Draft:
    """A draft of the mark that a half has ended."""
    return Draft(
        topic=HALF_DONE_TOPIC,
        queue_id=QUEUE_ID,
        body=b"%d" % offset,
        properties=_MARK_PROPERTIES,
        born_ms=now_ms,
        born_host=host,
    )


def marked_offsets(body: bytes) -> list[int]:
    """The offsets of the halves that a mark names; none if it is not one."""
    if not _MARK.fullmatch(body):
        return []
    return [int(number) for number in body.split(b",") if number]


def _draft(
    message: StoredMessage,
    topic: str,
    queue_id: int,
    properties: bytes,
    *,
    system_flag: int | None = None,
    prepared_offset: int = 0,
) -> Draft:
    return Draft(
        topic=topic,
        queue_id=queue_id,
        body=message.stored_body,
        properties=properties,
        flag=message.flag,
        system_flag=message.system_flag if system_flag is None else system_flag,
        born_ms=message.born_ms,
        born_host=message.born_host_bytes,
        reconsume_times=message.reconsume_times,
        prepared_offset=prepared_offset,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
