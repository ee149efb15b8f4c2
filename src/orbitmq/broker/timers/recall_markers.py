"""Recall markers: what is stored in the timer topic to take a message back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.broker.send_rules import Destination
from orbitmq.broker.timers.timer_rules import set_timer
from orbitmq.model import property_names
from orbitmq.record.properties import encode_properties
from orbitmq.store.log.draft import NOWHERE, Draft
from orbitmq.store.timers.layout import slot_of
from orbitmq.store.timers.timer_messages import recall_key

if TYPE_CHECKING:
    from orbitmq.model.recall_handles import RecallHandle
    from orbitmq.store.config import StoreConfig

# Compat: RocketMQ's body and tag of a message that takes another back.
_BODY: Final = b"0"
_TAG: Final = "_RECALL_TAG_"


class Recall(NamedTuple):
    """What a marker takes back: messages of a slot that have a key."""

    slot_ms: int
    key: bytes


def recall_of(handle: RecallHandle, config: StoreConfig) -> Recall:
    """What the marker for a handle takes back."""
    return Recall(slot_of(handle.time_ms), recall_key(handle.topic, _cancels(handle, config)))


def _cancels(handle: RecallHandle, config: StoreConfig) -> str:
    # Compat: which of the two RocketMQ expects depends on appendTopicForTimerDeleteKey.
    if config.recall_keys_with_topic:
        return f"{handle.topic}+{handle.unique_id}"
    return handle.unique_id


def recall_draft(
    handle: RecallHandle,
    config: StoreConfig,
    *,
    now_ms: int,
    producer_group: str | None = None,
    born_host: bytes = NOWHERE,
) -> Draft:
    """Make the marker for the slot of a message; raises MessageError if its time has come."""
    properties = {
        property_names.TAGS: _TAG,
        property_names.TIMER_CANCELS: _cancels(handle, config),
        property_names.UNIQUE_ID: handle.unique_id,
        property_names.TIMER_DELIVER_MS: str(handle.time_ms),
        property_names.BORN_TIMESTAMP: str(now_ms),
    }
    if producer_group:
        properties[property_names.PRODUCER_GROUP] = producer_group
    destination = set_timer(
        properties,
        Destination(topic=handle.topic, queue_id=0),
        is_enabled=config.timers_enable,
        now_ms=now_ms,
        seconds_max=config.timer_delay_seconds_max,
    )
    return Draft(
        topic=destination.topic,
        queue_id=destination.queue_id,
        body=_BODY,
        properties=encode_properties(properties),
        born_ms=now_ms,
        born_host=born_host,
    )
