"""The half queue: half messages that wait for their end, and marks of the ended.

The table in memory has the newest copy of every open half. The two queues are read only at the
start of the broker (`recovery`).

Progress is kept as RocketMQ keeps it, as offsets of the group CID_RMQ_SYS_TRANS: below that of the
half queue no half is open, and marks below that of their queue name only such halves.

Threads: the event loop's; `needed_from` may be called from any.
Crash: what ends a half is in the log before its mark. `recovery` finds an end without a mark.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.broker.statistics.transaction_metrics import Outcomes, TransactionFigures
from orbitmq.broker.transactions.half_messages import QUEUE_ID, Half, half_of, mark
from orbitmq.errors import OrbitError, RequestRefusedError
from orbitmq.model.names import HALF_TOPIC
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.protocol.codes import ResponseCode
from orbitmq.record.decode import decode_record
from orbitmq.store.log.draft import Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.transactions.recovery import Recovered
    from orbitmq.clock import Clock
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

# Open halves take about 300 bytes of memory each.
OPEN_MAX: Final = 500_000


class Progress(NamedTuple):
    """The next offset of the half queue, and of the queue of marks."""

    halves: int
    marks: int


class HalfQueue:
    """The open halves of a broker."""

    def __init__(self, store: MessageStore, *, clock: Clock, open_max: int = OPEN_MAX) -> None:
        self._store = store
        self._clock = clock
        self._open_max = open_max
        # By first offset, in the order of the newest copies.
        self._open: dict[int, Half] = {}
        self._open_bytes = 0
        self._by_topic: Counter[str] = Counter()
        self.outcomes = Outcomes()
        # The highest half offset of each mark above the progress.
        self._marks: deque[int] = deque()
        self._marks_start = 0
        # Ended halves whose mark could not be stored.
        self._unmarked: deque[int] = deque()
        # Until the store is read, nothing may be deleted.
        self._needed_from = PhysicalOffset(0)
        self._needs_nothing = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def halves(self) -> Mapping[int, Half]:
        """The open halves by their first offset, in the order of their newest copies."""
        return self._open

    @property
    def open_bytes(self) -> int:
        """The size of all open halves."""
        return self._open_bytes

    # --- changes ------------------------------------------------------------------------------

    def restore(self, found: Recovered) -> None:
        """Take over what was found in the store, and store the marks that are missing there."""
        self._marks = deque(found.marks)
        self._marks_start = found.marks_start
        for half in sorted(found.open.values(), key=lambda half: half.offset):
            self._add(half)
        self._unmarked = deque(found.unmarked)
        self.store_marks()
        self.progress()

    def prepare(
        self, draft: Draft, *, topic: str, queue_id: int, immunity_ms: int | None
    ) -> Receipt:
        """Append a half message for a queue, which is open from then on."""
        if len(self._open) >= self._open_max:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(self._open)} transactions are open, the limit of this broker",
                hint="end them, or see who does not: orbitmq transaction list",
            )
        if self._needs_nothing:
            self._needed_from = self._store.log_end
            self._needs_nothing = False
        receipt = self._store.append(draft)
        self._add(
            Half(
                first_offset=receipt.queue_offset,
                offset=receipt.queue_offset,
                physical_offset=receipt.physical_offset,
                record_bytes=receipt.record_bytes,
                topic=sys.intern(topic),
                queue_id=queue_id,
                checks=0,
                since_ms=receipt.store_ms,
                immunity_ms=immunity_ms,
            )
        )
        return receipt

    def end(self, half: Half) -> PhysicalOffset:
        """Mark an open half as ended; returns the end of the log.

        What it ends with must be appended already, since the half is ended even if its mark cannot
        be stored.
        """
        self._remove(half)
        self._unmarked.append(half.offset)
        self.store_marks()
        return self._store.log_end

    def roll_back(self, half: Half) -> PhysicalOffset:
        """Mark an open half as ended; if that fails, it stays open."""
        self._mark(half.offset)
        self._remove(half)
        return self._store.log_end

    def copy(self, half: Half, draft: Draft, *, checks: int) -> Half:
        """Append another copy of an open half, which replaces the newest one."""
        receipt = self._store.append(draft)
        newest = msgspec.structs.replace(
            half,
            offset=int(receipt.queue_offset),
            physical_offset=int(receipt.physical_offset),
            record_bytes=receipt.record_bytes,
            checks=checks,
        )
        self.end(half)
        self._add(newest)
        return newest

    def note_asked(self, half: Half, *, client: str, asked_ms: int) -> None:
        """Keep who was asked about an open half."""
        self._open[half.first_offset] = msgspec.structs.replace(
            half, asked_client=client, asked_ms=asked_ms
        )

    def store_marks(self) -> None:
        """Store marks that are missing; those that the store refuses wait for the next call."""
        while self._unmarked:
            try:
                self._mark(self._unmarked[0])
            except OrbitError as error:
                log.warning(
                    "marks of ended transactions not stored count=%d reason=%s",
                    len(self._unmarked), error,
                )  # fmt: skip
                return
            self._unmarked.popleft()

    # --- reading ------------------------------------------------------------------------------

    def receipt_of(self, half: Half) -> Receipt:
        """The receipt for the newest copy of an open half."""
        return Receipt(
            physical_offset=PhysicalOffset(half.physical_offset),
            record_bytes=half.record_bytes,
            queue_offset=QueueOffset(half.offset),
            store_ms=half.since_ms,
            store_host=self._store.store_host,
        )

    def read(self, offset: int, *, may_wait: bool = True) -> StoredMessage | None:
        """Read the half at an offset of the queue; None if there is none.

        Without `may_wait` it raises BlockingIOError rather than wait for the disk.
        """
        found = self._store.read(HALF_TOPIC, QUEUE_ID, offset, 1, may_wait=may_wait)
        message = decode_record(found.records[0]) if found.records else None
        return message if message is not None and message.queue_offset == offset else None

    def figures(self) -> TransactionFigures:
        """What is open, and how transactions ended."""
        oldest = min(self._open, default=None)
        age_ms = 0 if oldest is None else self._clock.now_ms() - self._open[oldest].since_ms
        return TransactionFigures(
            open=dict(self._by_topic),
            oldest_ms=max(age_ms, 0),
            committed=dict(self.outcomes.committed),
            rolled_back=dict(self.outcomes.rolled_back),
            given_up=self.outcomes.given_up,
            checks=self.outcomes.checks,
        )

    def find(self, message: StoredMessage) -> Half | None:
        """The newest copy of the open half that a stored one belongs to; None if it has ended."""
        return self._open.get(half_of(message).first_offset)

    # --- progress -----------------------------------------------------------------------------

    def progress(self) -> Progress:
        """The progress by what is appended; it may be saved only once all of that is on disk."""
        lowest = next(iter(self._open.values()), None)
        if lowest is None:
            halves = int(self._store.end_of(HALF_TOPIC, QUEUE_ID, committed=False))
            self._needed_from = self._store.log_end
            self._needs_nothing = True
        else:
            halves, self._needed_from = lowest.offset, PhysicalOffset(lowest.physical_offset)
        while self._marks and self._marks[0] < halves:
            self._marks.popleft()
            self._marks_start += 1
        return Progress(halves, self._marks_start)

    def marked_until(self) -> PhysicalOffset | None:
        """The end of the log, if every end in it has its mark."""
        return None if self._unmarked else self._store.log_end

    def needed_from(self) -> PhysicalOffset:
        """The log is needed from here on; from any thread.

        A value that is too low only keeps more of it.
        """
        # Read first: a half that is prepared after it lies above it.
        log_end = self._store.log_end
        return log_end if self._needs_nothing else self._needed_from

    # --- inside -------------------------------------------------------------------------------

    def _add(self, half: Half) -> None:
        self._open[half.first_offset] = half
        self._open_bytes += half.record_bytes
        self._by_topic[half.topic] += 1

    def _remove(self, half: Half) -> None:
        removed = self._open.pop(half.first_offset)
        assert removed is half
        self._open_bytes -= half.record_bytes
        self._by_topic[half.topic] -= 1
        if not self._by_topic[half.topic]:
            del self._by_topic[half.topic]

    def _mark(self, offset: int) -> None:
        self._store.append(mark(offset, now_ms=self._clock.now_ms(), host=self._store.store_host))
        self._marks.append(offset)
