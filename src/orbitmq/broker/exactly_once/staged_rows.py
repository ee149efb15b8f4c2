"""A staged row: the row's own record, with its target and its name added.

The properties of a staged row end with

    ORBIT_TO   <queue id>/<topic>
    ORBIT_ROW  <write id>/<sequence>

and those of the moved row with ORBIT_ROW alone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from orbitmq.errors import MessageError, StoreDamagedError
from orbitmq.model import property_names
from orbitmq.model.names import STAGING_TOPIC
from orbitmq.record.decode import StoredMessage
from orbitmq.record.layout import PROPERTIES_BYTES_MAX
from orbitmq.record.properties import find_property
from orbitmq.store.log.draft import Draft

_TO: Final = property_names.STAGED_FOR.encode()
_ROW: Final = property_names.ROW_NAME.encode()
_NAME_END: Final = b"\x01"
_VALUE_END: Final = b"\x02"
_WRITE_ID: Final = re.compile(r"[0-9a-f]{32}")
_SEQUENCE_DIGITS_MAX: Final = 18


class RowName(NamedTuple):
    """Identifies a row: the write it belongs to, and its number in that write."""

    write_id: str
    sequence: int


def check_write_id(write_id: str) -> None:
    """Raise MessageError unless it is a valid write id."""
    if not _WRITE_ID.fullmatch(write_id):
        raise MessageError(
            f"{write_id[:60]!r} is not a valid write id", hint="it has 32 hexadecimal digits"
        )


def staged(draft: Draft, name: RowName) -> Draft:
    """Make the staged form of a row."""
    properties = draft.properties
    if properties and not properties.endswith(_VALUE_END):
        properties += _VALUE_END
    properties += (
        _TO + _NAME_END + b"%d/%s" % (draft.queue_id, draft.topic.encode()) + _VALUE_END
        + _ROW + _NAME_END + b"%s/%d" % (name.write_id.encode(), name.sequence) + _VALUE_END
    )  # fmt: skip
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise MessageError(
            f"properties take {len(properties)} bytes with the row's name; "
            f"{PROPERTIES_BYTES_MAX} fit",
            hint="move large properties into the body",
        )
    return replace(draft, topic=STAGING_TOPIC, queue_id=0, properties=properties)


def name_of(properties: bytes) -> RowName | None:
    """The name of a row, staged or moved; None for any other message."""
    value = find_property(properties, _ROW)
    write_id, _, sequence = (value or b"").partition(b"/")
    if not sequence.isdigit() or len(sequence) > _SEQUENCE_DIGITS_MAX:
        return None
    return RowName(write_id.decode(errors="replace"), int(sequence))


def restored(message: StoredMessage) -> Draft:
    """Make the draft for the real queue of a staged row."""
    properties = message.properties_bytes
    target = find_property(properties, _TO) or b""
    queue_id, _, topic = target.partition(b"/")
    marks_at = properties.rfind(_TO + _NAME_END)
    name_at = properties.rfind(_ROW + _NAME_END)
    if not queue_id.isdigit() or not topic or not 0 <= marks_at < name_at:
        raise StoreDamagedError(
            f"the staged row at {message.physical_offset} names no valid queue",
            hint="run: orbitmq store verify",
        )
    return Draft(
        topic=topic.decode(),
        queue_id=int(queue_id),
        body=message.stored_body,
        properties=properties[:marks_at] + properties[name_at:],
        flag=message.flag,
        system_flag=message.system_flag,
        born_ms=message.born_ms,
        born_host=message.born_host_bytes,
        reconsume_times=message.reconsume_times,
    )
