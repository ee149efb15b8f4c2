"""Compares the queues of a store with its log: messages that only the log has.

A copy may lack queue files, and a scan does not find messages without queue entries. The log is the
truth, but reading all of it would cost as much as the scan. So spans of it are checked: all of a log
of up to 64 MiB; of a larger one, the bytes after the last record of each wanted queue, where its
next record would be, and samples spread evenly over the log, both ends included.

Threads: one at a time. Crash: nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.model.names import is_system_topic
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.readonly.queue_files import begins_at, ends_at

if TYPE_CHECKING:
    from orbitmq.record.scan import EntryRun
    from orbitmq.store.readonly.readonly_store import QueueKey, ReadOnlyStore
    from orbitmq.store.readonly.visible_queue import VisibleQueue

_CHECK_BYTES_MAX: Final = 64 * 1024 * 1024
_SPAN_BYTES: Final = 1024 * 1024
_SAMPLES: Final = 32
# Queues of which the longest shows where records start in the middle of the log.
_GUIDES_MAX: Final = 16

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of one queue that only the log has, as far as it was checked."""

    topic: str
    queue_id: int
    first: int
    last: int
    # Where one of them is in the log, and which entries the queue has.
    physical_offset: int
    start: int
    end: int


def find_gaps(
    store: ReadOnlyStore,
    takes: Callable[[str, int], bool],
    *,
    configured_topics: Collection[str],
    check_bytes_max: int = _CHECK_BYTES_MAX,
) -> list[Gap]:
    """Find messages of wanted queues that are in the log and not in the queue.

    Args:
        store: the store to check.
        takes: whether a queue, by topic and id, is wanted.
        configured_topics: the broker's topics. Any other topic was deleted: its records stay in
            the log until their files are deleted, and its queues are not missed.
        check_bytes_max: about how much of the log to check.
    """
    wanted = [key for key in store.queue_keys() if takes(*key)]
    spans = spans_to_check(store, wanted, check_bytes_max)
    comparison = _Comparison(store, configured_topics)
    for (topic, queue_id), run in _runs(store, spans):
        if takes(topic, queue_id):
            comparison.take(topic, queue_id, run)
    return comparison.gaps()


class _Comparison:
    """Compares queues with the runs of entries that they should have by the log."""

    def __init__(self, store: ReadOnlyStore, configured_topics: Collection[str]) -> None:
        self._store = store
        self._keys = store.queue_keys()
        self._configured = configured_topics
        # Topics with records in the log that are older than their queues.
        self._recreated: set[str] = set()
        self._exists: dict[str, bool] = {}
        # Runs of queues that do not exist.
        self._orphans: list[tuple[str, int, EntryRun]] = []
        self._gaps: dict[QueueKey, Gap] = {}

    def take(self, topic: str, queue_id: int, run: EntryRun) -> None:
        """Record what the queue lacks of a run."""
        queue = self._store.queue(topic, queue_id)
        if not queue.end:
            if self._is_topic(topic):
                self._orphans.append((topic, queue_id, run))
            return
        if _is_older(queue, run):
            self._recreated.add(topic)
            return
        lacking = _lacking(queue, run)
        if lacking is not None:
            self._note(topic, queue_id, run, lacking)

    def gaps(self) -> list[Gap]:
        """The gaps found, in the order of topics and queues."""
        starts = {topic: self._start(topic) for topic in self._recreated}
        for topic, queue_id, run in self._orphans:
            last = _last(run)
            if _physical_offset(run, last) >= starts.get(topic, 0):
                self._note(topic, queue_id, run, (run.first, last))
        return sorted(self._gaps.values(), key=lambda gap: (gap.topic, gap.queue_id))

    def _note(self, topic: str, queue_id: int, run: EntryRun, lacking: Span) -> None:
        queue = self._store.queue(topic, queue_id)
        first, last = lacking
        physical_offset = _physical_offset(run, first)
        known = self._gaps.get((topic, queue_id))
        if known is not None:
            first, last = min(first, known.first), max(last, known.last)
            physical_offset = min(physical_offset, known.physical_offset)
        self._gaps[topic, queue_id] = Gap(
            topic, queue_id, first, last, physical_offset, int(queue.start), int(queue.end)
        )

    def _is_topic(self, topic: str) -> bool:
        """Whether the broker has a topic; records of a deleted one stay for a while."""
        if topic not in self._exists:
            self._exists[topic] = not is_system_topic(topic) and (
                topic in self._configured or bool(self._queues(topic))
            )
        return self._exists[topic]

    def _start(self, topic: str) -> int:
        """Where in the log the records of a recreated topic start."""
        return min(_log_start(queue) for queue in self._queues(topic))

    def _queues(self, topic: str) -> list[VisibleQueue]:
        keys = [key for key in self._keys if key[0] == topic]
        return [queue for key in keys if (queue := self._store.queue(*key)).end]


