"""Upkeep: a thread that prepares files, writes and checks queues, deletes files.

All of this may wait for the disk, which appending and flushing must not.

Threads: one of its own; `wake` and `stop` from any.
Crash: it has no state on disk. A failed sync fences the store. A write that finds no room is
retried, and until it succeeds nothing can be appended, so that memory does not fill up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreError
from orbitmq.store.log.obstacles import UPKEEP, Obstacles, unwritable

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.store.index.consume_queues import ConsumeQueues
    from orbitmq.store.log.commit_log import CommitLog

log = logging.getLogger(__name__)

# Up to this many queues are synced every round; more only after the thorough interval.
_FEW_QUEUES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often upkeep does its tasks, in milliseconds."""

    round_ms: int
    # The queues are synced at least this often, however many changed.
    thorough_ms: int
    retain_ms: int


class Upkeep:
    """Does the slow work on the store's files in the background."""

    def __init__(  # noqa: PLR0913  # by name, from one place
        self,
        *,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        save: Callable[[], None],
        retry: Callable[[], None],
        fence: Callable[[str], None],
        retain: Callable[[], object],
        scrub: Callable[[], None],
        obstacles: Obstacles,
        clock: Clock,
        intervals: Intervals,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._save = save
        self._retry = retry
        self._fence = fence
        self._obstacles = obstacles
        self._clock = clock
        self._retain = retain
        self._scrub: Callable[[], None] | None = scrub
        self._intervals = intervals
        self._saved_ms = clock.monotonic_ms()
        self._next_round_ms = self._saved_ms + intervals.round_ms
        self._next_retain_ms = self._saved_ms + intervals.retain_ms
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="store upkeep", daemon=True)
        self._file_failed = False
        self._retain_failed = False
        # Why queues cannot be written now; None if they can.
        self.trouble: StoreError | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Prepare the next log file and pages without waiting for the interval."""
        if not self._wake.is_set():
            self._wake.set()

    def wake_if_needed(self) -> None:
        """Wake the thread if the log needs it."""
        if self._log.needs_upkeep:
            self.wake()

    def stop(self) -> None:
        """Stop the thread; closing the store saves the rest."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            woken = self._wake.wait(min(self._intervals.round_ms, self._intervals.retain_ms) / 1000)
            self._wake.clear()
            if self._stopping:
                return
            self._prepare_log()
            if not woken or self._clock.monotonic_ms() >= self._next_round_ms:
                self.round()
                self.scrub()
            if self._clock.monotonic_ms() >= self._next_retain_ms:
                self.retain()

    def scrub(self) -> None:
        """Compare some of the queues with the log."""
        if self._scrub is None:
            return
        try:
            self._scrub()
        except Exception:
            # Nothing depends on it.
            log.exception("queues are no longer compared with the log")
            self._scrub = None

    def retain(self) -> None:
        """Delete files by age and disk use; failed deletions are retried in the next pass."""
        self._next_retain_ms = self._clock.monotonic_ms() + self._intervals.retain_ms
        try:
            self._retain()
        except (OSError, StoreError) as error:
            # No message is lost, and a full disk makes the store refuse messages anyway.
            if not self._retain_failed:
                log.warning("cannot delete old files reason=%s", error)
            self._retain_failed = True
        except Exception as error:
            log.exception("retention failed")
            self._fence(str(error))
        else:
            self._retain_failed = False

    def _prepare_log(self) -> None:
        try:
            self._log.prepare_next_file()
            self._log.touch_ahead()
        except (OSError, StoreError) as error:
            # Not urgent: the current file has room; an append that needs the next one gets the error.
            if not self._file_failed:
                log.warning("cannot prepare the next log file yet reason=%s", error)
            self._file_failed = True
        else:
            self._file_failed = False

    def round(self) -> None:
        """Write queues, and save progress when due."""
        now_ms = self._clock.monotonic_ms()
        self._next_round_ms = now_ms + self._intervals.round_ms
        try:
            self._retry()
            self._queues.write()
            few = self._queues.unsynced_count <= _FEW_QUEUES
            if few or now_ms - self._saved_ms >= self._intervals.thorough_ms:
                self._save()
                self._saved_ms = now_ms
        except StoreError as error:
            if self.trouble is None:
                log.warning("cannot write queues reason=%s", error)
            self.trouble = error
            self._obstacles.errors[UPKEEP] = unwritable(error)
        except OSError as error:
            self._fence(str(error))
        except Exception as error:
            log.exception("store upkeep failed")
            self._fence(str(error))
        else:
            self.trouble = None
            self._obstacles.errors.pop(UPKEEP, None)
