"""Timer delivery: moves messages to their real queues, each at its own due time.

One task takes visible messages into the wheel, delivers what is due, a batch a turn, and saves the
progress. It sleeps until the next message is due, or the next second begins.

A message that can never be stored in its queue is skipped, with an error in the log that says where
it is. While the store refuses writes, delivery waits.

Threads: the event loop's; wheel and records are read off it.
Crash: a copy has the id of its timer, by which it is found again; see `store.timers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from orbitmq.broker.real_queues import original_draft
from orbitmq.clock import settle
from orbitmq.disk import off_loop
from orbitmq.errors import MessageError, OrbitError
from orbitmq.model import property_names
from orbitmq.model.names import TIMER_TOPIC
from orbitmq.store.timers.delivered_copies import timer_id
from orbitmq.store.timers.layout import PRECISION_MS, floor
from orbitmq.store.timers.timer_messages import keys_of, slot_ms_of

if TYPE_CHECKING:
    from orbitmq.broker.timers.recall_markers import Recall
    from orbitmq.clock import Clock
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore
    from orbitmq.store.timers.timer_progress import TimerProgress
    from orbitmq.store.timers.timers import Due, Timers

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Messages that one hop to a thread reads: about 3 ms, for which the loop may have to wait.
_TAKE_IN: Final = 256
_BATCH: Final = 256
# Messages appended before other work of the loop gets its turn.
_SLICE: Final = 64
_RETRY_MS: Final = 1000
_NEEDED_BY: Final = "messages that are not due yet hint=orbitmq message pending list shows them"
_HELD_BY: Final = "messages that are not due yet hint=set timerWheelEnable=true to deliver them"


@dataclass(slots=True)
class _Markers:
    """Markers for the same messages: how many may be stored yet, and the newest that is.

    The latter is its queue offset, or -1.
    """

    unknown: int = 0
    newest: int = -1


class TimerDelivery:
    """Delivers the timers of one store."""

    def __init__(
        self,
        *,
        store: MessageStore,
        timers: Timers,
        on_delivered: Callable[[Draft], None],
        save_interval_ms: int,
        clock: Clock,
    ) -> None:
        self._store = store
        self.timers = timers
        # Held by whoever works with the files of timers.
        self.turn = asyncio.Lock()
        self._on_delivered = on_delivered
        self._save_interval_ms = save_interval_ms
        self._clock = clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_save_ms = 0.0
        self._is_waiting = self._is_stopping = False
        # What is being taken back by markers that are not in the wheel yet.
        self._recalls: dict[tuple[int, bytes], _Markers] = {}

    # --- starting and stopping ----------------------------------------------------------------

    async def open(self, copied: TimerProgress | None = None, *, is_on: bool = True) -> None:
        """Recover the timers; nothing is delivered before `start`.

        What is pending keeps its files even if timers are off. `copied` is the progress of an
        official master whose slave this broker was.
        """
        await off_loop(self.timers.open, copied)
        if is_on:
            self._store.protect_log_from(self.timers.needed_from, _NEEDED_BY)
        elif self.timers.has_pending:
            self._store.protect_log_from(self.timers.needed_from, _HELD_BY)
            log.warning(
                "timers are off, and messages that are not due yet are in the store; their files "
                "are kept hint=set timerWheelEnable=true and restart, to deliver them"
            )

    def start(self) -> None:
        """Deliver from now on."""
        self._loop = asyncio.get_running_loop()
        self._store.on_visible(self._notice)
        self._next_save_ms = self._clock.monotonic_ms() + self._save_interval_ms
        self._task = self._loop.create_task(self._run(), name="timer delivery")

    async def stop(self) -> None:
        """Stop, and leave the files as RocketMQ expects them."""
        self._loop = None
        if self._task is not None:
            # Not cancelled: a thread may be working on the files.
            self._is_stopping = True
            self._wake.set()
            await self._task
        try:
            await self._in_turn(self.timers.close)
        except OrbitError as error:
            log.warning("progress of timers not saved; the next start recovers reason=%s", error)

    def _notice(self, _: object) -> None:
        """Wake the task if there are new messages; from any thread."""
        loop = self._loop
        if loop is not None and self.timers.behind:
            loop.call_soon_threadsafe(self._wake.set)

    @property
    def behind(self) -> tuple[int, int]:
        """How many visible messages are not in the wheel yet, and how late the next one is in ms."""
        due_ms = self.timers.next_due_ms
        late_ms = 0 if due_ms is None else max(self._clock.now_ms() - due_ms, 0)
        return self.timers.behind, late_ms

    # --- taking back --------------------------------------------------------------------------

    def begin_recall(self, recall: Recall) -> None:
        """Deliver a message no more, from now on."""
        self._recalls.setdefault(recall, _Markers()).unknown += 1

    def end_recall(self, recall: Recall, queue_offset: int | None) -> None:
        """Note where the marker is stored, or with None that it is not."""
        markers = self._recalls[recall]
        markers.unknown -= 1
        if queue_offset is not None:
            markers.newest = max(markers.newest, queue_offset)
        elif not markers.unknown and markers.newest < 0:
            # Another request for the same message may have stored its own.
            del self._recalls[recall]

    def is_being_recalled(self, message: StoredMessage) -> bool:
        """Whether a message is taken back by what is not in the wheel yet."""
        slot_ms = slot_ms_of(message)
        if not self._recalls or slot_ms is None:
            return False
        return any((slot_ms, key) in self._recalls for key in keys_of(message))

    # --- delivering ---------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_stopping:
            self._wake.clear()
            try:
                wait_ms = await self._round()
                if self._is_waiting:
                    self._is_waiting = False
                    log.info("timer messages resumed")
            except Exception as error:  # noqa: BLE001  # the border: the next round retries
                self._note_trouble(error)
                wait_ms = _RETRY_MS
            if not self._is_stopping:
                await self._sleep(wait_ms)

    def _note_trouble(self, error: Exception) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            is_known = isinstance(error, OrbitError)
            log.warning("timer messages waiting reason=%s", error, exc_info=not is_known)

    async def _sleep(self, wait_ms: float | None) -> None:
        """Wait until then, or until new messages are visible."""
        timer = None
        if wait_ms is not None:
            timer = self._clock.call_later(max(wait_ms, 0), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _round(self) -> float | None:
        """Deliver all that is due; returns how long nothing more will be."""
        while not self._is_stopping:
            await self._take_in()
            if self._needs_next_slot():
                await self._in_turn(self.timers.move_on)
            more = await self._deliver_some() or self._needs_next_slot()
            if self._clock.monotonic_ms() >= self._next_save_ms:
                self._next_save_ms = self._clock.monotonic_ms() + self._save_interval_ms
                await self._in_turn(self.timers.save)
            if not more and not self.timers.behind:
                break
        return self._pause_ms()

    async def _take_in(self) -> None:
        while self.timers.behind and not self._is_stopping:
            if not await self._in_turn(self.timers.take_in, _TAKE_IN):
                break
        for recall, markers in list(self._recalls.items()):
            if not markers.unknown and markers.newest < self.timers.queue_offset:
                del self._recalls[recall]

    async def _in_turn(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Work with the files in a thread, while nobody else does."""
        async with self.turn:
            return await off_loop(work, *args, **kwargs)

    def _needs_next_slot(self) -> bool:
        return self.timers.next_due_ms is None and self.timers.read_ms < floor(self._clock.now_ms())

    def _pause_ms(self) -> float | None:
        if not self.timers.queue_offset:
            return None
        now_ms = self._clock.now_ms()
        next_ms = floor(now_ms) + PRECISION_MS
        due_ms = self.timers.next_due_ms
        # A clock that was set back makes the due time seem far away.
        return (next_ms if due_ms is None else min(next_ms, due_ms)) - now_ms

    async def _deliver_some(self) -> bool:
        """Deliver a batch; returns whether more may be due."""
        due_ms = self.timers.next_due_ms
        if due_ms is None or due_ms > self._clock.now_ms():
            return False
        batch = await self._in_turn(self.timers.due, _BATCH)
        for start in range(0, len(batch), _SLICE):
            try:
                for due in batch[start : start + _SLICE]:
                    self._deliver(due)
                    self.timers.done(due)
            finally:
                self._store.publish()
                self._store.request_flush()
            await settle(1)
            if self._is_stopping:
                break
        return len(batch) == _BATCH

    def _deliver(self, due: Due) -> None:
        """Store a message in its real queue; raises if that must be retried."""
        message = due.message
        if message is None:
            log.error(
                "timer message lost record=%d reason=it is deleted or damaged hint=see above for "
                "deleted files, and run: orbitmq store verify",
                due.physical_offset,
            )
            return
        if self.timers.is_recalled(message) or self.is_being_recalled(message):
            return
        added = {
            property_names.TIMER_ENQUEUED_MS: str(floor(message.store_ms)),
            property_names.TIMER_DEQUEUED_MS: str(self._clock.now_ms()),
        }
        try:
            draft = original_draft(message, added, prepared_offset=timer_id(due.physical_offset))
            self._store.append(draft)
        except MessageError as error:
            self._report_skipped(message, error)
        else:
            self._on_delivered(draft)

    def _report_skipped(self, message: StoredMessage, error: MessageError) -> None:
        log.error(
            "timer message skipped topic=%s queue=0 offset=%d id=%s reason=%s hint=it stays there "
            "until its file is deleted; read it with: mqadmin queryMsgByOffset -t %s -i 0 -o %d",
            TIMER_TOPIC, message.queue_offset, message.message_id, error,
            TIMER_TOPIC, message.queue_offset,
        )  # fmt: skip
