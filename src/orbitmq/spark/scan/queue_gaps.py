"""Queues of a store compared with its log: messages that only the log has.

A copy may lack files of queues, and what queues do not name no scan finds. The log is the truth,
but going over all of it would cost as much as the scan. So it is looked at in stretches: all of a
log of up to 64 MiB; of a larger one what lies behind the last entry of each wanted queue, where
its next record would be, and places spread evenly over the log, its ends among them.

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

_LOOK_BYTES_MAX: Final = 64 * 1024 * 1024
_STRETCH_BYTES: Final = 1024 * 1024
_SPREAD_PLACES: Final = 32
# Queues of which the longest tells where records begin in the midst of the log.
_GUIDES_MAX: Final = 16

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of one queue that only the log has, as far as it was looked at."""

    topic: str
    queue_id: int
    first: int
    last: int
    # Where one of them lies in the log, and which numbers the queue has.
    physical_offset: int
    start: int
    end: int


def find_gaps(
    store: ReadOnlyStore,
    takes: Callable[[str, int], bool],
    *,
    configured_topics: Collection[str],
    look_bytes_max: int = _LOOK_BYTES_MAX,
) -> list[Gap]:
    """Look for messages of wanted queues that the queues lack.

    Args:
        store: what is looked at.
        takes: whether a queue, by topic and id, is wanted.
        configured_topics: the topics that the broker has. One of others was deleted: its records
            stay in the log until their files go, and nobody misses its queues.
        look_bytes_max: so much of the log is looked at, about.
    """
    wanted = [key for key in store.queue_keys() if takes(*key)]
    spans = spans_to_look_at(store, wanted, look_bytes_max)
    comparison = _Comparison(store, configured_topics)
    for (topic, queue_id), run in _runs(store, spans):
        if takes(topic, queue_id):
            comparison.take(topic, queue_id, run)
    return comparison.gaps()


class _Comparison:
    """Compares what queues have with runs of entries that the log asks for."""

    def __init__(self, store: ReadOnlyStore, configured_topics: Collection[str]) -> None:
        self._store = store
        self._keys = store.queue_keys()
        self._configured = configured_topics
        # Topics of which the log has records that are older than the queues.
        self._made_again: set[str] = set()
        self._exists: dict[str, bool] = {}
        # Runs of queues that are not there.
        self._homeless: list[tuple[str, int, EntryRun]] = []
        self._gaps: dict[QueueKey, Gap] = {}

    def take(self, topic: str, queue_id: int, run: EntryRun) -> None:
        """Note what the queue lacks of a run."""
        queue = self._store.queue(topic, queue_id)
        if not queue.end:
            if self._is_topic(topic):
                self._homeless.append((topic, queue_id, run))
            return
        if _is_older(queue, run):
            self._made_again.add(topic)
            return
        lacking = _lacking(queue, run)
        if lacking is not None:
            self._note(topic, queue_id, run, lacking)

    def gaps(self) -> list[Gap]:
        """What was found, in the order of topics and queues."""
        births = {topic: self._birth(topic) for topic in self._made_again}
        for topic, queue_id, run in self._homeless:
            last = _last(run)
            if _physical_offset(run, last) >= births.get(topic, 0):
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
        """Whether the broker has a topic; the records of a deleted one stay for a while."""
        if topic not in self._exists:
            self._exists[topic] = not is_system_topic(topic) and (
                topic in self._configured or bool(self._queues(topic))
            )
        return self._exists[topic]

    def _birth(self, topic: str) -> int:
        """Where in the log the records of a topic begin that was deleted and made again."""
        return min(_begin(queue) for queue in self._queues(topic))

    def _queues(self, topic: str) -> list[VisibleQueue]:
        keys = [key for key in self._keys if key[0] == topic]
        return [queue for key in keys if (queue := self._store.queue(*key)).end]


