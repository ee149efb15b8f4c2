"""Search for a tag: the tag hashes of queue entries, from the newest on.

The key index has no tags. A search looks at a bounded number of entries and reads the records of
those whose hash matches.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.errors import StoreError
from orbitmq.java_hash import java_hash
from orbitmq.model.property_names import TAGS
from orbitmq.store.index.consume_queue import ENTRY

if TYPE_CHECKING:
    from orbitmq.model.queues import QueueOffset
    from orbitmq.record.decode import StoredMessage

# Entries that a search may look at: 40 MB, about 50 ms if they are in memory.
ENTRIES_MAX: Final = 2_000_000
# Messages that a search may read in vain, because their keys or tags only have the same hash.
MISSES_MAX: Final = 10_000
_CHUNK: Final = 8192
_HASH: Final = struct.Struct(">q")
_HASH_AT: Final = ENTRY.size - _HASH.size


class Searchable(Protocol):
    """What a search needs of a store."""

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that have or had messages."""

    def offset_at(self, topic: str, queue_id: int, time_ms: int) -> QueueOffset:
        """The first offset of a queue at or after a store time."""

    def encoded_entries(self, topic: str, queue_id: int, offset: int, count_max: int) -> bytes:
        """Read entries of a queue, fewer at the end of a file."""

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """Read one message; None if none begins there."""


class TagSearch:
    """One search for the newest messages of a topic with a tag."""

    def __init__(
        self, messages: Searchable, topic: str, tag: str, *, entries_max: int = ENTRIES_MAX
    ) -> None:
        self._messages = messages
        self._topic = topic
        self._tag = tag
        self._hash = _HASH.pack(java_hash(tag))
        self._entries_max = entries_max
        self._looked_at = 0

    def newest_first(self, begin_ms: int, end_ms: int) -> Iterator[StoredMessage]:
        """The messages of a range of store times; raises StoreError if it has too many."""
        queues = [
            self._offsets(queue_id, begin_ms, end_ms)
            for queue_id in self._messages.queue_ids(self._topic)
        ]
        misses = 0
        for physical_offset in heapq.merge(*queues, reverse=True):
            message = self._messages.message_at(physical_offset)
            if (
                message is not None
                and message.topic == self._topic
                and message.properties.get(TAGS) == self._tag
                and begin_ms <= message.store_ms <= end_ms
            ):
                yield message
            else:
                misses = count_miss(misses, self._tag)

    def _offsets(self, queue_id: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of the entries of one queue whose hash matches, newest first."""
        messages = self._messages
        first = messages.offset_at(self._topic, queue_id, begin_ms)
        end: int = messages.offset_at(self._topic, queue_id, end_ms + 1)
        while end > first:
            start = max(first, end - _CHUNK)
            yield from reversed(self._matching(queue_id, start, end))
            end = start

    def _matching(self, queue_id: int, start: int, end: int) -> list[int]:
        found: list[int] = []
        while start < end:
            self._looked_at += end - start
            if self._looked_at > self._entries_max:
                raise StoreError(
                    f"a search for tag {self._tag[:60]!r} looked at {self._entries_max} messages of "
                    f"topic {self._topic!r} without finding enough",
                    hint="ask for fewer messages or for a shorter time, or search by key: keys are "
                    "indexed, tags are not",
                )
            content = self._messages.encoded_entries(self._topic, queue_id, start, end - start)
            if not content:
                break
            at = content.find(self._hash)
            while at >= 0:
                # Perf: a search in C, 1 ns a byte; bytes of other fields may match, too.
                if at % ENTRY.size == _HASH_AT:
                    found.append(ENTRY.unpack_from(content, at - _HASH_AT)[0])
                at = content.find(self._hash, at + 1)
            start += len(content) // ENTRY.size
        return found


def count_miss(misses: int, text: str) -> int:
    """Count a message that was read in vain; raises StoreError after too many."""
    if misses >= MISSES_MAX:
        raise StoreError(
            f"more than {MISSES_MAX} messages have only the hash of {text[:60]!r}, not the text",
            hint="ask for fewer messages or for a shorter time",
        )
    return misses + 1
