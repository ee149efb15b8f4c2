"""Reading a queue message by message, where none may be missed.

Damaged queue entries are repaired from the log by the read. What cannot be read is an error: a row or
a state that is ignored would be moved or decided again. A loss that was accepted is no damage.

Threads: any that may wait for the disk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from orbitmq.record.decode import decode_record

if TYPE_CHECKING:
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.message_store import MessageStore

_MESSAGES_PER_READ: Final = 1000
_BYTES_PER_READ: Final = 4 * 1024 * 1024


def messages_from(
    store: MessageStore,
    topic: str,
    queue_id: int,
    first: int,
    *,
    end: int | None = None,
    count_per_read: int = _MESSAGES_PER_READ,
) -> Iterator[StoredMessage]:
    """The messages of a queue from an offset on; raises QueueDamagedError where it is damaged."""
    offset = first
    if end is None:
        end = store.end_of(topic, queue_id)
    while offset < end:
        count = min(count_per_read, end - offset)
        found = store.read_bulk(topic, queue_id, offset, count, _BYTES_PER_READ)
        yield from map(decode_record, found.records)
        if found.next_offset <= offset:
            # The queue was deleted.
            return
        offset = found.next_offset


def place_of(store: MessageStore, topic: str, queue_id: int, number: int) -> int | None:
    """Where in the log the first message of a queue from an offset on is; None if there is none."""
    message = next(messages_from(store, topic, queue_id, number, count_per_read=1), None)
    return message.physical_offset if message is not None else None


def first_after(store: MessageStore, topic: str, queue_id: int, physical_offset: int) -> int:
    """The offset of a queue's first message that comes after a given log offset."""

    def is_after(number: int) -> bool:
        place = place_of(store, topic, queue_id, number)
        return place is None or place > physical_offset

    # Invariant: offsets in the log grow with those of a queue.
    start, end = store.start_of(topic, queue_id), store.end_of(topic, queue_id)
    return bisect_left(range(end), True, lo=start, key=is_after)  # noqa: FBT003
