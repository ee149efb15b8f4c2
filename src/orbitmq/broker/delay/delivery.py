"""Delay delivery: moves delayed messages to their real queues once they are due.

A level is one queue whose entries hold the due time of their message. Due times of a level grow
with its offsets, so only the first message of each level has to be checked.

A message that can never be stored in its queue is skipped, with an error in the log that says where
it is. While the store refuses writes, the level waits.

Threads: the event loop's; records are read off it.
Crash: progress is saved after what was delivered is on disk, so it never runs ahead.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.broker.real_queues import original_draft
from orbitmq.disk import off_loop
from orbitmq.errors import MessageError, OrbitError, StoreDamagedError
from orbitmq.lifecycle import Periodic
from orbitmq.model.names import SCHEDULE_TOPIC
from orbitmq.model.queues import QueueOffset
from orbitmq.record.decode import decode_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.delay.progress import DelayProgress
    from orbitmq.clock import Clock
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_DELIVERY_INTERVAL_MS: Final = 100
# Messages of one level moved before other levels, and clients, get their turn.
_BATCH: Final = 128
# An entry dated too far ahead may be late by 1/100 of its level's delay; this bounds the memory.
_LATENESS_DIVISOR: Final = 100


class DueTimes:
    """Decides which entries of one level are due, even if the clock was set back.

    An entry holds its due time by the wall clock at the moment it was stored. If that clock was set
    back since, or the level had a longer delay then, the due time is further ahead than the level
    allows. Such an entry waits the level's delay from when it was first seen, by the monotonic
    clock. It may come late, but never early.

    Threads: one at a time.
    Crash: what was seen is forgotten, and the wait starts again.
    """

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        # Ends of the queue whose last due time was too far ahead, and when each was seen.
        self._seen: deque[tuple[int, float]] = deque()

    def note(self, end: int, last_due_ms: int, *, now_ms: int, monotonic_ms: float) -> None:
        """Check the due time of the last entry, which is the latest of all."""
        if last_due_ms <= now_ms + self.delay_ms:
            return
        if self._seen:
            known_end, seen_ms = self._seen[-1]
            if end <= known_end or monotonic_ms - seen_ms < self.delay_ms / _LATENESS_DIVISOR:
                return
        self._seen.append((end, monotonic_ms))

    def is_due(self, offset: int, due_ms: int, *, now_ms: int, monotonic_ms: float) -> bool:
        """Whether an entry is due; must be called in the order of offsets."""
        if due_ms <= now_ms:
            return True
        while self._seen and self._seen[0][0] <= offset:
            self._seen.popleft()
        return bool(self._seen) and monotonic_ms - self._seen[0][1] >= self.delay_ms


class DelayDelivery:
    """Moves messages out of the delay queues."""

    def __init__(
        self,
        *,
        store: MessageStore,
        progress: DelayProgress,
        levels_ms: tuple[int, ...],
        on_delivered: Callable[[Draft], None],
        save_interval_ms: int,
        clock: Clock,
    ) -> None:
        self._store = store
        self._progress = progress
        self._due_times = {
            level: DueTimes(delay_ms) for level, delay_ms in enumerate(levels_ms, start=1)
        }
        self._on_delivered = on_delivered
        self._clock = clock
        self._offsets: dict[int, QueueOffset] = {}
        # Levels that wait for the store; each is logged once.
        self._waiting: set[int] = set()
        self._delivering = Periodic(
            "delay delivery", _DELIVERY_INTERVAL_MS, self.deliver_due, clock
        )
        self._saving = Periodic("delay progress", save_interval_ms, self.save, clock)

    def start(self) -> None:
        """Resume at the saved progress."""
        for level in self._due_times:
            self._offsets[level] = self._clamp(level, self._progress.offset(level))
        self._delivering.start()
        self._saving.start()

    async def stop(self) -> None:
        """Stop, and save the progress."""
        await self._delivering.stop()
        await self._saving.stop()
        try:
            await self.save()
        except OrbitError as error:
            log.warning(
                "delay progress not saved; some messages will be delivered again reason=%s", error
            )

    @property
    def offsets(self) -> Mapping[int, QueueOffset]:
        """The next offset of each level."""
        return self._offsets

    async def save(self) -> None:
        """Save the progress, once what was delivered is on disk."""
        offsets = dict(self._offsets)
        if not self._progress.is_written or any(
            self._progress.offset(level) != offset for level, offset in offsets.items()
        ):
            await off_loop(self._store.flush)
            await self._progress.save(offsets)

    async def deliver_due(self) -> None:
        """Move every message that is due."""
        for level in self._offsets:
            try:
                while await self._deliver_some(level):
                    pass
            except Exception:  # noqa: BLE001  # the border: other levels continue
                self._wait(level, "see the traceback", exc_info=True)

    async def _deliver_some(self, level: int) -> bool:
        """Move a batch of one level; returns whether more may be due."""
        offset = self._offsets[level]
        if offset >= self._store.end_of(SCHEDULE_TOPIC, level - 1):
            return False
        due, is_full = await off_loop(self._read_due, level, offset)
        try:
            for number, message in due:
                if message is not None:
                    self._deliver(level, number, message)
                self._offsets[level] = QueueOffset(number + 1)
        except OrbitError as error:
            self._wait(level, error)
            return False
        finally:
            self._store.publish()
            self._store.request_flush()
        lost = [number for number, message in due if message is None]
        if lost:
            log.error(
                "delayed messages lost level=%d count=%d first=%d last=%d reason=their records are "
                "deleted or damaged hint=see above for deleted files, and run: orbitmq store verify",
                level, len(lost), lost[0], lost[-1],
            )  # fmt: skip
        if due and level in self._waiting:
            self._waiting.remove(level)
            log.info("delayed messages resumed level=%d", level)
        return is_full

    def _read_due(
        self, level: int, offset: QueueOffset
    ) -> tuple[list[tuple[QueueOffset, StoredMessage | None]], bool]:
        """Read messages that are due; None for one whose record is gone."""
        due_times = self._due_times[level]
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        end = self._store.end_of(SCHEDULE_TOPIC, level - 1)
        latest_ms = now_ms + due_times.delay_ms
        for _, _, last_due_ms in self._store.entries(SCHEDULE_TOPIC, level - 1, end - 1, 1):
            due_times.note(end, last_due_ms, now_ms=now_ms, monotonic_ms=monotonic_ms)
            latest_ms = max(latest_ms, last_due_ms)
        offset = self._clamp(level, offset)
        due: list[tuple[QueueOffset, StoredMessage | None]] = []
        for physical_offset, _, entry_due_ms in self._store.entries(
            SCHEDULE_TOPIC, level - 1, offset, _BATCH
        ):
            due_ms = entry_due_ms
            message = None
            if due_ms <= now_ms or due_ms > latest_ms:
                message = self._message(level, offset, physical_offset)
                if message is not None and not message.store_ms <= due_ms <= latest_ms:
                    # A flipped bit must not deliver a message at once, or hold up all after it.
                    due_ms = message.store_ms + due_times.delay_ms
            if not due_times.is_due(offset, due_ms, now_ms=now_ms, monotonic_ms=monotonic_ms):
                return due, False
            due.append((offset, message or self._message(level, offset, physical_offset)))
            offset = QueueOffset(offset + 1)
        return due, len(due) == _BATCH

    def _message(
        self, level: int, offset: QueueOffset, physical_offset: int
    ) -> StoredMessage | None:
        """The message of an entry; None if its record is gone, or damaged."""
        message = self._store.message_at(physical_offset)
        if message is not None and (message.topic, message.queue_id, message.queue_offset) == (
            SCHEDULE_TOPIC,
            level - 1,
            offset,
        ):
            return message
        try:
            # A read repairs the entry, if it can.
            read = self._store.read(SCHEDULE_TOPIC, level - 1, offset, 1)
        except StoreDamagedError:
            return None
        return decode_record(read.records[0]) if read.records else None

    def _deliver(self, level: int, number: QueueOffset, message: StoredMessage) -> None:
        """Store a message in its real queue; raises if that must be retried.

        One that can never be stored is skipped.
        """
        try:
            draft = original_draft(message)
            self._store.append(draft)
        except MessageError as error:
            self._skip(level, number, message, error)
        else:
            self._on_delivered(draft)

    def _skip(
        self, level: int, number: QueueOffset, message: StoredMessage, error: MessageError
    ) -> None:
        log.error(
            "delayed message skipped topic=%s queue=%d offset=%d id=%s reason=%s "
            "hint=it stays there until its file is deleted; read it with: "
            "mqadmin queryMsgByOffset -t %s -i %d -o %d",
            SCHEDULE_TOPIC, level - 1, number, message.message_id, error,
            SCHEDULE_TOPIC, level - 1, number,
        )  # fmt: skip

    def _wait(self, level: int, reason: object, *, exc_info: bool = False) -> None:
        if level not in self._waiting:
            self._waiting.add(level)
            log.warning(
                "delayed messages waiting level=%d reason=%s", level, reason, exc_info=exc_info
            )

    def _clamp(self, level: int, offset: QueueOffset) -> QueueOffset:
        start = self._store.start_of(SCHEDULE_TOPIC, level - 1)
        end = self._store.end_of(SCHEDULE_TOPIC, level - 1)
        return max(start, min(offset, end))
