"""Messages that are not due yet: by second, page by page, and counted.

A page reads about `SLICE_UNITS` units of the timer log at most, and a count looks at as many seconds as
`SLICE_SLOTS`, so that each takes milliseconds however many messages are pending. Within a second it has the newest messages first, as the timer log does. So a
page that begins inside a second needs the recalls above its place: those that the last pages found
are kept; else they are looked for first, which may take several pages without messages.

Threads: one at a time, and none that changes the timers meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.model import property_names
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.store.timers.layout import PRECISION_MS, RECALL, slot_of
from orbitmq.store.timers.timer_messages import (
    due_ms_of,
    keys_of,
    recall_key_of,
    slot_ms_of,
    whole_number,
)

if TYPE_CHECKING:
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.message_store import MessageStore
    from orbitmq.store.timers.timers import Timers

# Units of one read, and of all reads for a page: about 10 ms.
_RUN_UNITS: Final = 256
SLICE_UNITS: Final = 512
# Seconds of the wheel that a page or a count looks at: about 5 ms if all have messages.
SLICE_SLOTS: Final = 4096
# The recalls of one second that are remembered for the next page, and of how many lists.
_RECALLS_MAX: Final = 100_000
_LISTS_MAX: Final = 4
_TOP: Final = -1
# Messages with one id that are found; the oldest ones are left out.
_SAME_ID_MAX: Final = 32


class Place(NamedTuple):
    """Where a page begins: a slot, and the position of a unit of it, or its newest one."""

    slot_ms: int
    position: int = _TOP


class Page(NamedTuple):
    """Messages with their due times, where the next page begins, and the units read."""

    messages: list[tuple[int, StoredMessage]]
    next_place: Place | None
    units: int


class SlotCounts(NamedTuple):
    """Slots that have chains with their messages, and the due time to continue at; 0 at the end."""

    counts: list[tuple[int, int]]
    next_ms: int


class Found(NamedTuple):
    """Messages with an id; there may be more of them."""

    messages: list[StoredMessage]
    is_cut: bool


@dataclass(slots=True, eq=False)
class _Walk:
    """The recalls of a slot above a position."""

    position: int = _TOP
    recalled: set[bytes] = field(default_factory=set)

    def is_above(self, place: Place) -> bool:
        """Whether units above a place of its slot are still to be read."""
        return place.position != _TOP and (self.position == _TOP or self.position > place.position)


@dataclass(slots=True, eq=False)
class PendingTimers:
    """Reads what is pending in a store."""

    store: MessageStore
    timers: Timers
    # What a query of the store returns at most.
    query_count_max: int = _SAME_ID_MAX
    # What was found above the places where the last pages ended.
    _walks: dict[Place, _Walk] = field(default_factory=dict, init=False)

    def page(self, place: Place, until_ms: int, count_max: int) -> Page:
        """Read messages of the slots from a place on, up to a due time."""
        found: list[tuple[int, StoredMessage]] = []
        chains, units_read = self.timers.chains, 0
        place = max(place, Place(self.timers.read_ms))
        walk = self._walks.pop(place, None) or _Walk()
        last_ms = min(slot_of(until_ms), self._last_ms())
        look_ms = min(place.slot_ms + (SLICE_SLOTS - 1) * PRECISION_MS, last_ms)
        while place.slot_ms <= last_ms:
            if place.position == _TOP:
                slot_ms = chains.next_slot(place.slot_ms, look_ms)
                if slot_ms is None and look_ms < last_ms:
                    return Page(found, Place(look_ms + PRECISION_MS), units_read)
                if slot_ms is None:
                    break
                place, walk = Place(slot_ms), _Walk()
            is_above = walk.is_above(place)
            begin = walk.position if is_above else place.position
            units, following = chains.run(place.slot_ms, begin, _RUN_UNITS)
            units_read += max(len(units), 1)
            self._note_recalls(units, walk.recalled)
            if is_above:
                # A run may end below the place.
                walk.position = max(following, place.position)
            else:
                found += self._pending(place.slot_ms, units, walk.recalled)
                walk.position = following
                if following >= 0:
                    place = Place(place.slot_ms, following)
                else:
                    place = Place(place.slot_ms + PRECISION_MS)
            if len(found) >= count_max or units_read >= SLICE_UNITS:
                self._keep(place, walk)
                return Page(found, place, units_read)
        return Page(found, None, units_read)

    def find(self, unique_id: str) -> Found:
        """The pending messages with an id, of any topic, oldest first."""
        count_max = min(self.query_count_max, _SAME_ID_MAX)
        stored = self.store.find(TIMER_TOPIC, unique_id, count_max=count_max)
        found: list[tuple[int, StoredMessage]] = []
        recalled: set[tuple[int, bytes]] = set()
        now_ms = self.timers.now_ms()
        for message in stored:
            slot_ms = slot_ms_of(message)
            if slot_ms is None or due_ms_of(message, slot_ms) <= now_ms:
                continue
            key = recall_key_of(message)
            if key is not None:
                recalled.add((slot_ms, key))
            elif not self.timers.is_delivered(message, slot_ms):
                found.append((slot_ms, message))
        rolls: dict[_Origin, int] = {}
        for _, message in found:
            origin = _Origin.of(message)
            rolls[origin] = max(rolls.get(origin, 0), _rolls(message))
        pending = [
            message
            for slot_ms, message in found
            if _rolls(message) == rolls[_Origin.of(message)]
            and not any((slot_ms, key) in recalled for key in keys_of(message))
        ]
        return Found(pending, is_cut=len(stored) >= count_max)

    def count(self, from_ms: int, until_ms: int) -> SlotCounts:
        """Count the messages of seconds from one due time to another.

        A recall that named no message counts as one less.
        """
        counts: list[tuple[int, int]] = []
        slot_ms = max(slot_of(from_ms), self.timers.read_ms)
        last_ms = min(slot_of(until_ms), self._last_ms())
        look_ms = min(slot_ms + (SLICE_SLOTS - 1) * PRECISION_MS, last_ms)
        while (used_ms := self.timers.chains.next_slot(slot_ms, look_ms)) is not None:
            counts.append((used_ms, self.timers.count(used_ms)))
            slot_ms = used_ms + PRECISION_MS
        return SlotCounts(counts, 0 if look_ms >= last_ms else look_ms + PRECISION_MS + 1)

    def _last_ms(self) -> int:
        return max(self.timers.chains.last_slot_ms, self.timers.read_ms)

    def _keep(self, place: Place, walk: _Walk) -> None:
        if place.position == _TOP:
            return
        if len(self._walks) >= _LISTS_MAX:
            del self._walks[next(iter(self._walks))]
        self._walks[place] = walk

    def _note_recalls(self, units: list[tuple[int, int, int, int]], recalled: set[bytes]) -> None:
        for _, offset, magic, _ in units:
            if magic & RECALL and len(recalled) < _RECALLS_MAX:
                message = self.store.message_at(offset)
                key = recall_key_of(message) if message is not None else None
                if key is not None:
                    recalled.add(key)

    def _pending(
        self, slot_ms: int, units: list[tuple[int, int, int, int]], recalled: set[bytes]
    ) -> list[tuple[int, StoredMessage]]:
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
                and (not recalled or recalled.isdisjoint(keys_of(message)))
            )
            if is_pending:
                found.append((due_ms, message))
        return sorted(found, key=lambda one: (one[0], one[1].physical_offset))


class _Origin(NamedTuple):
    """What stays the same when RocketMQ stores a message again to put it off.

    Compat: it does so with what is due after its window, and then ignores the older record.
    """

    topic: str | None
    due: str | None
    born_ms: int
    body: bytes

    @classmethod
    def of(cls, message: StoredMessage) -> _Origin:
        return cls(
            message.properties.get(property_names.REAL_TOPIC),
            message.properties.get(property_names.TIMER_DUE_MS),
            message.born_ms,
            message.stored_body,
        )


def _rolls(message: StoredMessage) -> int:
    """How often RocketMQ put a message off."""
    return whole_number(message.properties.get(property_names.TIMER_ROLLS)) or 0
