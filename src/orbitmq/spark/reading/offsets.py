"""The position of a stream in each queue, as Spark keeps it in its checkpoint.

The JSON is a durable format: checkpoints outlive releases. Version 1:

    {"v": 1,
     "base":   {topic: {broker: {queue id: offset}}},
     "queues": {topic: {broker: {queue id: offset}}}}

`queues` is where a batch ends: the next message to read of every queue that the stream knows.
`base` is where the same batch starts; queues that it does not advance are left out. Spark stores
only the ends of batches. If the driver dies before the first batch is done, Spark asks for its
start again, and "latest" has moved by then. A queue that appears during a run starts at its earliest
message, which may be deleted before a batch is repeated. With its base, an offset alone determines
which messages its batch has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from orbitmq.errors import StreamOffsetsError
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.reading.partitions import QueueRange

# The next message of each queue.
Offsets = dict[MessageQueue, int]

VERSION: Final = 1

_QueueId = Annotated[int, msgspec.Meta(ge=0)]
_Offset = Annotated[int, msgspec.Meta(ge=0)]
_Nested = dict[str, dict[str, dict[_QueueId, _Offset]]]


class _Versioned(msgspec.Struct):
    """The field common to all versions."""

    v: int


class _Version1(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of version 1."""

    v: int
    base: _Nested
    queues: _Nested


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """Where a batch of a stream starts and ends."""

    base: Offsets
    queues: Offsets

    def ranges(self) -> list[QueueRange]:
        """The ranges of the batch; one whose end is not above its start is empty."""
        return [
            QueueRange(queue, self.base.get(queue, end), end)
            for queue, end in sorted(self.queues.items())
        ]

    def to_json(self) -> dict[str, Any]:
        """The form that Spark keeps; equal offsets have equal texts."""
        moved = {
            queue: start for queue, start in self.base.items() if start != self.queues.get(queue)
        }
        return {"v": VERSION, "base": nested(moved), "queues": nested(self.queues)}


def read_stream_offset(stored: Mapping[str, Any]) -> StreamOffset:
    """Parse an offset that Spark kept; raises for a damaged one, or one of a newer release."""
    try:
        version = msgspec.convert(stored, _Versioned).v
    except msgspec.ValidationError as error:
        raise _unreadable(stored, str(error)) from error
    if version > VERSION:
        raise StreamOffsetsError(
            f"the checkpoint holds offsets of version {version}; this release reads up to {VERSION}",
            hint="run the query with the release of orbitmq that wrote the checkpoint, or a newer one",
        )
    try:
        fields = msgspec.convert(stored, _Version1, str_keys=True)
    except msgspec.ValidationError as error:
        raise _unreadable(stored, str(error)) from error
    if version != VERSION:
        raise _unreadable(stored, f"there is no version {version}")
    return StreamOffset(base=_flat(fields.base), queues=_flat(fields.queues))


def nested(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    """Offsets by topic, broker and queue id, sorted."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets, key=lambda q: (q.topic, q.broker_name, q.queue_id)):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def _flat(tree: _Nested) -> Offsets:
    return {
        MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id): offset
        for topic, brokers in tree.items()
        for broker_name, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def _unreadable(stored: object, reason: str) -> StreamOffsetsError:
    shown = str(stored)
    return StreamOffsetsError(
        f"the checkpoint holds unreadable offsets: {reason}; "
        f"found {shown[:200]}{'…' if len(shown) > 200 else ''}",
        hint="a checkpoint belongs to one source: was the query changed, or the file edited?",
    )
