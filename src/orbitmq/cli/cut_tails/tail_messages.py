"""What is in a cut tail: messages to send again, and why others are left out.

A tail is read twice, in the order of its log: what became of a delayed message is known at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.model import property_names
from orbitmq.model.names import (
    HALF_DONE_TOPIC,
    HALF_TOPIC,
    QUERIES_TOPIC,
    REPLY_TOPIC_SUFFIX,
    SCHEDULE_TOPIC,
    STAGING_TOPIC,
    TIMER_TOPIC,
    is_group_topic,
    is_system_topic,
)
from orbitmq.model.queues import MessageQueue, PhysicalOffset
from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.record.layout import COMMITTED, TRANSACTION_MASK, SystemFlag
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.timers.timer_messages import (
    due_ms_of,
    keys_of,
    recall_key_of,
    slot_ms_of,
    whole_number,
)

if TYPE_CHECKING:
    from orbitmq.model.messages import Message
    from orbitmq.store.opening.cut_intent import Cut

_INNER_BATCH: Final = int(SystemFlag.INNER_BATCH)
_DELAYS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
_HALVES: Final = frozenset({HALF_TOPIC, HALF_DONE_TOPIC})
_EXACTLY_ONCE: Final = frozenset({STAGING_TOPIC, QUERIES_TOPIC})


class LeftOut(StrEnum):
    """Why a message of a tail is not sent again."""

    HALF = (
        "half messages, and what ended them: nobody committed them, or their messages are here too"
    )
    HALF_KEPT = "committed messages whose half message the new master has: it asks their producers"
    DELAY_KEPT = (
        "delivered messages that the new master has as delayed ones: it delivers them itself"
    )
    DELIVERED = "delayed messages that were delivered, put off or taken back later in this tail"
    EXACTLY_ONCE = "rows of exactly-once writes: Spark writes them again"
    OF_A_GROUP = "retries and dead letters of one group: every group of the topic would get them"
    ANSWER = "requests and answers: nobody waits for them any more"
    BATCH = "batches that RocketMQ stored whole"
    SYSTEM = "messages of brokers and tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class TailMessage:
    """A message of a tail."""

    offset: PhysicalOffset
    # Where it would be sent to.
    topic: str
    stored: StoredMessage
    record: bytes = field(repr=False)
    left_out: LeftOut | None

    @property
    def unique_id(self) -> str:
        """The id that its producer gave it; empty if it gave none."""
        return self.stored.properties.get(property_names.UNIQUE_ID, "")

    @property
    def queue_id(self) -> int:
        """The queue that it was for."""
        real = whole_number(self.stored.properties.get(property_names.REAL_QUEUE_ID))
        return real if self.is_delayed and real is not None else self.stored.queue_id

    @property
    def is_delayed(self) -> bool:
        """Whether it was not delivered yet when it was cut."""
        return self.stored.topic in _DELAYS

    def copy(self, tail: str, *, now_ms: int) -> Message:
        """Make what is sent: with the id it had, and a property that says where it is from."""
        stored = self.stored
        queue = MessageQueue(broker_name="", queue_id=stored.queue_id, topic=stored.topic)
        received = ReceivedMessage(self.record, 0, len(self.record), queue, stored.queue_offset)
        message = received.as_message(self.topic).with_properties(
            {property_names.CUT_FROM: f"{tail}/{self.offset}"}
        )
        reserved = {property_names.UNIQUE_ID: self.unique_id} if self.unique_id else {}
        if stored.topic == SCHEDULE_TOPIC and (level := _level(stored)):
            reserved[property_names.DELAY_LEVEL] = str(level)
        elif stored.topic == TIMER_TOPIC and (due_ms := _due_ms(stored)) > now_ms:
            reserved[property_names.TIMER_DELIVER_MS] = str(due_ms)
        return message.with_reserved(reserved)


class Tail:
    """The messages of a cut tail."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        # By topic and unique id: where the newest delayed form of a message is, and whether that
        # was delivered. Programs send messages that they received on, with their ids.
        self._delayed: dict[tuple[str, str], PhysicalOffset] = {}
        self._delivered: set[tuple[str, str]] = set()
        self._recalled: set[bytes] = set()
        for stored in map(decode_record, self._records()):
            name = _name_of(stored)
            if stored.topic in _DELAYS:
                if (key := recall_key_of(stored)) is not None:
                    self._recalled.add(key)
                elif name[1]:
                    self._delayed[name] = PhysicalOffset(stored.physical_offset)
                    self._delivered.discard(name)
            elif _was_delayed(stored) and name in self._delayed:
                self._delivered.add(name)

    def _records(self) -> Iterator[bytes]:
        with ReadOnlyStore(self.cut.saved_path) as store:
            for _, record in store.records():
                yield record

    def __iter__(self) -> Iterator[TailMessage]:
        for record in self._records():
            stored = decode_record(record)
            is_delayed = stored.topic in _DELAYS
            real = stored.properties.get(property_names.REAL_TOPIC, "")
            yield TailMessage(
                offset=PhysicalOffset(stored.physical_offset),
                topic=real if is_delayed else stored.topic,
                stored=stored,
                record=record,
                left_out=self._of_delayed(stored) if is_delayed else self._of_sent(stored),
            )

    def _of_delayed(self, stored: StoredMessage) -> LeftOut | None:
        properties = stored.properties
        if is_group_topic(properties.get(property_names.REAL_TOPIC, "")):
            return LeftOut.OF_A_GROUP
        name = _name_of(stored)
        is_newest = self._delayed.get(name, stored.physical_offset) == stored.physical_offset
        if (
            not is_newest
            or name in self._delivered
            or property_names.TIMER_CANCELS in properties
            or not self._recalled.isdisjoint(keys_of(stored))
            or property_names.REAL_TOPIC not in properties
        ):
            return LeftOut.DELIVERED
        return None

    def _of_sent(self, stored: StoredMessage) -> LeftOut | None:  # noqa: PLR0911  # a reason each
        topic, properties = stored.topic, stored.properties
        if topic in _HALVES:
            return LeftOut.HALF
        if topic in _EXACTLY_ONCE or property_names.ROW_NAME in properties:
            return LeftOut.EXACTLY_ONCE
        if is_group_topic(topic):
            return LeftOut.OF_A_GROUP
        if topic.endswith(REPLY_TOPIC_SUFFIX) or property_names.REPLY_TO_CLIENT in properties:
            return LeftOut.ANSWER
        if is_system_topic(topic):
            return LeftOut.SYSTEM
        if stored.system_flag & _INNER_BATCH:
            return LeftOut.BATCH
        if stored.system_flag & TRANSACTION_MASK == COMMITTED:
            return LeftOut.HALF_KEPT if stored.prepared_offset < self.cut.at else None
        if _was_delayed(stored) and _name_of(stored) not in self._delayed:
            return LeftOut.DELAY_KEPT
        return None


def _name_of(stored: StoredMessage) -> tuple[str, str]:
    """The topic that a message is or was for, and the id that its producer gave it."""
    properties = stored.properties
    is_delayed = stored.topic in _DELAYS
    topic = properties.get(property_names.REAL_TOPIC, "") if is_delayed else stored.topic
    return topic, properties.get(property_names.UNIQUE_ID, "")


def _was_delayed(stored: StoredMessage) -> bool:
    """Whether a message was delivered after a delay: it keeps the topic that it waited for."""
    return stored.properties.get(property_names.REAL_TOPIC) == stored.topic


def _level(stored: StoredMessage) -> int:
    return whole_number(stored.properties.get(property_names.DELAY_LEVEL)) or 0


def _due_ms(stored: StoredMessage) -> int:
    slot_ms = slot_ms_of(stored)
    return due_ms_of(stored, slot_ms) if slot_ms is not None else 0
