"""Copies: which slaves a master has, and how much of the log each has.

Threads: any; each slave's stream reports from a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.model.queues import PhysicalOffset

if TYPE_CHECKING:
    from orbitmq.clock import Clock

_ZERO: Final = PhysicalOffset(0)
# A slave that joins counts as near once it is this close; then it may fall back further.
_NEAR_BYTES: Final = 1024 * 1024


@dataclass(slots=True, eq=False, kw_only=True)
class SlaveCopy:
    """The copy of one connected slave."""

    # The address of its connection.
    peer: str
    connected_ms: float
    # Everything below is copied.
    acked: PhysicalOffset = _ZERO
    # The next byte to send; None before its first report.
    position: PhysicalOffset | None = None
    sent_bytes: int = 0
    # Whether it reports what is on its disk; known of OrbitMQ's slaves only.
    is_flushed: bool = False
    # Its id and where it takes requests; slaves of RocketMQ do not say it.
    broker_id: int | None = None
    broker_address: str = ""
    is_near: bool = False
    _rated: tuple[float, int, int] = (0, 0, 0)

    def rate(self, now_ms: float) -> int:
        """Bytes per second that were sent, over at least a second."""
        since_ms, sent, rate = self._rated
        if now_ms - since_ms >= 1000:
            elapsed_ms = now_ms - max(since_ms, self.connected_ms)
            rate = int((self.sent_bytes - sent) * 1000 / elapsed_ms) if elapsed_ms > 0 else 0
            self._rated = now_ms, self.sent_bytes, rate
        return rate


@dataclass(slots=True, eq=False, kw_only=True)
class Copies:
    """The copies of all connected slaves."""

    # The end of what slaves may copy.
    settled: Callable[[], PhysicalOffset]
    gap_bytes_max: Callable[[], int]
    clock: Clock
    # Called, in any thread, when a slave came, left or reported.
    on_change: Callable[[], None] = field(default=lambda: None, init=False)
    _slaves: tuple[SlaveCopy, ...] = field(default=(), init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __len__(self) -> int:
        return len(self._slaves)

    @property
    def slaves(self) -> tuple[SlaveCopy, ...]:
        """The connected slaves that have reported."""
        return self._slaves

    def report(self, slave: SlaveCopy, acked: PhysicalOffset) -> None:
        """Note that a slave has everything below `acked`."""
        with self._lock:
            if slave not in self._slaves:
                self._slaves = (*self._slaves, slave)
            slave.acked = max(slave.acked, acked)
            self._judge(slave)
        self.on_change()

    def leave(self, slave: SlaveCopy) -> None:
        """Note that a slave's connection is closed."""
        with self._lock:
            if slave not in self._slaves:
                return
            self._slaves = tuple(other for other in self._slaves if other is not slave)
        self.on_change()

    def judge(self) -> None:
        """Note which slaves are near now: one that reports nothing falls back too."""
        with self._lock:
            for slave in self._slaves:
                self._judge(slave)

    def near(self) -> list[PhysicalOffset]:
        """What the slaves that are near have, the furthest first."""
        return sorted((slave.acked for slave in self._slaves if slave.is_near), reverse=True)

    def holding(self, end: PhysicalOffset) -> tuple[int, int]:
        """How many slaves have everything below `end`, and how many of them on disk."""
        having = [slave for slave in self._slaves if slave.acked >= end]
        return len(having), sum(slave.is_flushed for slave in having)

    def introduce(
        self, peer: str, broker_id: int, broker_address: str, *, is_flushed: bool
    ) -> SlaveCopy | None:
        """Note what a slave says of itself; None if no connection has its address."""
        for slave in self._slaves:
            if slave.peer == peer:
                slave.broker_id, slave.broker_address = broker_id, broker_address
                slave.is_flushed = is_flushed
                return slave
        return None

    def _judge(self, slave: SlaveCopy) -> None:
        gap = self.settled() - slave.acked
        limit = self.gap_bytes_max()
        slave.is_near = gap <= (limit if slave.is_near else min(limit, _NEAR_BYTES))
