"""Counters: messages and bytes by topic and by group, from the broker's start on.

Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.broker.statistics.latencies import Latencies

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = TypeVar("Key")

# Topics, or pairs of topic and group, that are told apart; all further ones count as one.
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
    """Every counter of a broker; each is made when it is first asked for."""

    def __init__(self, *, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        # What was sent to each topic.
        self.puts: dict[str, Counter] = {}
        # By topic and group: what a group was handed, sent back, and gave up.
        self.reads: dict[tuple[str, str], Counter] = {}
        self.send_backs: dict[tuple[str, str], Counter] = {}
        self.given_up: dict[tuple[str, str], Counter] = {}
        # What belongs to topics and groups that are no more, or are too many to tell apart.
        self.other_puts = Counter()
        self.other_reads = Counter()
        self._other_send_backs = Counter()
        self._other_given_up = Counter()
        # Sends that the store refused; pulls that brought messages, and that did not.
        self.failed_puts = 0
        self.found_pulls = 0
        self.missed_pulls = 0
        # How long sends waited for the disk, and reads for what memory did not hold.
        self.put_waits = Latencies()
        self.read_waits = Latencies()

    def put(self, topic: str) -> Counter:
        """What was sent to a topic."""
        counter = self.puts.get(topic)
        if counter is None:
            counter = self._new(self.puts, topic, self.other_puts)
        return counter

    def read(self, topic: str, group: str) -> Counter:
        """What a group was handed of a topic."""
        counter = self.reads.get((topic, group))
        if counter is None:
            counter = self._new(self.reads, (topic, group), self.other_reads)
        return counter

    def sent_back(self, topic: str, group: str) -> Counter:
        """What a group sent back to be tried again, or given up."""
        counter = self.send_backs.get((topic, group))
        if counter is None:
            counter = self._new(self.send_backs, (topic, group), self._other_send_backs)
        return counter

    def dead_letters(self, topic: str, group: str) -> Counter:
        """What a group gave up for good."""
        counter = self.given_up.get((topic, group))
        if counter is None:
            counter = self._new(self.given_up, (topic, group), self._other_given_up)
        return counter

    def forget(
        self, *, knows_topic: Callable[[str], object], knows_group: Callable[[str], object]
    ) -> None:
        """Drop the counters of topics and groups that are no more; sums over all stay right."""
        _move(self.puts, self.other_puts, [name for name in self.puts if not knows_topic(name)])
        for counters, other in (
            (self.reads, self.other_reads),
            (self.send_backs, self._other_send_backs),
            (self.given_up, self._other_given_up),
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