def _is_older(queue: VisibleQueue, run: EntryRun) -> bool:
    """Whether a run is of a deleted topic of the same name, whose queue restarted at 0."""
    return not queue.start and _physical_offset(run, _last(run)) < _log_start(queue)


def _lacking(queue: VisibleQueue, run: EntryRun) -> Span | None:
    """The first and last number of a run that a queue lacks; None if it has all."""
    last = _last(run)
    if run.first < queue.start:
        # Its records are still in the log, so it was not retention that removed it.
        return run.first, min(last, int(queue.start) - 1)
    if last >= queue.end:
        return max(run.first, int(queue.end)), last
    low = max(run.first, int(queue.disk_end))
    expected = run.entries[(low - run.first) * ENTRY_BYTES :]
    at = (low - queue.disk_end) * ENTRY_BYTES
    # Entries not on disk are numbered after those before them, of which some may be lost.
    if expected and queue.tail[at : at + len(expected)] != expected:
        return low, last
    return None


def _log_start(queue: VisibleQueue) -> int:
    """Where in the log the very first record of a queue is; 0 if it is gone."""
    return 0 if queue.start else begins_at(queue.entry(0))


def _last(run: EntryRun) -> int:
    return run.first + len(run.entries) // ENTRY_BYTES - 1


def _physical_offset(run: EntryRun, number: int) -> int:
    return int(ENTRY.unpack_from(run.entries, (number - run.first) * ENTRY_BYTES)[0])


# --- which spans to check -------------------------------------------------------------------------


def spans_to_check(
    store: ReadOnlyStore, wanted: Sequence[QueueKey], check_bytes_max: int
) -> list[Span]:
    """Spans of the log, in order; each starts at a record or a file."""
    start, end = int(store.start), int(store.end)
    if end - start <= check_bytes_max:
        return [(start, end)]
    # One half is for the bytes after queues, one for samples spread over the log.
    half = check_bytes_max // 2
    spans = [(at, at + half // _SAMPLES) for at in _sample_offsets(store, wanted, half)]
    after = min(_SPAN_BYTES, half // max(1, len(wanted)))
    for key in wanted:
        queue = store.queue(*key)
        if queue.disk_end > queue.start:
            at = ends_at(queue.entry(queue.disk_end - 1))
            spans.append((at, at + after))
    return _merged([(max(at, start), min(to, end)) for at, to in spans])


def _sample_offsets(store: ReadOnlyStore, wanted: Sequence[QueueKey], half: int) -> list[int]:
    """Offsets of records, spread evenly over the log."""
    start, end = int(store.start), int(store.end)
    others = [key for key in store.queue_keys() if key not in set(wanted)]
    queues = [store.queue(*key) for key in [*wanted, *others][:_GUIDES_MAX]]
    guide = max(queues, key=lambda queue: queue.end - queue.start, default=None)
    # The last sample ends where the log does.
    step = (end - start - half // _SAMPLES) / (_SAMPLES - 1)
    offsets: list[int] = [start]
    for number in range(1, _SAMPLES):
        offset = int(start + number * step)
        entry = guide.first_from(offset) if guide is not None else 0
        if guide is not None and entry < guide.end:
            offsets.append(begins_at(guide.entry(entry)))
        else:
            file = store.log.find_file(offset)
            offsets += [] if file is None else [int(file.first_offset)]
    return offsets


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for at, to in sorted(spans):
        if merged and at <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(to, merged[-1][1]))
        elif at < to:
            merged.append((at, to))
    return merged


def _runs(store: ReadOnlyStore, spans: list[Span]) -> Iterator[tuple[QueueKey, EntryRun]]:
    for at, to in spans:
        for file in store.log.files:
            first, end = max(at, file.first_offset), min(to, file.end_offset)
            if first < end:
                yield from _runs_of_file(store, first, end)


def _runs_of_file(
    store: ReadOnlyStore, first: int, end: int
) -> Iterator[tuple[QueueKey, EntryRun]]:
    # Damage is reported where records are read; here it only ends the check.
    for piece in store.log.walk(first, end, on_damage=lambda *_: store.log.room_end):
        for (topic, queue_id), runs in piece.found.runs.items():
            for run in runs:
                yield (topic.decode(errors="replace"), queue_id), run
