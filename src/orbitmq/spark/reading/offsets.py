"""The position of a stream in each queue, as Spark keeps it in its checkpoint.

The JSON is a durable format: checkpoints outlive releases. Version 2:

    {"v": 2,
     "base":   {topic: {broker: {queue id: offset}}},
     "queues": {topic: {broker: {queue id: offset}}},
     "seen":   {topic: {broker: {queue id: [offset, physical offset, store time in ms]}}}}

`queues` is where a batch ends: the next message to read of every queue that the stream knows.
`base` is where the same batch starts; queues that it does not advance are left out. Spark stores
only the ends of batches. If the driver dies before the first batch is done, Spark asks for its
start again, and "latest" has moved by then. A queue that appears during a run starts at its earliest
message, which may be deleted before a batch is repeated. With its base, an offset alone determines
which messages its batch has.

`seen` identifies the last message before the end of each queue, as far as it could be read: a topic
that is deleted and created again has other messages under the same offsets (`topic_lives.py`).
Version 1 lacks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from orbitmq.errors import StreamOffsetsError
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.reading.partitions import QueueRange

T = TypeVar("T")

# The next message of each queue.
Offsets = dict[MessageQueue, int]

VERSION: Final = 2

_QueueId = Annotated[int, msgspec.Meta(ge=0)]
_Offset = Annotated[int, msgspec.Meta(ge=0)]
_Nested = dict[str, dict[str, dict[_QueueId, _Offset]]]
_NestedSeen = dict[str, dict[str, dict[_QueueId, tuple[_Offset, _Offset, int]]]]


class SeenMessage(NamedTuple):
    """Identifies a message among all that ever had its queue and offset."""

    offset: int
    physical_offset: int
    stored_ms: int


# The last message of each queue.
Seen = dict[MessageQueue, SeenMessage]


class _Versioned(msgspec.Struct):
    """The field common to all versions."""

    v: int


class _Version1(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of version 1."""

    v: int
    base: _Nested
    queues: _Nested


class _Version2(_Version1, forbid_unknown_fields=True):
    """The fields of version 2."""

    seen: _NestedSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """Where a batch of a stream starts and ends."""

    base: Offsets
    queues: Offsets
    seen: Seen = field(default_factory=dict)

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
        return {
            "v": VERSION,
            "base": nested(moved),
            "queues": nested(self.queues),
            "seen": nested({queue: list(message) for queue, message in self.seen.items()}),
        }


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
    if version < 1:
        raise _unreadable(stored, f"there is no version {version}")
    try:
        if version == 1:
            first = msgspec.convert(stored, _Version1, str_keys=True)
            return StreamOffset(base=_flat(first.base), queues=_flat(first.queues))
        fields = msgspec.convert(stored, _Version2, str_keys=True)
    except msgspec.ValidationError as error:
        raise _unreadable(stored, str(error)) from error
    return StreamOffset(
        base=_flat(fields.base),
        queues=_flat(fields.queues),
        seen={queue: SeenMessage(*message) for queue, message in _flat(fields.seen).items()},
    )


def nested(values: Mapping[MessageQueue, T]) -> dict[str, dict[str, dict[str, T]]]:
    """Values by topic, broker and queue id, sorted."""
    tree: dict[str, dict[str, dict[str, T]]] = {}
    for queue in sorted(values, key=lambda q: (q.topic, q.broker_name, q.queue_id)):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = values[queue]
    return tree


def _flat(tree: dict[str, dict[str, dict[int, T]]]) -> dict[MessageQueue, T]:
    return {
        MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id): value
        for topic, brokers in tree.items()
        for broker_name, queues in brokers.items()
        for queue_id, value in queues.items()
    }


def _unreadable(stored: object, reason: str) -> StreamOffsetsError:
    shown = str(stored)
    return StreamOffsetsError(
        f"the checkpoint holds unreadable offsets: {reason}; "
        f"found {shown[:200]}{'…' if len(shown) > 200 else ''}",
        hint="a checkpoint belongs to one source: was the query changed, or the file edited?",
    )
