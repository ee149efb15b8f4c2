"""Scrubbing: compares queues with the log in the background, slowly.

Reading does not notice everything: a filter trusts the tag hash of an entry, and damage is found only
where somebody reads. A pass walks over the whole log. It checks the checksum and the position of each
record, and that the record's queue entry is the one that the log tells. Wrong entries are repaired,
damaged records are logged.

Threads: the upkeep thread.
Crash: it has no state on disk; passes begin with another file after each start.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from orbitmq.errors import QueueDamagedError
from orbitmq.model.queues import QueueOffset
from orbitmq.record.codec import walk
from orbitmq.record.decode import Verdict
from orbitmq.record.layout import BLANK_BYTES_MIN
from orbitmq.record.scan import DELAY_TOPIC
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES, EXTENSION_BELOW
from orbitmq.store.log.stand_ins import is_stand_in

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.record.scan import EntryRun
    from orbitmq.store.index.consume_queue import ConsumeQueue
    from orbitmq.store.index.dispatcher import Dispatcher

log = logging.getLogger(__name__)

# A start has enough to do; and a small store need not be read all the time.
FIRST_AFTER_MS: Final = 60_000
PAUSE_MS: Final = 3_600_000
# The most that is read in one piece, unless a record is larger.
_PIECE_BYTES: Final = 256 * 1024


class Scrub:
    """Passes over the log, one after the other."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        read: Callable[[str, int, int], object],
        bytes_per_second: int,
        has_extensions: bool,
        clock: Clock,
    ) -> None:
        """`read` reads a message by topic, queue and offset, and repairs its entry if it can."""
        self._dispatcher = dispatcher
        self._log = dispatcher.log
        self._queues = dispatcher.queues
        self._read = read
        self._bytes_per_second = bytes_per_second
        self._has_extensions = has_extensions
        self._clock = clock
        self._next_ms = clock.monotonic_ms() + FIRST_AFTER_MS
        # What is left of the pass: offsets in the log, up to the ends of their files.
        self._left: deque[int] = deque()
        self._bytes_due = 0.0
        self._reported: set[int] = set()

    def step(self) -> None:
        """Check as much as the time since the last step allows, at most a second's worth."""
        now_ms = self._clock.monotonic_ms()
        if not self._bytes_per_second or now_ms < self._next_ms:
            return
        if not self._left:
            self._begin_pass()
            self._bytes_due = 0.0
        elapsed_ms = min(now_ms - self._next_ms, 1000.0)
        self._next_ms = now_ms
        self._bytes_due += self._bytes_per_second * elapsed_ms / 1000
        while self._bytes_due > 0 and self._left:
            self._bytes_due -= self._check_piece()
        if not self._left:
            self._next_ms = now_ms + PAUSE_MS

    def check_all(self) -> None:
        """Make a whole pass at once."""
        self._begin_pass()
        while self._left:
            self._check_piece()

    def _begin_pass(self) -> None:
        self._left = deque(file.first_offset for file in self._log.files)
        self._left.rotate(self._clock.now_ms() // PAUSE_MS)

    def _check_piece(self, piece_bytes: int = _PIECE_BYTES) -> int:
        """Check the next records; returns how many bytes were read."""
        start = max(self._left[0], self._log.start)
        file_end = (start // self._log.file_bytes + 1) * self._log.file_bytes
        end = min(file_end, self._dispatcher.position)
        size = min(piece_bytes, end - start)
        try:
            content = self._log.pread(start, size) if start == self._left[0] else None
        except OSError as error:
            self._report(start, f"it cannot be read: {error}")
            content = None
        if content is None or file_end - start < BLANK_BYTES_MIN:
            # The end, or deleted meanwhile.
            self._left.popleft()
            return 0
        found = walk(
            content,
            0,
            size,
            start,
            check_body=True,
            delay_levels_ms=self._dispatcher.delay_levels_ms,
            with_keys=False,
            check_places=True,
        )
        for (name, queue_id), runs in found.runs.items():
            for run in runs:
                self._check_entries(name, queue_id, run)
        self._left[0] = start + found.position
        stopped_by = found.stopped_by
        if found.position == size or (
            stopped_by.verdict is Verdict.CUT_OFF and found.position and start + size < end
        ):
            return size
        if stopped_by.verdict is Verdict.CUT_OFF and start + size < end:
            # A record larger than the piece.
            return size + self._check_piece(piece_bytes * 4)
        if stopped_by.verdict is Verdict.BLANK:
            self._left.popleft()
            return size
        self._report(self._left[0], str(stopped_by))
        if stopped_by.verdict is Verdict.BAD_BODY:
            self._left[0] += stopped_by.size
        else:
            self._left.popleft()
        return size

    def _check_entries(self, name: bytes, queue_id: int, run: EntryRun) -> None:
        topic = name.decode(errors="replace")
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return
        deleted = self._dispatcher.deleted_topics.count_deleted(name, run.entries)
        number, wanted = run.first + deleted, bytes(run.entries[deleted * ENTRY_BYTES :])
        skipped = max(0, queue.start - number)
        number, wanted = number + skipped, wanted[skipped * ENTRY_BYTES :]
        while wanted and number < queue.end:
            found = queue.entries(QueueOffset(number), len(wanted) // ENTRY_BYTES)
            part = wanted[: max(len(found), ENTRY_BYTES)]
            if found != part:
                self._check_each(queue, number, part, found, has_tags=name != DELAY_TOPIC)
            number, wanted = number + len(part) // ENTRY_BYTES, wanted[len(part) :]

    def _check_each(
        self, queue: ConsumeQueue, number: int, wanted: bytes, found: bytes, *, has_tags: bool
    ) -> None:
        for at in range(0, len(wanted), ENTRY_BYTES):
            right, here = wanted[at : at + ENTRY_BYTES], found[at : at + ENTRY_BYTES]
            if here and ENTRY.unpack(here)[:2] == ENTRY.unpack(right)[:2]:
                if here != right and has_tags:
                    self._repair_tag_hash(queue, number + at // ENTRY_BYTES, here, right)
            else:
                # Readers have rules for what is damage; and what is not, after a loss.
                with suppress(QueueDamagedError):
                    self._read(queue.topic, queue.queue_id, number + at // ENTRY_BYTES)

    def _repair_tag_hash(self, queue: ConsumeQueue, number: int, here: bytes, right: bytes) -> None:
        physical_offset, record_bytes, tag_hash = ENTRY.unpack(here)
        if tag_hash < EXTENSION_BELOW and self._has_extensions:
            return
        record = self._log.pread(physical_offset, record_bytes)
        if record is None or is_stand_in(record):
            # The message is lost, and the entry still has its tag.
            return
        self._queues.rewrite(queue, QueueOffset(number), right, is_start=False)
        log.warning(
            "queue entry repaired topic=%s queue=%d entry=%d damage=its tag hash was %d and not %d, "
            "so that filters missed the message",
            queue.topic, queue.queue_id, number, tag_hash, ENTRY.unpack(right)[2],
        )  # fmt: skip

    def _report(self, offset: int, damage: str) -> None:
        """Log damage of the log, once for each place."""
        if offset not in self._reported and len(self._reported) < 1000:
            self._reported.add(offset)
            file = self._log.file_at(offset)
            log.error(
                "the log is damaged file=%s offset=%d damage=%s hint=run: orbitmq store verify",
                file.path if file is not None else "deleted", offset, damage,
            )  # fmt: skip
