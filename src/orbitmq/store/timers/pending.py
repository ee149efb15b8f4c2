"""Messages that are not due yet: by second, page by page, and counted.

A page reads at most `UNITS_MAX` units of the timer log, so its cost has a bound however many
messages are pending. Within a second it has the newest messages first, as the timer log does.

Threads: one at a time, and none that changes the timers meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.model.names import TIMER_TOPIC
from orbitmq.store.timers.layout import AHEAD_MS_MAX, PRECISION_MS, RECALL, floor, slot_of
from orbitmq.store.timers.timer_messages import due_ms_of, keys_of, recall_key_of, slot_ms_of

if TYPE_CHECKING:
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.message_store import MessageStore
    from orbitmq.store.timers.timers import Timers

# Units of one read, and of all reads for a page.
_RUN_UNITS: Final = 512
UNITS_MAX: Final = 4096
# Seconds with messages that one count looks at.
_SLOTS_MAX: Final = 20_000
# The recalls of one second that are remembered for the next page.
_RECALLS_MAX: Final = 100_000
_TOP: Final = -1


class Place(NamedTuple):
    """Where a page begins: a slot, and the position of a unit of it, or its newest one."""

    slot_ms: int
    position: int = _TOP


class Page(NamedTuple):
    """Messages with their due times, and where the next page begins."""

    messages: list[tuple[int, StoredMessage]]
    next_place: Place | None


@dataclass(slots=True, eq=False)
class PendingTimers:
    """Reads what is pending in a store."""

    store: MessageStore
    timers: Timers
    # Recalls found above the place where the last page ended.
    _place: Place = field(default=Place(-1), init=False)
    _recalled: set[str] = field(default_factory=set, init=False)

    def page(self, place: Place, until_ms: int, count_max: int) -> Page:
        """Read messages of the slots from a place on, up to a due time."""
        found: list[tuple[int, StoredMessage]] = []
        chains, units_left = self.timers.chains, UNITS_MAX
        place = max(place, Place(self.timers.read_ms))
        last_ms = min(slot_of(until_ms), self._last_ms())
        while place.slot_ms <= last_ms:
            if place.position == _TOP:
                slot_ms = chains.next_slot(place.slot_ms, last_ms)
                if slot_ms is None:
                    break
                place = Place(slot_ms)
            self._recall_down_to(place)
            units, following = chains.run(place.slot_ms, place.position, _RUN_UNITS)
            found += self._pending(place.slot_ms, units)
            units_left -= max(len(units), 1)
            if following >= 0:
                place = Place(place.slot_ms, following)
            else:
                place = Place(place.slot_ms + PRECISION_MS)
            self._place = place
            if len(found) >= count_max or units_left <= 0:
                return Page(found, place)
        return Page(found, None)

    def find(self, unique_id: str) -> list[StoredMessage]:
        """The pending messages with an id, the first of each second."""
        found: dict[int, StoredMessage] = {}
        recalled: set[tuple[int, str]] = set()
        now_ms = self.timers.now_ms()
        for message in self.store.find(TIMER_TOPIC, unique_id):
            slot_ms = slot_ms_of(message)
            if slot_ms is None or due_ms_of(message, slot_ms) <= now_ms:
                continue
            key = recall_key_of(message)
            if key is not None:
                recalled.add((slot_ms, key))
            elif not self.timers.is_delivered(message, slot_ms):
                found.setdefault(slot_ms, message)
        return [
            message
            for slot_ms, message in found.items()
            if not any((slot_ms, key) in recalled for key in keys_of(message) or ())
        ]

    def counts(
        self, from_ms: int, until_ms: int, span_ms: int
    ) -> tuple[list[tuple[int, int]], int]:
        """Count messages by span of due time, and say where to continue; 0 at the end.

        A recall that named no message counts as one less.
        """
        counts: dict[int, int] = {}
        slot_ms = max(slot_of(from_ms), self.timers.read_ms)
        last_ms = min(slot_of(until_ms), self._last_ms())
        for _ in range(_SLOTS_MAX):
            used_ms = self.timers.chains.next_slot(slot_ms, last_ms)
            if used_ms is None:
                return sorted(counts.items()), 0
            count = self.timers.count(used_ms)
            if count:
                start_ms = (used_ms + 1) // span_ms * span_ms
                counts[start_ms] = counts.get(start_ms, 0) + count
            slot_ms = used_ms + PRECISION_MS
        return sorted(counts.items()), slot_ms + 1

    def _last_ms(self) -> int:
        now_ms = max(floor(self.timers.now_ms()), self.timers.read_ms)
        return now_ms + AHEAD_MS_MAX + PRECISION_MS

    def _recall_down_to(self, place: Place) -> None:
        """Know the recalls of a slot above a place; the next page of a list knows them already."""
        if place == self._place and place.position != _TOP:
            return
        self._recalled = set()
        position = _TOP if place.position != _TOP else None
        while position is not None and (position == _TOP or position > place.position):
            units, following = self.timers.chains.run(place.slot_ms, position, _RUN_UNITS)
            self._note_recalls(units)
            position = following if following >= 0 else None

    def _note_recalls(self, units: list[tuple[int, int, int, int]]) -> None:
        for _, offset, magic, _ in units:
            if magic & RECALL and len(self._recalled) < _RECALLS_MAX:
                message = self.store.message_at(offset)
                key = recall_key_of(message) if message is not None else None
                if key is not None:
                    self._recalled.add(key)

    def _pending(
        self, slot_ms: int, units: list[tuple[int, int, int, int]]
    ) -> list[tuple[int, StoredMessage]]:
        self._note_recalls(units)
        found: list[tuple[int, StoredMessage]] = []
        now_ms = self.timers.now_ms()
        offsets = sorted(offset for _, offset, magic, _ in units if not magic & RECALL)
        for message in self.store.messages_at(offsets):
            own_ms = slot_ms_of(message) if message is not None else None
            if message is None or own_ms is None:
                continue
            due_ms = due_ms_of(message, own_ms)
            is_pending = (
                due_ms > now_ms
                and not self.timers.is_delivered(message, slot_ms)
                and self._recalled.isdisjoint(keys_of(message) or ())
            )
            if is_pending:
                found.append((due_ms, message))
        return sorted(found, key=lambda one: (one[0], one[1].physical_offset))
