"""Real queues: what a message becomes that waited in a queue of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.errors import MessageError
from orbitmq.model import property_names
from orbitmq.model.names import HALF_TOPIC, TIMER_TOPIC
from orbitmq.record.properties import encode_properties
from orbitmq.store.log.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.record.decode import StoredMessage

_VALUE_END: Final = b"\x02"
_QUEUE_ID_MAX: Final = 2**31 - 1
_QUEUE_ID_DIGITS_MAX: Final = 10


def original_draft(
    message: StoredMessage, added: Mapping[str, str] | None = None, *, prepared_offset: int = 0
) -> Draft:
    """Make the draft for the real queue; raises MessageError if it names no valid queue.

    Compat: it keeps all properties, its delay level and real queue among them.
    """
    properties = message.properties
    topic = properties.get(property_names.REAL_TOPIC, "")
    queue_id = properties.get(property_names.REAL_QUEUE_ID, "")
    if not topic or topic in (HALF_TOPIC, TIMER_TOPIC) or not _is_queue_id(queue_id):
        raise MessageError(f"it is for queue {queue_id[:60]!r} of topic {topic[:255]!r}")
    return Draft(
        topic=topic,
        queue_id=int(queue_id),
        body=message.stored_body,
        properties=_with(message, added) if added else message.properties_bytes,
        flag=message.flag,
        system_flag=message.system_flag,
        born_ms=message.born_ms,
        born_host=message.born_host_bytes,
        reconsume_times=message.reconsume_times,
        prepared_offset=prepared_offset,
    )


def _with(message: StoredMessage, added: Mapping[str, str]) -> bytes:
    """The properties of a message and some more; raises MessageError if they are too long."""
    if not message.properties.keys().isdisjoint(added):
        return encode_properties({**message.properties, **added})
    present = message.properties_bytes
    # Compat: RocketMQ leaves out the last separator.
    separator = b"" if not present or present.endswith(_VALUE_END) else _VALUE_END
    return present + separator + encode_properties(added)


def _is_queue_id(text: str) -> bool:
    return text.isdecimal() and len(text) <= _QUEUE_ID_DIGITS_MAX and int(text) <= _QUEUE_ID_MAX
