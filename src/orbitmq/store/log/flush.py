"""Flushing: a thread that syncs the log, moves the watermark, notifies waiters.

Under SYNC_FLUSH a round syncs everything appended before it began, so that all waiters share one
sync (group commit). Under ASYNC_FLUSH rounds run at intervals and nobody waits.

Threads: `request`, `wait`, `fence` and `stop` from any; rounds in a thread of its own.
Crash: a failed sync fences the store: no later success counts, since the kernel may have dropped
the pages that it could not write. Only a restart, which reads the log back, can tell.
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
    """Syncs the log on request and at intervals."""

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
        self._wake = threading.Condition(lock)  # the flush thread waits on it
        self._done = threading.Condition(lock)  # callers of `wait` wait on it
        self._requested = False
        self._stopping = False
        self._last_round_ms = clock.monotonic_ms()
        self._fenced_by = ""
        self._callbacks: tuple[Callable[[PhysicalOffset], None], ...] = ()
        # Invariant: it never falls, and stays the same once the store is fenced.
        self.flushed = PhysicalOffset(0)
        self._thread = threading.Thread(target=self._run, name="store flush", daemon=True)

    def start(self, flushed: PhysicalOffset) -> None:
        """Start the thread; everything below `flushed` is on disk already."""
        self.flushed = flushed
        self._thread.start()

    def add_listener(self, callback: Callable[[PhysicalOffset], None]) -> None:
        """Call `callback` with the flushed offset after every successful round."""
        self._callbacks = (*self._callbacks, callback)

    def request(self) -> None:
        """Request a round that covers everything appended so far."""
        with self._wake:
            if not self._requested:
                self._requested = True
                self._wake.notify()

    def wait(self, offset: PhysicalOffset, timeout_ms: float | None) -> bool:
        """Wait until everything below `offset` is on disk; False after the timeout."""
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
        """Raise StoreFencedError if the store is fenced."""
        if self._fenced_by:
            raise self._fenced_error()

    def _fenced_error(self) -> StoreFencedError:
        return StoreFencedError(
            f"the store could not be flushed: {self._fenced_by}; nothing more is acknowledged",
            hint="check the disk, then restart: recovery keeps everything that was acknowledged",
        )

    def fence(self, reason: str) -> None:
        """Stop acknowledging."""
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
        """Do a last round, then stop the thread."""
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
            # The waiters' bytes are on disk, so they are acknowledged. Later messages are not:
            # nobody could ever read them.
            log.exception("store cannot show flushed messages")
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