def _is_older(queue: VisibleQueue, run: EntryRun) -> bool:
    """Whether a run is of a deleted topic of the same name: its queue began again, with 0."""
    return not queue.start and _physical_offset(run, _last(run)) < _begin(queue)


def _lacking(queue: VisibleQueue, run: EntryRun) -> Span | None:
    """The first and the last number of a run that a queue lacks; None when it has all."""
    last = _last(run)
    if run.first < queue.start:
        # Its log is still there, so that no retention took it.
        return run.first, min(last, int(queue.start) - 1)
    if last >= queue.end:
        return max(run.first, int(queue.end)), last
    low = max(run.first, int(queue.disk_end))
    asked = run.entries[(low - run.first) * ENTRY_BYTES :]
    at = (low - queue.disk_end) * ENTRY_BYTES
    # What is not on disk has its numbers from the entries before it, of which some may be lost.
    if asked and queue.tail[at : at + len(asked)] != asked:
        return low, last
    return None


def _begin(queue: VisibleQueue) -> int:
    """Where in the log the very first record of a queue lies; 0 when it is gone."""
    return 0 if queue.start else begins_at(queue.entry(0))


def _last(run: EntryRun) -> int:
    return run.first + len(run.entries) // ENTRY_BYTES - 1


def _physical_offset(run: EntryRun, number: int) -> int:
    return int(ENTRY.unpack_from(run.entries, (number - run.first) * ENTRY_BYTES)[0])


# --- where to look --------------------------------------------------------------------------------


def spans_to_look_at(
    store: ReadOnlyStore, wanted: Sequence[QueueKey], look_bytes_max: int
) -> list[Span]:
    """Stretches of the log, in order; each begins where a record or a file does."""
    start, end = int(store.start), int(store.end)
    if end - start <= look_bytes_max:
        return [(start, end)]
    # One half is for places behind queues, one for those spread over the log.
    half = look_bytes_max // 2
    spans = [(at, at + half // _SPREAD_PLACES) for at in _spread(store, wanted, half)]
    after = min(_STRETCH_BYTES, half // max(1, len(wanted)))
    for key in wanted:
        queue = store.queue(*key)
        if queue.disk_end > queue.start:
            at = ends_at(queue.entry(queue.disk_end - 1))
            spans.append((at, at + after))
    return _merged([(max(at, start), min(to, end)) for at, to in spans])


def _spread(store: ReadOnlyStore, wanted: Sequence[QueueKey], half: int) -> list[int]:
    """Where records begin, at places spread over the log."""
    start, end = int(store.start), int(store.end)
    others = [key for key in store.queue_keys() if key not in set(wanted)]
    queues = [store.queue(*key) for key in [*wanted, *others][:_GUIDES_MAX]]
    guide = max(queues, key=lambda queue: queue.end - queue.start, default=None)
    # The last ends where the log does.
    step = (end - start - half // _SPREAD_PLACES) / (_SPREAD_PLACES - 1)
    places: list[int] = [start]
    for number in range(1, _SPREAD_PLACES):
        place = int(start + number * step)
        entry = guide.first_from(place) if guide is not None else 0
        if guide is not None and entry < guide.end:
            places.append(begins_at(guide.entry(entry)))
        else:
            file = store.log.find_file(place)
            places += [] if file is None else [int(file.first_offset)]
    return places


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
            first, behind = max(at, file.first_offset), min(to, file.end_offset)
            if first < behind:
                yield from _runs_of_file(store, first, behind)


def _runs_of_file(
    store: ReadOnlyStore, first: int, behind: int
) -> Iterator[tuple[QueueKey, EntryRun]]:
    # Damage is told by whoever reads the records; here it only ends the look.
    for stretch in store.log.walk(first, behind, on_damage=lambda *_: store.log.room_end):
        for (topic, queue_id), runs in stretch.found.runs.items():
            for run in runs:
                yield (topic.decode(errors="replace"), queue_id), run
