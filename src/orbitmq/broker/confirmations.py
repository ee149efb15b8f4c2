"""Confirmations: replies and coroutines that wait until a message is safe.

Safe means on disk, on the slaves that a sync master waits for, or both. They wait in the order of
their physical offsets. A flush round or a slave's report says how far the log is safe; everything
below is released at once, the replies of one connection in one write.

Threads: the event loop's; `flushed` and `copies_changed` may be called from any.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from orbitmq.broker.durability import FLUSH_TIMEOUT, IN_MEMORY, ON_DISK, Durability
from orbitmq.errors import StoreFencedError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.transport.connection import Connection

T = TypeVar("T")
# Encodes a reply for the durability reached; None if the message will never be on disk.
WriteReply = Callable[[Durability | None, T], bytes]
# End of the message, whether it waits for the disk, since when, and what to do then.
_Waiting = tuple[PhysicalOffset, bool, float, "Connection | None", WriteReply[Any], Any]

FENCED_REMARK: Final = "the message could not be put on disk; it may be lost"


class SlaveCopies(Protocol):
    """What a sync master knows of its slaves' copies."""

    @property
    def copied(self) -> PhysicalOffset:
        """Everything below is on enough slaves, or there are too few to wait for."""

    @property
    def awaited(self) -> int:
        """How many slaves a message should be on."""

    @property
    def timeout_ms(self) -> int:
        """How long a send waits for slaves."""

    def holding(self, end: PhysicalOffset) -> tuple[int, int]:
        """How many slaves have everything below `end`, and how many of them on disk."""


class Confirmations:
    """Replies and coroutines that wait for disk and slaves, oldest first."""

    def __init__(
        self,
        *,
        flushed: PhysicalOffset,
        is_fenced: Callable[[], bool],
        timeout_ms: int,
        clock: Clock,
        is_sync: bool = True,
        slaves: SlaveCopies | None = None,
    ) -> None:
        """Prepare; `is_sync` is False under ASYNC_FLUSH, where sends do not wait for the disk."""
        self._is_fenced = is_fenced
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._is_sync = is_sync
        self._slaves = slaves
        # Whether sends wait at all.
        self.waits = is_sync or slaves is not None
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
        return self._clock.monotonic_ms() - self._waiting[0][2]

    def reply_later(
        self, end: PhysicalOffset, connection: Connection, write: WriteReply[T], reply: T
    ) -> bytes:
        """Send a reply once everything below `end` is safe; returns it if that is so now."""
        if self._is_safe(end, self._is_sync):
            return write(self._durability(end), reply)
        self._wait_for(end, self._is_sync, connection, write, reply)
        return b""

    async def wait_until_safe(self, end: PhysicalOffset, *, on_disk: bool = False) -> Durability:
        """Wait until everything below `end` is safe, or the timeout has passed.

        With `on_disk` it waits for the disk even under ASYNC_FLUSH.
        """
        on_disk = on_disk or self._is_sync
        if self._is_safe(end, on_disk):
            return self._durability(end)
        settled: asyncio.Future[Durability] = self._loop.create_future()

        def settle(durability: Durability | None, _: None) -> bytes:
            if settled.done():
                return b""
            if durability is not None:
                settled.set_result(durability)
            else:
                settled.set_exception(StoreFencedError(FENCED_REMARK, hint="restart the broker"))
            return b""

        self._wait_for(end, on_disk, None, settle, None)
        return await settled

    def flushed(self, offset: PhysicalOffset) -> None:
        """Note that everything below `offset` is on disk."""
        self._reported = offset
        self.copies_changed()

    def copies_changed(self) -> None:
        """Note that slaves have more, or are too few now."""
        # Perf: one hop to the loop for all rounds that end before it runs.
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
        expired: list[tuple[Durability, _Waiting]] = []
        while self._waiting and (durability := self._expired(self._waiting[0], now_ms)):
            expired.append((durability, self._waiting.popleft()))
        for durability, alike in groupby(expired, key=itemgetter(0)):
            self._send([waiting for _, waiting in alike], durability)

    async def all_done(self) -> None:
        """Return once nothing is waiting."""
        while self._waiting:
            if self._all_done is None:
                self._all_done = self._loop.create_future()
            await asyncio.shield(self._all_done)

    # --- inside ---------------------------------------------------------------------------------

    def _is_safe(self, end: PhysicalOffset, on_disk: bool) -> bool:  # noqa: FBT001  # Perf: plain
        return (not on_disk or end <= self._flushed) and (
            self._slaves is None or end <= self._slaves.copied
        )

    def _durability(
        self, end: PhysicalOffset, too_few: ResponseCode = ResponseCode.SLAVE_NOT_AVAILABLE
    ) -> Durability:
        """How durable a message is that waits no longer."""
        is_flushed = end <= self._flushed
        if self._slaves is None:
            return ON_DISK if is_flushed else IN_MEMORY
        having, flushed_there = self._slaves.holding(end)
        code = ResponseCode.SUCCESS if having >= self._slaves.awaited else too_few
        return Durability(code, is_flushed, 1 + having, is_flushed + flushed_there)

    def _expired(self, waiting: _Waiting, now_ms: float) -> Durability | None:
        """What a send is told that has waited too long; None if it waits on."""
        end, on_disk, since_ms, *_ = waiting
        if on_disk and end > self._flushed:
            return FLUSH_TIMEOUT if now_ms - since_ms >= self._timeout_ms else None
        if self._slaves is not None and now_ms - since_ms >= self._slaves.timeout_ms:
            return self._durability(end, too_few=ResponseCode.FLUSH_SLAVE_TIMEOUT)
        return None

    def _wait_for(
        self,
        end: PhysicalOffset,
        on_disk: bool,  # noqa: FBT001  # Perf: plain
        connection: Connection | None,
        write: WriteReply[T],
        reply: T,
    ) -> None:
        self._waiting.append((end, on_disk, self._clock.monotonic_ms(), connection, write, reply))

    def _release(self) -> None:
        self._wake_is_due = False
        if self._is_fenced():
            # Slaves may still copy what is not acknowledged any more.
            return
        self._flushed = flushed = self._reported
        copied = flushed if self._slaves is None else self._slaves.copied
        waiting = self._waiting
        released: list[_Waiting] = []
        while (
            waiting
            and (waiting[0][0] <= flushed or not waiting[0][1])
            and (self._slaves is None or waiting[0][0] <= copied)
        ):
            released.append(waiting.popleft())
        # The newest of them is the least safe.
        self._send(released, self._durability(released[-1][0]) if released else None)

    def _send(self, released: list[_Waiting], durability: Durability | None) -> None:
        if released and self.on_released is not None:
            now_ms = self._clock.monotonic_ms()
            self.on_released(now_ms - released[0][2], now_ms - released[-1][2], len(released))
        replies: dict[Connection, list[bytes]] = {}
        for _, _, _, connection, write, reply in released:
            frame = write(durability, reply)
            if connection is not None:
                replies.setdefault(connection, []).append(frame)
        for connection, frames in replies.items():
            connection.write(b"".join(frames))
        if not self._waiting and self._all_done is not None:
            self._all_done.set_result(None)
            self._all_done = None
