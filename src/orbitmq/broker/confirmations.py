"""Confirmations: replies and coroutines that wait until a message is on disk.

They wait in the order of their physical offsets. A flush round reports how far the log is on disk;
everything below is released at once, the replies of one connection in one write.

Threads: the event loop's; `flushed` may be called from any.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from orbitmq.errors import StoreFencedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.log.draft import StoreDurability

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.transport.connection import Connection

T = TypeVar("T")
# Encodes a reply for the durability reached; None if the message will never be on disk.
WriteReply = Callable[[StoreDurability | None, T], bytes]
_Waiting = tuple[PhysicalOffset, float, "Connection | None", WriteReply[Any], Any]

FENCED_REMARK: Final = "the message could not be put on disk; it may be lost"


class Confirmations:
    """Replies and coroutines that wait for the disk, oldest first."""

    def __init__(
        self,
        *,
        flushed: PhysicalOffset,
        is_fenced: Callable[[], bool],
        timeout_ms: int,
        clock: Clock,
    ) -> None:
        self._is_fenced = is_fenced
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._flushed = flushed
        self._reported = flushed
        self._waiting: deque[_Waiting] = deque()
        self._wake_is_due = False
        self._all_done: asyncio.Future[None] | None = None
        # Called per release with the longest wait, the shortest wait, and the number released.
        self.on_released: Callable[[float, float, int], None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest_wait_ms(self) -> float:
        """How long the oldest has waited."""
        if not self._waiting:
            return 0
        return self._clock.monotonic_ms() - (self._waiting[0][1] - self._timeout_ms)

    def reply_later(
        self, end: PhysicalOffset, connection: Connection, write: WriteReply[T], reply: T
    ) -> bytes:
        """Send a reply once everything below `end` is on disk; returns it if that is so now."""
        if end <= self._flushed:
            return write(StoreDurability.DISK, reply)
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        self._waiting.append((end, deadline_ms, connection, write, reply))
        return b""

    async def wait_for_disk(self, end: PhysicalOffset) -> StoreDurability:
        """Wait until everything below `end` is on disk, or the timeout has passed."""
        if end <= self._flushed:
            return StoreDurability.DISK
        settled: asyncio.Future[StoreDurability] = self._loop.create_future()

        def settle(durability: StoreDurability | None, _: None) -> bytes:
            if settled.done():
                return b""
            if durability is not None:
                settled.set_result(durability)
            else:
                settled.set_exception(StoreFencedError(FENCED_REMARK, hint="restart the broker"))
            return b""

        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        self._waiting.append((end, deadline_ms, None, settle, None))
        return await settled

    def flushed(self, offset: PhysicalOffset) -> None:
        """Note that everything below `offset` is on disk."""
        # Perf: one hop to the loop for all rounds that end before it runs.
        self._reported = offset
        if not self._wake_is_due:
            self._wake_is_due = True
            try:
                self._loop.call_soon_threadsafe(self._release)
            except RuntimeError:
                # The loop is closed; nothing waits any more.
                return

    def expire(self) -> None:
        """Release those that have timed out.

        After a failed sync nothing is acknowledged any more: then all waiting ones are refused.
        """
        if self._waiting and self._is_fenced():
            waiting = list(self._waiting)
            self._waiting.clear()
            self._send(waiting, None)
            return
        now_ms = self._clock.monotonic_ms()
        expired: list[_Waiting] = []
        while self._waiting and self._waiting[0][1] <= now_ms:
            expired.append(self._waiting.popleft())
        self._send(expired, StoreDurability.DISK_TIMEOUT)

    async def all_done(self) -> None:
        """Return once nothing is waiting."""
        while self._waiting:
            if self._all_done is None:
                self._all_done = self._loop.create_future()
            await asyncio.shield(self._all_done)

    def _release(self) -> None:
        self._wake_is_due = False
        self._flushed = flushed = self._reported
        waiting = self._waiting
        released: list[_Waiting] = []
        while waiting and waiting[0][0] <= flushed:
            released.append(waiting.popleft())
        self._send(released, StoreDurability.DISK)

    def _send(self, released: list[_Waiting], durability: StoreDurability | None) -> None:
        if released and self.on_released is not None:
            ended_ms = self._clock.monotonic_ms() + self._timeout_ms
            self.on_released(ended_ms - released[0][1], ended_ms - released[-1][1], len(released))
        replies: dict[Connection, list[bytes]] = {}
        for _, _, connection, write, reply in released:
            frame = write(durability, reply)
            if connection is not None:
                replies.setdefault(connection, []).append(frame)
        for connection, frames in replies.items():
            connection.write(b"".join(frames))
        if not self._waiting and self._all_done is not None:
            self._all_done.set_result(None)
            self._all_done = None
