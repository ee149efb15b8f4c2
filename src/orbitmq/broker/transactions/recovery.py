"""Recovery: finds the open transactions of a store when a broker starts.

An end without a mark is possible: a crash can come between the two, and RocketMQ 5 writes marks up to
three seconds late. So the real queues of open halves are searched for committed copies: from the
half on, but not below the offset up to which all ends have marks (`marked_ends`), unless some of the
marks cannot be read.

Threads: any, before the broker starts.
Crash: nothing is written here.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.transactions.half_messages import (
    COMMIT,
    QUEUE_ID,
    Half,
    half_of,
    marked_offsets,
)
from orbitmq.broker.transactions.recent_halves import RECENT_MAX, hash_of
from orbitmq.errors import StoreDamagedError
from orbitmq.model import property_names
from orbitmq.model.names import CHECKED_TOO_OFTEN_TOPIC, HALF_DONE_TOPIC, HALF_TOPIC
from orbitmq.record.decode import decode_record
from orbitmq.record.layout import TRANSACTION_MASK

if TYPE_CHECKING:
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_RECORDS_PER_READ: Final = 1000
_BYTES_PER_READ: Final = 4 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Recovered:
    """The transactions of a store."""

    # The newest copies of open halves, by first offset.
    open: dict[int, Half] = field(default_factory=dict)
    # The highest half offset of each mark from `marks_start` on.
    marks: list[int] = field(default_factory=list)
    marks_start: int = 0
    # Halves that have ended without a mark.
    unmarked: list[int] = field(default_factory=list)
    # Messages of real queues that were read for ends without a mark.
    searched: int = 0
    # The newest halves that were read, as (hash of the content, first offset).
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))


def recover(
    store: MessageStore, *, halves_from: int, marks_from: int, marked_until: int = 0
) -> Recovered:
    """Find the open halves of a store, from the saved progress of its two queues on.

    Ends below the log offset `marked_until` have marks.
    """
    found = Recovered(marks_start=_clamp(store, HALF_DONE_TOPIC, marks_from))
    ended: set[int] = set()
    for message in _messages(store, HALF_DONE_TOPIC, QUEUE_ID, found.marks_start):
        offsets = marked_offsets(message.stored_body)
        # A gap in the queue would shift the offsets of later marks.
        found.marks += [-1] * (message.queue_offset - found.marks_start - len(found.marks))
        found.marks.append(max(offsets, default=-1))
        ended.update(offsets)
    search = _Search()
    start = _clamp(store, HALF_TOPIC, halves_from)
    for message in _messages(store, HALF_TOPIC, QUEUE_ID, start):
        half = half_of(message)
        search.note(message, half, found, is_ended=half.offset in ended)
    # Without one of its marks, an end is known only by what it ended with.
    marks_end = store.end_of(HALF_DONE_TOPIC, QUEUE_ID)
    is_whole = found.marks_start + len(found.marks) == marks_end and -1 not in found.marks
    committed = _ended_without_mark(store, search, found, marked_until if is_whole else 0)
    for first_offset, half in list(found.open.items()):
        if half.physical_offset in committed:
            del found.open[first_offset]
            found.unmarked.append(half.offset)
    for first_offset, half in found.open.items():
        since_ms = store.store_ms_of(HALF_TOPIC, QUEUE_ID, first_offset)
        if since_ms is not None:
            found.open[first_offset] = msgspec.structs.replace(half, since_ms=since_ms)
    if found.open or found.unmarked:
        log.info(
            "transactions recovered open=%d ended_without_mark=%d from=%d searched=%d",
            len(found.open), len(found.unmarked), start, found.searched,
        )  # fmt: skip
    return found


class _Search:
    """Which copies replace which, and where open halves may have been committed."""

    def __init__(self) -> None:
        # The first log offset of an open half, by its real queue.
        self.targets: dict[tuple[str, int], int] = {}
        # Ids of open halves by log offset.
        self.ids: dict[int, str] = {}
        # Compat: copies that RocketMQ made after a check do not say what they are copies of.
        self._newest_by_id: dict[tuple[str, str], Half] = {}

    def note(self, message: StoredMessage, half: Half, found: Recovered, *, is_ended: bool) -> None:
        """Take in the next record of the half queue."""
        properties = message.properties
        name = (
            properties.get(property_names.PRODUCER_GROUP, ""),
            properties.get(property_names.UNIQUE_ID, ""),
        )
        replaced = found.open.pop(half.first_offset, None)
        if replaced is None and half.checks and name in self._newest_by_id:
            earlier = self._newest_by_id[name]
            if earlier.checks == half.checks - 1:
                replaced = found.open.pop(earlier.first_offset, None)
        if replaced is not None:
            found.unmarked.append(replaced.offset)
        self._newest_by_id[name] = half
        if is_ended:
            return
        found.open[half.first_offset] = half
        found.recent.append((hash_of(properties, message.stored_body), half.first_offset))
        self.ids[half.physical_offset] = name[1]
        queue_id = properties.get(property_names.REAL_QUEUE_ID, "")
        if queue_id.isdecimal():
            target = properties.get(property_names.REAL_TOPIC, ""), int(queue_id[:10])
            self.targets.setdefault(target, half.physical_offset)


def _ended_without_mark(
    store: MessageStore, search: _Search, found: Recovered, marked_until: int
) -> set[int]:
    """The log offsets of halves that were committed or given up, as far as open ones can be."""
    if not search.targets:
        return set()
    targets = dict(search.targets)
    targets[CHECKED_TOO_OFTEN_TOPIC, QUEUE_ID] = min(targets.values())
    ended: set[int] = set()
    for (topic, queue_id), after in targets.items():
        start = _first_after(store, topic, queue_id, max(after, marked_until - 1))
        for message in _messages(store, topic, queue_id, start):
            found.searched += 1
            if _is_end(message, search):
                ended.add(message.prepared_offset)
    return ended


def _is_end(message: StoredMessage, search: _Search) -> bool:
    """Whether a message is what an open half ended with; most have 0 as their prepared offset."""
    is_end = message.system_flag & TRANSACTION_MASK == COMMIT
    return (is_end or message.topic == CHECKED_TOO_OFTEN_TOPIC) and search.ids.get(
        message.prepared_offset
    ) == message.properties.get(property_names.UNIQUE_ID, "")


def _first_after(store: MessageStore, topic: str, queue_id: int, after: int) -> int:
    """The first message of a queue that comes after a log offset."""

    def physical_offset(number: int) -> int:
        entries = store.entries(topic, queue_id, number, 1)
        return entries[0][0] if entries else -1

    # Invariant: offsets in the log grow with those of a queue.
    return bisect_right(
        range(store.end_of(topic, queue_id)),
        after,
        lo=store.start_of(topic, queue_id),
        key=physical_offset,
    )


def _messages(
    store: MessageStore, topic: str, queue_id: int, offset: int
) -> Iterator[StoredMessage]:
    """The readable messages of a queue from an offset on."""
    while offset < store.end_of(topic, queue_id):
        try:
            read = store.read_bulk(topic, queue_id, offset, _RECORDS_PER_READ, _BYTES_PER_READ)
        except StoreDamagedError as error:
            log.error(  # noqa: TRY400  # the error says it all
                "record of a transaction skipped topic=%s queue=%d offset=%d reason=%s",
                topic, queue_id, offset, error,
            )  # fmt: skip
            offset += 1
            continue
        if not read.records and read.next_offset <= offset:
            return
        yield from map(decode_record, read.records)
        offset = read.next_offset


def _clamp(store: MessageStore, topic: str, offset: int) -> int:
    start, end = store.start_of(topic, QUEUE_ID), store.end_of(topic, QUEUE_ID)
    return max(start, min(offset, end))
