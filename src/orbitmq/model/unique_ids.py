"""Unique ids of messages, made by the sender: RocketMQ's UNIQ_KEY.

Layout in bytes, written as hexadecimal digits: address 4 or 16, process id 2, a number of this
generator 4, milliseconds since the start of the month 4, a counter 2.
"""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import os
import random
import struct
from collections.abc import Callable
from typing import Final

_HEAD: Final = struct.Struct(">HI")
_TAIL: Final = struct.Struct(">IH")
# How far the numbers of a range may run ahead of the clock: ten seconds.
_AHEAD_MAX: Final = 10_000 << 16


class _Month:
    """The time in ids: milliseconds since the start of the month."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._start_ms = self._next_ms = 0

    def _elapsed_ms(self) -> int:
        now_ms = self._now_ms()
        if not self._start_ms <= now_ms < self._next_ms:
            self._begin(now_ms)
        return (now_ms - self._start_ms) & 0xFFFFFFFF

    def _begin(self, now_ms: int) -> None:
        now = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = (start + datetime.timedelta(days=32)).replace(day=1)
        self._start_ms = int(start.timestamp() * 1000)
        self._next_ms = int(following.timestamp() * 1000)


def _new_head(address: str) -> bytes:
    generator = random.getrandbits(32)  # distinguishes generators, no secret
    return ipaddress.ip_address(address).packed + _HEAD.pack(os.getpid() & 0xFFFF, generator)


class UniqueIds(_Month):
    """Generates ids that no other generator makes."""

    def __init__(self, address: str, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self._head = _new_head(address)
        self._counter = itertools.count(random.getrandbits(16))  # any start is fine

    def make(self) -> str:
        """Make an id."""
        tail = _TAIL.pack(self._elapsed_ms(), next(self._counter) & 0xFFFF)
        return (self._head + tail).hex().upper()


class UniqueIdRanges(_Month):
    """Reserves many ids at once, for callers that write them in bulk.

    Time and counter are one number of 48 bits, which grows by one with each id.
    """

    def __init__(self, address: str, now_ms: Callable[[], int]) -> None:
        self._address = address
        super().__init__(now_ms)
        self._head = ""
        self._next = 1 << 48

    def take(self, count: int) -> tuple[str, int]:
        """Reserve `count` ids; returns their common prefix, and the number of the first.

        The number makes up the last 12 digits; each further id adds one.
        """
        now = self._elapsed_ms() << 16
        if now < self._next - _AHEAD_MAX or self._next + count > 1 << 48:
            # A new month, or the clock was set back: earlier numbers may recur.
            self._head = _new_head(self._address).hex().upper()
            self._next = now
        first = max(now, self._next)
        self._next = first + count
        return self._head, first
