"""Bounds on what a server or client has under way, in bytes and in calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orbitmq.errors import TooManyCallsError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may hold."""

    frame_bytes_max: int
    work_bytes_max: int
    write_high_water_bytes: int
    write_bytes_max: int
    # How long calls may wait in vain without a byte from the peer before it is given up.
    silence_ms_max: float = math.inf


class ByteBudget:
    """Bytes that many holders share; taking fails rather than waits."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0

    def take(self, count: int) -> bool:
        """Take `count` bytes if they are left."""
        if self.taken + count > self.bytes_max:
            return False
        self.taken += count
        return True

    def give_back(self, count: int) -> None:
        """Return bytes taken before."""
        # Invariant: nobody returns more than was taken.
        assert 0 <= count <= self.taken
        self.taken -= count


class CallBudget:
    """Calls of one kind that may be under way at once."""

    def __init__(self, kind: str, calls_max: int) -> None:
        self.kind = kind
        self.calls_max = calls_max
        self.under_way = 0

    def take(self, address: str) -> None:
        """Begin a call to an address; raises TooManyCallsError when the bound forbids it."""
        if self.under_way >= self.calls_max:
            raise TooManyCallsError(address, self.kind, self.calls_max)
        self.under_way += 1

    def give_back(self) -> None:
        """End a call begun before."""
        # Invariant: nobody ends more calls than were begun.
        assert self.under_way > 0
        self.under_way -= 1

    @contextmanager
    def one_to(self, address: str) -> Iterator[None]:
        """Have a call under way for the time of a block."""
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
