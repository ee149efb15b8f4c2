"""Flushing: a thread that syncs the log, moves the watermark and tells who waited.

Under SYNC_FLUSH every round syncs what was appended before it began, so that all who waited share
one sync (group commit). Under ASYNC_FLUSH rounds come at intervals and nobody waits.

Threads: `request`, `wait`, `fence` and `stop` from any; rounds in a thread of its own.
Crash: a sync that fails fences the store: no later success counts, since the kernel may have
dropped the pages that could not be written. Only a restart, which reads back, can tell.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import OrbitError, StoreFencedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.log.obstacles import FENCED, Obstacles

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

_PAGE_BYTES: Final = 4096


class Flusher:
    """Syncs the log when asked, and at intervals."""

    def __init__(
        self,
        *,
        sync: Callable[[], PhysicalOffset],
        dirty_bytes: Callable[[], int],
        on_round: Callable[[PhysicalOffset], None],
        obstacles: Obstacles,
        clock: Clock,
        interval_ms: int,
        pages_min: int,
        thorough_interval_ms: int,
    ) -> None:
        self._sync = sync
        self._dirty_bytes = dirty_bytes
        self._on_round = on_round
        self._obstacles = obstacles
        self._clock = clock
        self._interval_ms = interval_ms
        self._pages_min = pages_min
        self._thorough_interval_ms = thorough_interval_ms
        lock = threading.Lock()
        self._wake = threading.Condition(lock)  # the thread waits on it
        self._done = threading.Condition(lock)  # those who need a sync wait on it
        self._requested = False
        self._stopping = False
        self._last_round_ms = clock.monotonic_ms()
        self._fenced_by = ""
        self._callbacks: tuple[Callable[[PhysicalOffset], None], ...] = ()
        # Invariant: it never falls, and stands still once the store is fenced.
        self.flushed = PhysicalOffset(0)
        self._thread = threading.Thread(target=self._run, name="store flush", daemon=True)

    def start(self, flushed: PhysicalOffset) -> None:
        """Begin; everything below `flushed` is on disk already."""
        self.flushed = flushed
        self._thread.start()

    def tell(self, callback: Callable[[PhysicalOffset], None]) -> None:
        """Have `callback` told how far the log is on disk, after every round that succeeds."""
        self._callbacks = (*self._callbacks, callback)

    def request(self) -> None:
        """Ask for a round that covers everything appended so far."""
        with self._wake:
            if not self._requested:
                self._requested = True
                self._wake.notify()

    def wait(self, offset: PhysicalOffset, timeout_ms: float | None) -> bool:
        """Wait until everything below `offset` is on disk; False when the time is over."""
        with self._done:
            self._done.wait_for(
                lambda: self.flushed >= offset or self._fenced_by,
                None if timeout_ms is None else timeout_ms / 1000,
            )
            if self.flushed >= offset:
                return True
        self.check()
        return False

    @property
    def is_fenced(self) -> bool:
        """Whether a sync failed."""
        return bool(self._fenced_by)

    def check(self) -> None:
        """Raise when the store is fenced."""
        if self._fenced_by:
            raise self._fenced_error()

    def _fenced_error(self) -> StoreFencedError:
        return StoreFencedError(
            f"the store could not be flushed: {self._fenced_by}; nothing is acknowledged any more",
            hint="check the disk, then restart: recovery keeps everything that was acknowledged",
        )

    def fence(self, reason: str) -> None:
        """Acknowledge nothing from now on."""
        with self._done:
            if self._fenced_by:
                return
            self._fenced_by = reason
            self._obstacles.errors[FENCED] = self._fenced_error
            self._done.notify_all()
        log.error(
            "store fenced reason=%s hint=restart the broker; it recovers what is on disk", reason
        )

    def stop(self) -> None:
        """Do a last round, then end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._requested and not self._stopping:
                    self._wake.wait(self._interval_ms / 1000)
                requested, self._requested = self._requested, False
                stopping = self._stopping
            if not self.is_fenced and (requested or stopping or self._is_due()):
                self._round()
            if stopping:
                return

    def _is_due(self) -> bool:
        dirty = self._dirty_bytes()
        waited_ms = self._clock.monotonic_ms() - self._last_round_ms
        return dirty > 0 and (
            dirty >= self._pages_min * _PAGE_BYTES or waited_ms >= self._thorough_interval_ms
        )

    def _round(self) -> None:
        self._last_round_ms = self._clock.monotonic_ms()
        try:
            flushed = self._sync()
        except (OSError, OrbitError) as error:
            self.fence(str(error))
            return
        if self.is_fenced:
            return
        try:
            self._on_round(flushed)
        except Exception as error:
            # What follows a sync is no reason to hold back those who wait for it, but nothing
            # more may be acknowledged that nobody could ever read.
            log.exception("store cannot show what was flushed")
            self._acknowledge(flushed)
            self.fence(str(error))
            return
        self._acknowledge(flushed)

    def _acknowledge(self, flushed: PhysicalOffset) -> None:
        with self._done:
            if not self._fenced_by:
                self.flushed = max(self.flushed, flushed)
            self._done.notify_all()
            if self._fenced_by:
                return
        for callback in self._callbacks:
            try:
                callback(self.flushed)
            except Exception:
                log.exception("a listener for flush rounds failed")
