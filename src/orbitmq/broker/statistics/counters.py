"""Counters: messages and bytes by topic and by group, since the broker's start.

Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.broker.statistics.latencies import Latencies

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = TypeVar("Key")

# Topics, or pairs of topic and group, with a counter of their own; all others share one.
ROWS_MAX: Final = 200_000


class Counter:
    """Messages and their bytes; only grows."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, messages: int, size: int) -> None:
        """Count messages and the bytes of their records."""
        self.messages += messages
        self.bytes += size


class Counters:
    """All counters of a broker; each is created when first used."""

    def __init__(self, *, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        # Messages sent to each topic.
        self.puts: dict[str, Counter] = {}
        # By topic and group: messages delivered, sent back, and made dead letters.
        self.reads: dict[tuple[str, str], Counter] = {}
        self.send_backs: dict[tuple[str, str], Counter] = {}
        self.dead_letters: dict[tuple[str, str], Counter] = {}
        # Of topics and groups that were deleted, or are above the limit.
        self.other_puts = Counter()
        self.other_reads = Counter()
        self._other_send_backs = Counter()
        self._other_dead_letters = Counter()
        # Sends that the store refused; pulls with and without messages.
        self.failed_puts = 0
        self.found_pulls = 0
        self.missed_pulls = 0
        # How long sends and reads waited for the disk.
        self.put_waits = Latencies()
        self.read_waits = Latencies()

    def put(self, topic: str) -> Counter:
        """Messages sent to a topic."""
        counter = self.puts.get(topic)
        if counter is None:
            counter = self._new(self.puts, topic, self.other_puts)
        return counter

    def read(self, topic: str, group: str) -> Counter:
        """Messages of a topic delivered to a group."""
        counter = self.reads.get((topic, group))
        if counter is None:
            counter = self._new(self.reads, (topic, group), self.other_reads)
        return counter

    def send_back(self, topic: str, group: str) -> Counter:
        """Messages that a group sent back, for a retry or as dead letters."""
        counter = self.send_backs.get((topic, group))
        if counter is None:
            counter = self._new(self.send_backs, (topic, group), self._other_send_backs)
        return counter

    def dead_letter(self, topic: str, group: str) -> Counter:
        """Messages of a group that became dead letters."""
        counter = self.dead_letters.get((topic, group))
        if counter is None:
            counter = self._new(self.dead_letters, (topic, group), self._other_dead_letters)
        return counter

    def forget(
        self, *, knows_topic: Callable[[str], object], knows_group: Callable[[str], object]
    ) -> None:
        """Drop the counters of deleted topics and groups; totals stay right."""
        _move(self.puts, self.other_puts, [name for name in self.puts if not knows_topic(name)])
        for counters, other in (
            (self.reads, self.other_reads),
            (self.send_backs, self._other_send_backs),
            (self.dead_letters, self._other_dead_letters),
        ):
            gone = [
                (topic, group)
                for topic, group in counters
                if not (knows_topic(topic) and knows_group(group))
            ]
            _move(counters, other, gone)

    def _new(self, counters: dict[Key, Counter], key: Key, other: Counter) -> Counter:
        if len(counters) >= self._rows_max:
            return other
        counter = counters[key] = Counter()
        return counter


def _move(counters: dict[Key, Counter], other: Counter, gone: Iterable[Key]) -> None:
    for key in gone:
        counter = counters.pop(key)
        other.add(counter.messages, counter.bytes)
