"""The gate of a sync master: how far slaves have the log.

Sends and readers wait for that. While enough slaves are connected and near, a message is visible once they have it. Otherwise, and
after `slaveTimeout`, messages become visible by the disk alone, and the log says so.

Threads: any; streams report from threads of their own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.model.queues import PhysicalOffset

if TYPE_CHECKING:
    from orbitmq.broker.replication.config import ReplicationConfig
    from orbitmq.broker.replication.copies import Copies
    from orbitmq.clock import Clock
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

UNLIMITED: Final = PhysicalOffset(2**63 - 1)


class SyncGate:
    """Follows the copies of a sync master's slaves."""

    def __init__(
        self,
        *,
        store: MessageStore,
        copies: Copies,
        config: Callable[[], ReplicationConfig],
        clock: Clock,
    ) -> None:
        self._store = store
        self._copies = copies
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        # Ends of the log that slaves may copy and do not all have, and since when; each is the end
        # of a record, which a report of Java's slaves need not be.
        self._awaited: deque[tuple[PhysicalOffset, float]] = deque()
        self._limit = store.visible
        self.copied = PhysicalOffset(0)
        # Whether too few slaves are near, so that nobody waits for them.
        self.is_short = False
        # Until when slaves may connect after the start before that is worth a warning.
        self._quiet_until_ms = 0.0
        self._is_short_noted = False
        self._is_stopping = False
        # How often messages became visible without enough copies.
        self.given_up = 0
        # Called, in any thread, when `copied` or `is_short` changed.
        self.on_change: Callable[[], None] = lambda: None

    @property
    def awaited(self) -> int:
        """How many slaves a message should be on."""
        return self._config().slaves_awaited

    @property
    def timeout_ms(self) -> int:
        """How long a send waits for slaves."""
        return self._config().slave_timeout_ms

    def holding(self, end: PhysicalOffset) -> tuple[int, int]:
        """How many slaves have everything below `end`, and how many of them on disk."""
        return self._copies.holding(end)

    def start(self) -> None:
        """Follow the copies from now on; what the log has already is shown without them."""
        with self._lock:
            # Services find their state by reading the log, and must not miss its end.
            self._limit = max(self._limit, self._store.settled)
            self._quiet_until_ms = self._clock.monotonic_ms() + self.timeout_ms
        self._copies.on_change = self.update
        self._store.on_growth(self._grown)

    def stop_warning(self) -> None:
        """Say nothing of slaves from now on: this broker stops, and disconnects them."""
        self._is_stopping = True

    def update(self) -> None:
        """Take the slaves' reports into account."""
        with self._lock:
            slaves = self.awaited
            near = self._copies.near()
            was_short, self.is_short = self.is_short, len(near) < slaves
            if self.is_short:
                self._note_short(len(near), slaves)
                self.copied = UNLIMITED
            else:
                self.copied = near[slaves - 1] if slaves else UNLIMITED
                self._quiet_until_ms = 0.0
                self._is_short_noted = False
                if was_short:
                    log.info("enough slaves are near slaves=%d", len(near))
            self._show()
        self.on_change()

    def check(self) -> None:
        """Look for slaves that fell back or are silent; call it at intervals."""
        self._copies.judge()
        timeout_ms = self.timeout_ms
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            given_up = False
            while self._awaited and now_ms - self._awaited[0][1] >= timeout_ms:
                self._limit = self._awaited.popleft()[0]
                given_up = True
            if given_up:
                self.given_up += 1
                log.warning(
                    "messages are visible without enough copies until=%d copied=%d reason=slaves "
                    "took longer than slaveTimeout=%d",
                    self._limit,
                    self.copied,
                    timeout_ms,
                )
        self.update()

    def _grown(self) -> None:
        with self._lock:
            self._await_end()
            if self.is_short or self.copied >= self._store.settled:
                self._show()

    def _await_end(self) -> None:
        end = self._store.settled
        if end > self._limit and (not self._awaited or end > self._awaited[-1][0]):
            self._awaited.append((end, self._clock.monotonic_ms()))

    def _show(self) -> None:
        """Make visible what slaves have."""
        while self._awaited and self._awaited[0][0] <= self.copied:
            self._limit = self._awaited.popleft()[0]
        self._store.limit_visible(self._limit)

    def _note_short(self, near: int, slaves: int) -> None:
        if (
            self._is_stopping
            or self._is_short_noted
            or self._clock.monotonic_ms() < self._quiet_until_ms
        ):
            return
        self._is_short_noted = True
        log.warning(
            "sends do not wait for slaves reason=%d of %d slaves are connected and near",
            near,
            slaves,
        )
