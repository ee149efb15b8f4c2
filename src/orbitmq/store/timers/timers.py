"""Timers: which messages of a store are due, in RocketMQ's files.

Messages of the timer topic are taken into the wheel in the order of their queue, once they are
visible. Slots are delivered one after the other, and the messages of a slot in the order of due time
and physical offset. So two numbers, the slot and a cursor in it, say what is delivered.

Threads: one at a time, except `needed_from`.
Crash: opening builds the wheel from the timer log, up to the end that was saved with the progress.
If the timer log is damaged, both are made again from the queue of the timer topic. Copies delivered
after the progress was saved are found in the commit log.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.java_hash import java_hash
from orbitmq.model import property_names
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.decode import decode_record
from orbitmq.store.timers.delivered_copies import delivered_since
from orbitmq.store.timers.due_slot import DueSlot
from orbitmq.store.timers.layout import (
    AHEAD_MS_MAX,
    KEEP,
    PRECISION_MS,
    RECALL,
    ROLL,
    floor,
    is_recall,
    is_rolled,
)
from orbitmq.store.timers.timer_chains import TimerChains
from orbitmq.store.timers.timer_messages import due_ms_of, keys_of, recall_key_of, slot_ms_of
from orbitmq.store.timers.timer_progress import TimerProgress, TimerProgressFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.clock import Clock
    from orbitmq.disk import FileModes
    from orbitmq.model.versions import DataVersion
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

# Entries of the timer topic that a rebuild reads at once.
_REBUILD_ENTRIES: Final = 4096
# The progress is saved at least this often, even if nothing was due.
_SAVE_MS_MAX: Final = 60_000
# And after this much of the commit log, which opening would have to search for copies.
_SAVE_BYTES_MAX: Final = 16 * 1024 * 1024
# How late a message may come into the wheel after its slot, when the wheel is rebuilt.
_LATE_MS_MAX: Final = 60_000
# The cursor of a slot that is not begun.
_BEGINNING: Final = (0, -1)
# Slots that one call moves on; the broker may have been down for days.
_SLOTS_PER_TURN: Final = 20_000


# Physical offset, record bytes and tag hash of an entry of the timer topic.
Entry = tuple[int, int, int]


class Due(NamedTuple):
    """A message that is due; without `message` its record is gone or damaged."""

    due_ms: int
    physical_offset: int
    message: StoredMessage | None


class Timers:
    """The timers of one store."""

    def __init__(
        self, store: MessageStore, root: Path, *, file_bytes: int, modes: FileModes, clock: Clock
    ) -> None:
        self._store = store
        self._clock = clock
        self._files = TimerProgressFiles(root, modes)
        self._chains = TimerChains(root, file_bytes=file_bytes, modes=modes, clock=clock)
        # Slots before are delivered; this one is being delivered.
        self.read_ms = 0
        self._cursor = _BEGINNING
        self._due = DueSlot()
        self._recalled: set[bytes] = set()
        self._delivered: set[int] = set()
        self._opened_ms = 0
        # Copies of slots before were delivered by RocketMQ, and cannot be recognized.
        self._ours_from_ms = 0
        # The next message of the timer topic to take in.
        self.queue_offset = 0
        self._saved_offset = 0
        self._saved_ms = 0
        self._saved_position = 0
        # Until the wheel is whole, nothing of the commit log may be deleted, and nothing saved.
        self._is_whole = False
        self._is_changed = False
        self._rebuilt_ms = -1
        self._is_partly_delivered = False

    # --- opening and closing ------------------------------------------------------------------

    def open(self, copied: TimerProgress | None = None) -> None:
        """Bring wheel, log and progress to a known state, and load the slot to deliver.

        `copied` is what RocketMQ had done as the master of this store, a copy of its log then.
        """
        now_ms = self._clock.now_ms()
        # The clock may have been set back since the last delivery.
        self._opened_ms = max(now_ms, self._store.parts.last_store_ms)
        progress = self._files.load()
        queue_end = self._store.end_of(TIMER_TOPIC, 0)
        is_copied = copied is not None and (progress is None or copied.read_ms > progress.read_ms)
        if is_copied and copied is not None:
            # Later copies may be our own, of before or after.
            progress = replace(copied, commit_log_position=self._first_timer())
        if progress is None:
            # Without progress, only copies tell what is delivered.
            progress = TimerProgress(
                read_ms=floor(now_ms) if not queue_end else 0,
                commit_log_position=self._first_timer(),
            )
        is_ours = progress.commit_log_position is not None
        self._ours_from_ms = 0 if is_ours else now_ms
        if is_copied:
            self._ours_from_ms = progress.read_ms
        self.read_ms = progress.read_ms
        self._cursor = progress.cursor
        self.queue_offset = min(progress.queue_offset, queue_end)
        self._delivered = self._delivered_since(progress)
        if is_copied:
            self._rebuild()
        is_rebuilt = is_copied or not self._load(progress, queue_end, is_ours=is_ours)
        self.queue_offset = max(self.queue_offset, self._store.start_of(TIMER_TOPIC, 0))
        self._load_slot()
        self._is_whole = True
        self._saved_offset = self.queue_offset
        self._saved_ms = now_ms
        # The search must be repeated until what it found has been passed.
        position = progress.commit_log_position
        self._saved_position = self._store.log_end if position is None else position
        self._is_changed = bool(self._delivered) or not is_ours or is_rebuilt
        if is_rebuilt:
            # Otherwise the next opening could take the new timer log for the old one.
            self.save()

    def _load(self, progress: TimerProgress, queue_end: int, *, is_ours: bool) -> bool:
        """Load the wheel; if it is damaged, makes it again and returns False."""
        try:
            self._check_age(progress.read_ms, queue_end)
            _check_log(progress, queue_end, self._store.log_end)
            self._load_chains(progress, is_ours=is_ours)
        except StoreDamagedError as damage:
            if self._files.saved is not None:
                log.warning("timer wheel rebuilt from the queue reason=%s", damage)
            self._rebuild()
            return False
        return True

    def close(self) -> None:
        """Save everything, so that RocketMQ delivers just what is left."""
        self._mend()
        self._end_slot_for_others()
        self.save(is_last=True)
        self._chains.close()

    def save(self, *, is_last: bool = False) -> None:
        """Put the progress on disk, and all that it refers to before."""
        is_old = self.read_ms - self._saved_ms >= _SAVE_MS_MAX
        is_far = self._store.log_end - self._saved_position >= _SAVE_BYTES_MAX
        if not (self._is_changed or is_old or is_far or is_last):
            return
        if not self.queue_offset and self._files.saved is None:
            # No timer was ever used here: no files.
            return
        self._mend()
        self._is_changed = False
        position = self._saved_position if self._delivered else self._store.log_end
        self._store.flush()
        self._chains.sync()
        progress = TimerProgress(
            read_ms=self.read_ms,
            log_end=self._chains.end,
            queue_offset=self.queue_offset,
            cursor=self._cursor,
            commit_log_position=position,
        )
        self._files.save(progress, self._clock.now_ms())
        self._saved_offset = self.queue_offset
        self._saved_ms = self.read_ms
        self._saved_position = position
        self._chains.drop_before(self.read_ms)

    def saved(self) -> tuple[TimerProgress, DataVersion]:
        """The progress on disk and its version, for slaves; without any, one that says nothing."""
        return self._files.saved or TimerProgress(), self._files.version

    def needed_from(self) -> PhysicalOffset:
        """The oldest record of the commit log that is still needed; from any thread."""
        if not self._is_whole:
            return PhysicalOffset(0)
        needed = self._store.visible
        for offset, _, _ in self._store.entries(TIMER_TOPIC, 0, self._saved_offset, 1):
            needed = PhysicalOffset(min(needed, offset))
        oldest = self._chains.oldest_physical_offset
        return needed if oldest is None else PhysicalOffset(min(needed, oldest))

    def _first_timer(self) -> int:
        """Where the first timer message of the queue is; the end of the log if there is none."""
        start = self._store.start_of(TIMER_TOPIC, 0)
        entries = self._store.entries(TIMER_TOPIC, 0, start, 1)
        return entries[0][0] if entries else self._store.log_end

    def _delivered_since(self, progress: TimerProgress) -> set[int]:
        """The messages delivered after the progress was saved, which is not long ago."""
        position = progress.commit_log_position
        if position is None or position >= self._store.log_end:
            return set()
        delivered = delivered_since(self._store.parts.log, position)
        log.info(
            "delivered timer messages searched from=%d bytes=%d found=%d",
            position, self._store.log_end - position, len(delivered),
        )  # fmt: skip
        return delivered

    def _check_age(self, read_ms: int, queue_end: int) -> None:
        """Raise StoreDamagedError if slots of the wheel may stand for two times."""
        if queue_end and read_ms < floor(self._opened_ms) - AHEAD_MS_MAX:
            raise StoreDamagedError("it was not read for a week")

    def _load_chains(self, progress: TimerProgress, *, is_ours: bool) -> None:
        newest = self._chains.load(progress.read_ms, progress.log_end if is_ours else None)
        if not is_ours and newest is not None:
            # Compat: RocketMQ may have put more on disk than it noted.
            message = self._store.message_at(newest)
            if message is not None and message.topic == TIMER_TOPIC:
                self.queue_offset = max(self.queue_offset, message.queue_offset + 1)

    def _mend(self) -> None:
        """Finish a rebuild that failed halfway, for example on a full disk."""
        if not self._is_whole:
            self._rebuild()
            self._load_slot()
            self._is_whole = True

    def _rebuild(self) -> None:
        """Make wheel and log again from the queue of the timer topic."""
        self._is_whole = False
        self._chains.clear()
        self._due, self._recalled = DueSlot(), set()
        done_ms = self.read_ms
        # After the clock was set back, what came late may be due long before the read time.
        late_ms = min(done_ms, floor(self._clock.now_ms())) - _LATE_MS_MAX
        self.read_ms = max(self.read_ms, floor(self._clock.now_ms()) - AHEAD_MS_MAX)
        self._cursor = _BEGINNING
        number = int(self._store.start_of(TIMER_TOPIC, 0))
        known: set[int] | None = None
        while number < self.queue_offset:
            entries = self._store.entries(TIMER_TOPIC, 0, number, _REBUILD_ENTRIES)
            entries = entries[: self.queue_offset - number]
            for (offset, record_bytes, _), message in self._messages(number, entries):
                number += 1
                slot_ms = slot_ms_of(message) if message is not None else None
                if message is None or slot_ms is None:
                    continue
                if slot_ms <= done_ms:
                    # Part of this slot is delivered, and what came late for others is in it.
                    if slot_ms < max(late_ms, self._ours_from_ms):
                        continue
                    if known is None:
                        known = delivered_since(self._store.parts.log, offset)
                    if offset in known:
                        continue
                self._take_in(message, slot_ms, record_bytes)
            self._chains.write()
            if not entries:
                break
        self._is_changed = True

    # --- what is pending ----------------------------------------------------------------------

    @property
    def chains(self) -> TimerChains:
        """The units by slot, for reading."""
        return self._chains

    def now_ms(self) -> int:
        """The time by which messages are due."""
        return self._clock.now_ms()

    @property
    def has_pending(self) -> bool:
        """Whether the store has messages that are not delivered, or recalls of such."""
        return bool(self.behind or self._due.count or self._chains.last_slot_ms > self.read_ms)

    def count(self, slot_ms: int) -> int:
        """How many messages of a slot are pending, less recalls."""
        return self._due.count if slot_ms == self.read_ms else self._chains.count(slot_ms)

    def is_delivered(self, message: StoredMessage, slot_ms: int) -> bool:
        """Whether a message of a slot is delivered or dropped already."""
        if slot_ms != self.read_ms:
            return slot_ms < self.read_ms
        return (due_ms_of(message, slot_ms), message.physical_offset) <= self._cursor

    def is_copied(self, message: StoredMessage) -> bool:
        """Whether `open` found a copy of a message."""
        return message.physical_offset in self._delivered

    def brought_forward(self) -> list[StoredMessage]:
        """Messages with copies found by `open` whose time has not come.

        They may lack the recall that a broker stores after the copy.
        """
        found: list[StoredMessage] = []
        for message in self._store.messages_at(sorted(self._delivered)):
            slot_ms = slot_ms_of(message) if message is not None else None
            if message is not None and slot_ms is not None and slot_ms > self._opened_ms:
                found.append(message)
        return found

    # --- taking in ----------------------------------------------------------------------------

    @property
    def behind(self) -> int:
        """How many visible messages are not in the wheel yet."""
        return max(self._store.end_of(TIMER_TOPIC, 0) - self.queue_offset, 0)

    def take_in(self, count_max: int) -> int:
        """Put the next messages of the timer topic into the wheel; returns how many."""
        self._mend()
        self.queue_offset = max(self.queue_offset, self._store.start_of(TIMER_TOPIC, 0))
        entries = self._store.entries(TIMER_TOPIC, 0, self.queue_offset, count_max)
        for (_, record_bytes, _), message in self._messages(self.queue_offset, entries):
            slot_ms = slot_ms_of(message) if message is not None else None
            if message is None or slot_ms is None:
                log.error(
                    "timer message lost topic=%s queue=0 offset=%d reason=its record is deleted or "
                    "damaged hint=run: orbitmq store verify",
                    TIMER_TOPIC, self.queue_offset,
                )  # fmt: skip
            else:
                self._take_in(message, slot_ms, record_bytes)
            self.queue_offset += 1
            self._is_changed = True
        self._chains.write()
        return len(entries)

    def _take_in(self, message: StoredMessage, slot_ms: int, record_bytes: int) -> None:
        if message.physical_offset in self._delivered:
            return
        due_ms = due_ms_of(message, slot_ms)
        key = recall_key_of(message)
        magic = KEEP if key is None else KEEP | RECALL
        # After the clock was set back, slots up to the read time are over although it is earlier.
        farthest_ms = max(floor(self._clock.now_ms()), self.read_ms) + AHEAD_MS_MAX
        due_in_slot_ms = due_ms - slot_ms
        if slot_ms > farthest_ms:
            slot_ms, due_in_slot_ms = farthest_ms, 0
            magic |= ROLL
        elif slot_ms <= self.read_ms:
            # What comes late must not be at or before the cursor.
            due_ms = max(due_ms, self._cursor[0], self.read_ms + 1)
            due_in_slot_ms = min(due_ms - self.read_ms, PRECISION_MS)
            slot_ms = self.read_ms
        topic = message.properties.get(property_names.REAL_TOPIC, "")
        self._chains.append(
            slot_ms,
            magic,
            (message.physical_offset, record_bytes, java_hash(topic)),
            due_in_slot_ms,
        )
        if slot_ms == self.read_ms and not magic & ROLL:
            if key is None:
                self._due.add(self.read_ms + due_in_slot_ms, message.physical_offset)
            else:
                self._recalled.add(key)

    def _messages(
        self, number: int, entries: list[Entry]
    ) -> Iterator[tuple[Entry, StoredMessage | None]]:
        """The messages of entries of the timer topic; None for a record that is gone or damaged."""
        offsets = [offset for offset, _, _ in entries]
        for entry, message in zip(entries, self._store.messages_at(offsets), strict=True):
            is_sound = (
                message is not None
                and message.topic == TIMER_TOPIC
                and message.queue_offset == number
            )
            yield entry, message if is_sound else self._repaired(number)
            number += 1

    def _repaired(self, number: int) -> StoredMessage | None:
        """A message of the timer topic, read in a way that repairs its entry, if it can."""
        try:
            read = self._store.read(TIMER_TOPIC, 0, number, 1)
        except StoreDamagedError:
            return None
        return decode_record(read.records[0]) if read.records else None

    # --- what is due --------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When the next message of the slot being delivered is due; None if there is none."""
        return self._due.next_due_ms

    def move_on(self) -> None:
        """Go to the next slot that has messages, if this one is done and its second is over."""
        self._mend()
        now_floor_ms = floor(self._clock.now_ms())
        for _ in range(_SLOTS_PER_TURN):
            if self._due.count or self.read_ms >= now_floor_ms:
                return
            if self._delivered and self.read_ms >= self._opened_ms:
                # All that was delivered before is in this slot, or in earlier ones.
                self._delivered = set()
                self._is_changed = True
            if self._chains.has(self.read_ms + PRECISION_MS):
                self._move_to_slot(self.read_ms + PRECISION_MS)
            else:
                self._move_past(self.read_ms + PRECISION_MS)
        return

    def _move_to_slot(self, slot_ms: int) -> None:
        """Begin a slot that has messages; if it cannot be read now, nothing has changed."""
        before = self.read_ms, self._cursor, self._due, self._recalled
        self.read_ms, self._cursor = slot_ms, _BEGINNING
        try:
            self._load_slot()
        except Exception:
            if self._is_whole:
                self.read_ms, self._cursor, self._due, self._recalled = before
            raise
        self._is_changed = True

    def _move_past(self, slot_ms: int) -> None:
        self.read_ms, self._cursor = slot_ms, _BEGINNING
        self._is_partly_delivered = False
        if self._recalled:
            self._recalled = set()

    def due(self, count_max: int) -> list[Due]:
        """Read the next messages that are due, in order; each stays until `done`."""
        self._mend()
        found: list[Due] = []
        peeked = self._due.peek(self._clock.now_ms(), count_max)
        messages = self._store.messages_at([offset for _, offset in peeked])
        for (due_ms, offset), message in zip(peeked, messages, strict=True):
            is_due = message is not None and _is_due(message, due_ms)
            if not is_due and self._rebuilt_ms != self.read_ms:
                # The unit may be damaged, rather than the message.
                self._rebuilt_ms = self.read_ms
                log.warning("timer wheel rebuilt from the queue reason=no timer at %d", offset)
                self._is_whole = False
                return self.due(count_max)
            found.append(Due(due_ms, offset, message if is_due else None))
        return found

    def is_recalled(self, message: StoredMessage) -> bool:
        """Whether a message of the slot being delivered was taken back."""
        return bool(self._recalled) and not self._recalled.isdisjoint(keys_of(message))

    def done(self, due: Due) -> None:
        """Note that a message is delivered or dropped; in the order of `due`."""
        self._due.drop_next()
        self._cursor = (due.due_ms, due.physical_offset)
        self._is_changed = self._is_partly_delivered = True

    def _load_slot(self) -> None:
        try:
            self._read_slot()
        except StoreDamagedError as damage:
            log.warning("timer wheel rebuilt from the queue reason=%s", damage)
            self._rebuild()
            self._read_slot()
            self._is_whole = True

    def _read_slot(self) -> None:
        self._due = due = DueSlot()
        self._recalled = set()
        self._is_partly_delivered = self._cursor != _BEGINNING
        rolled: list[tuple[int, int]] = []
        markers: list[int] = []
        for due_in_slot_ms, offset, magic, record_bytes in self._chains.units(self.read_ms):
            if is_rolled(magic):
                rolled.append((offset, record_bytes))
            elif is_recall(magic):
                markers.append(offset)
            else:
                due_ms = self.read_ms + (due_in_slot_ms or self._due_in_slot(offset))
                if (due_ms, offset) <= self._cursor:
                    continue
                if offset in self._delivered:
                    self._is_partly_delivered = True
                    continue
                due.add(due_ms, offset)
        for marker in self._store.messages_at(sorted(markers)):
            key = recall_key_of(marker) if marker is not None else None
            if key is not None:
                self._recalled.add(key)
        if rolled and self._cursor == _BEGINNING:
            for offset, record_bytes in reversed(rolled):
                self._roll(offset, record_bytes)
            self._end_with_newest()
            # They must not be put on again if this slot is read again.
            self._cursor = (self.read_ms, -1)
            self._is_partly_delivered = True

    def _due_in_slot(self, physical_offset: int) -> int:
        """The due time within this slot of a message whose unit RocketMQ wrote."""
        message = self._store.message_at(physical_offset)
        return due_ms_of(message, self.read_ms) - self.read_ms if message is not None else 1

    def _roll(self, physical_offset: int, record_bytes: int) -> None:
        """Put a message on into its own slot."""
        message = self._store.message_at(physical_offset)
        slot_ms = slot_ms_of(message) if message is not None else None
        if message is not None and slot_ms is not None:
            self._take_in(message, slot_ms, record_bytes)
            self._is_changed = True

    # --- for RocketMQ -------------------------------------------------------------------------

    def _end_slot_for_others(self) -> None:
        """Leave only what is not delivered in the slot at the read time.

        Compat: RocketMQ delivers all of that slot. It reads the chain from the last unit in the log
        on, so a chain that begins again leaves out what was delivered. A recall that names no
        message ends an empty one.
        """
        if not self._is_partly_delivered or not self._chains.has(self.read_ms):
            return
        starts_chain = True
        for due_ms, offset in self._due.all():
            message = self._store.message_at(offset)
            if message is None or self.is_recalled(message):
                continue
            topic = message.properties.get(property_names.REAL_TOPIC, "")
            record = (offset, message.size, java_hash(topic))
            self._chains.append(
                self.read_ms, KEEP, record, due_ms - self.read_ms, starts_chain=starts_chain
            )
            starts_chain = False
        self._end_with_newest(starts_chain=starts_chain)
        self._is_partly_delivered = False

    def _end_with_newest(self, *, starts_chain: bool = False) -> None:
        """Make the last unit one of the newest message that was taken in, by a recall of nothing.

        Compat: RocketMQ resumes the queue after the message of the last unit. After that of an older
        one it would take in again, and deliver, what came later.
        """
        for offset, record_bytes, _ in self._store.entries(
            TIMER_TOPIC, 0, self.queue_offset - 1, 1
        ):
            record = (offset, record_bytes, 0)
            self._chains.append(self.read_ms, KEEP | RECALL, record, 0, starts_chain=starts_chain)


def _check_log(progress: TimerProgress, queue_end: int, log_end: int) -> None:
    """Raise StoreDamagedError if the commit log ends before what the progress is based on."""
    position = progress.commit_log_position or 0
    if progress.queue_offset > queue_end or position > log_end:
        raise StoreDamagedError(
            f"the commit log ends at {log_end} and the queue of timers at {queue_end}, before the "
            f"saved progress: {position} and {progress.queue_offset}"
        )


def _is_due(message: StoredMessage, due_ms: int) -> bool:
    """Whether a record is a timer message that is due at that time."""
    slot_ms = slot_ms_of(message)
    return slot_ms is not None and due_ms_of(message, slot_ms) <= due_ms
