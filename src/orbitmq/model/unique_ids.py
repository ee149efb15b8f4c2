"""Unique ids of messages, made by whoever sends them: RocketMQ's UNIQ_KEY.

Layout, written as hexadecimal digits: address 4 or 16, process id 2, a number of this maker 4,
milliseconds since the start of the month 4, a counter 2.
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


class UniqueIds:
    """Makes ids that no other maker makes."""

    def __init__(self, address: str, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        maker = random.getrandbits(32)  # tells makers apart, no secret
        self._head = ipaddress.ip_address(address).packed + _HEAD.pack(os.getpid() & 0xFFFF, maker)
        self._counter = itertools.count(random.getrandbits(16))  # any start does
        self._month_start_ms = self._next_month_ms = 0

    def make(self) -> str:
        """Make another id."""
        now_ms = self._now_ms()
        if not self._month_start_ms <= now_ms < self._next_month_ms:
            self._begin_month(now_ms)
        elapsed_ms = (now_ms - self._month_start_ms) & 0xFFFFFFFF
        tail = _TAIL.pack(elapsed_ms, next(self._counter) & 0xFFFF)
        return (self._head + tail).hex().upper()

    def _begin_month(self, now_ms: int) -> None:
        now = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = (start + datetime.timedelta(days=32)).replace(day=1)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._next_month_ms = int(following.timestamp() * 1000)
