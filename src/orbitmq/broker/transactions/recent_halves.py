"""Recent halves: recognises a half message that its producer sends again.

A producer that gets no reply sends its half message again. While the first one is open, and nobody
was asked about it, both are one transaction. Otherwise a check would end the one that its producer
does not know of, and consumers would see the message twice.

Threads: the event loop's; `hash_of` is for any.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.model import property_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.transactions.half_messages import Half

# Those of some seconds at full speed.
RECENT_MAX: Final = 65_536


class OpenHalves(Protocol):
    """Where the open halves are found."""

    @property
    def halves(self) -> Mapping[int, Half]:
        """The open halves by their first offset."""


class RecentHalves:
    """The newest halves by their content."""

    def __init__(self, halves: OpenHalves, *, count_max: int = RECENT_MAX) -> None:
        self._halves = halves
        self._count_max = count_max
        # First offsets by hash. Perf: a plain dict searches for its first key after deletions, 25 µs
        # a half (tests/unit/broker/transactions/test_recent_halves.py).
        self._offsets: OrderedDict[int, int] = OrderedDict()

    def add(self, content: int, first_offset: int) -> None:
        """Remember a half by the hash of its content."""
        self._offsets.pop(content, None)
        self._offsets[content] = first_offset
        if len(self._offsets) > self._count_max:
            self._offsets.popitem(last=False)

    def find(self, content: int) -> Half | None:
        """The open half with this content; None if a producer may have been asked about it.

        A producer that does not know of a half yet answers a check with a rollback.
        """
        half = self._halves.halves.get(self._offsets.get(content, -1))
        return half if half is not None and not half.asked_ms else None


def hash_of(properties: Mapping[str, str], body: bytes) -> int:
    """A hash of what makes two half messages the same; keyed by the process, so not to be forged."""
    names = (property_names.PRODUCER_GROUP, property_names.UNIQUE_ID, property_names.REAL_TOPIC)
    return hash((*map(properties.get, names), body))
