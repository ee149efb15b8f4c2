"""Tells one life of a topic from the next: it was deleted, and created again.

A new life numbers its messages from 0, so an offset of the old one leads into its middle, and the
messages before would be skipped. So a stream keeps the last message that it planned of each queue:
where its broker stored it, and when. That differs in every life, with brokers of any kind.

If another message has that offset now, the query resumes at the first that was stored later: the
beginning of a new life, or what came after a broker lost its newest messages in a crash, or after a
slave that lacked them was promoted.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.spark.options.queue_texts import queue_text
from orbitmq.spark.reading.partitions import QueueRange
from orbitmq.spark.reading.positions import lost_text, report_loss

if TYPE_CHECKING:
    from orbitmq.model.queues import MessageQueue
    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.reading.offsets import Offsets, Seen, SeenMessage

_WHY: Final = (
    "its topic was deleted and created again, or its broker lost messages, as in a crash or when a "
    "slave that lacked them was promoted"
)
_HINT: Final = (
    "with failOnDataLoss=false the query reads all messages that were stored since; a new checkpoint "
    "starts at startingOffsets"
)


class MessageLookup(Protocol):
    """Finds messages; implemented by `QueueView`."""

    def latest(self, queues: Iterable[MessageQueue], /) -> Offsets:
        """The offset after the newest message of each queue."""

    def at_times(self, times_ms: Mapping[MessageQueue, int], /) -> dict[MessageQueue, int | None]:
        """The first message of each queue stored at its time or later; None if it has none."""

    def messages_at(self, offsets: Offsets, /) -> Seen:
        """The message at an offset of each queue; queues that have deleted it are left out."""


def resumed(
    start: Offsets,
    end: Offsets,
    suspects: Seen,
    options: ReadOptions,
    view: MessageLookup,
) -> Offsets:
    """Where queues resume that have other messages than the query has read; reports each.

    Args:
        start: where the next batch would start.
        end: where it would end, at most.
        suspects: the last message before that start of the queues to check.
        options: whether such queues fail the query.
        view: finds messages.
    """
    texts = {
        queue: f"{queue_text(queue)} ends at {end[queue]}, before the query's position {offset}"
        for queue, offset in start.items()
        if end[queue] < offset
    }
    now = view.messages_at(
        {queue: message.offset for queue, message in suspects.items() if queue not in texts}
    )
    for queue, message in now.items():
        if message != suspects[queue]:
            texts[queue] = _other_text(queue, suspects[queue], message)
    if not texts:
        return {}
    later = view.at_times(
        {queue: suspects[queue].stored_ms + 1 for queue in texts if queue in suspects}
    )
    found: Offsets = {}
    for queue in sorted(texts):
        # Without a last message, old and new ones cannot be told apart: none is read twice.
        first = later.get(queue)
        found[queue] = end[queue] if first is None else min(first, end[queue])
        report_loss(
            options,
            f"{texts[queue]}: {_WHY}. The query resumes at {found[queue]}",
            hint=_HINT,
        )
    return found


def without_replaced(
    ranges: Sequence[QueueRange], seen: Seen, options: ReadOptions, view: MessageLookup
) -> list[QueueRange]:
    """Drop messages from ranges of a repeated batch that are not those planned; reports them."""
    planned = {
        part.queue: seen[part.queue]
        for part in ranges
        if part.queue in seen and seen[part.queue].offset == part.end - 1
    }
    ends = view.latest(planned)
    there = {queue: message for queue, message in planned.items() if message.offset < ends[queue]}
    now = view.messages_at({queue: message.offset for queue, message in there.items()})
    replaced = {
        *(planned.keys() - there.keys()),
        *(queue for queue, message in now.items() if message != planned[queue]),
    }
    if not replaced:
        return list(ranges)
    later = view.at_times({queue: planned[queue].stored_ms + 1 for queue in replaced})
    left: list[QueueRange] = []
    for part in ranges:
        queue, kept = part.queue, part.end
        if queue in replaced:
            # What was stored before the last planned message is still what was planned.
            first = later.get(queue)
            kept = max(part.start, min(part.end - 1, ends[queue] if first is None else first))
            report_loss(options, f"{lost_text(queue, kept, part.end)}; {_WHY}", hint=_HINT)
        if kept > part.start:
            left.append(QueueRange(queue, part.start, kept))
    return left


def last_planned(
    start: Offsets, end: Offsets, seen: Seen, present: Container[MessageQueue], view: MessageLookup
) -> Seen:
    """The last message of each queue that a batch ends with, as far as it can be read.

    Messages are looked up where the batch advances; for its first batch, of all queues.

    Args:
        start: where the batch starts.
        end: where it ends.
        seen: the last message of each queue before its start, as far as it is known.
        present: the queues whose brokers can be asked.
        view: finds messages.
    """
    wanted = {
        queue: offset - 1
        for queue, offset in end.items()
        if offset > 0 and queue in present and (offset > start[queue] or not seen)
    }
    return {**seen, **view.messages_at(wanted)}


def _other_text(queue: MessageQueue, read: SeenMessage, now: SeenMessage) -> str:
    return (
        f"message {read.offset} of {queue_text(queue)}, which the query has read, was stored at "
        f"{_time(read.stored_ms)}; the one there now was stored at {_time(now.stored_ms)}"
    )


def _time(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d} UTC"
