"""Bounds on what a server or client has in flight, in bytes and in calls.

Threads: the event loop's only.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from orbitmq.errors import TooManyCallsError

# A request that is answered later occupies at least this much, however small its frame.
DEFERRED_BYTES_MIN: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may hold."""

    frame_bytes_max: int
    work_bytes_max: int
    write_high_water_bytes: int
    write_bytes_max: int
    # How long calls may wait without a byte from the peer before the connection is aborted.
    silence_ms_max: float = math.inf


@dataclass(slots=True, eq=False)
class ByteBudget:
    """Bytes that many holders share; `take` fails rather than waits."""

    bytes_max: int
    taken: int = 0

    def take(self, count: int) -> bool:
        """Take `count` bytes if that many are left."""
        if self.taken + count > self.bytes_max:
            return False
        self.taken += count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes taken before."""
        # Invariant: nobody returns more than was taken.
        assert 0 <= count <= self.taken
        self.taken -= count


class DeferredWork:
    """Requests of one connection that are answered later, within its bound and the shared one."""

    def __init__(self, bytes_max: int, budget: ByteBudget) -> None:
        self._bytes_max = bytes_max
        self._budget = budget
        self._bytes = 0
        self._done: asyncio.Future[None] | None = None

    def begin(self, frame_bytes: int) -> int:
        """Admit a request; returns the bytes to pass to `end`, or 0 if a bound refuses it."""
        charge = max(frame_bytes, DEFERRED_BYTES_MIN)
        if self._bytes + charge > self._bytes_max:
            return 0
        if not self._budget.take(charge):
            return 0
        self._bytes += charge
        return charge

    def end(self, charge: int) -> None:
        """Release the bytes that `begin` returned."""
        self._bytes -= charge
        self._budget.give_back(charge)
        if self._done is not None and not self._bytes:
            self._done.set_result(None)
            self._done = None

    @property
    def is_pending(self) -> bool:
        """Whether a request is still unanswered."""
        return self._bytes > 0

    async def all_done(self) -> None:
        """Return once every request is answered."""
        while self._bytes:
            if self._done is None:
                self._done = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._done)


@dataclass(slots=True, eq=False)
class CallBudget:
    """A bound on the calls of one kind that are in flight."""

    kind: str
    calls_max: int
    in_flight: int = 0

    def take(self, address: str) -> None:
        """Begin a call to an address; raises TooManyCallsError at the bound."""
        if self.in_flight >= self.calls_max:
            raise TooManyCallsError(address, self.kind, self.calls_max)
        self.in_flight += 1

    def give_back(self) -> None:
        """End a call begun before."""
        # Invariant: nobody ends more calls than were begun.
        assert self.in_flight > 0
        self.in_flight -= 1

    @contextmanager
    def one_to(self, address: str) -> Iterator[None]:
        """Count one call for the duration of a block."""
        self.take(address)
        try:
            yield
        finally:
            self.give_back()


class CallBudgets:
    """The bounds on calls that one server or client makes to its peers."""

    def __init__(self, *, oneway_max: int, unanswered_max: int) -> None:
        self.oneway = CallBudget("one-way", oneway_max)
        self.unanswered = CallBudget("unanswered", unanswered_max)
