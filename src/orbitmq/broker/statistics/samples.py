"""Samples of a broker's counters: rates, windows, daily totals.

Threads: the event loop's.
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from orbitmq.broker.statistics.counters import Counter
from orbitmq.broker.statistics.windows import CounterGrowth, Tracks, Windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orbitmq.broker.statistics.counters import Counters
    from orbitmq.clock import Clock

SAMPLE_INTERVAL_MS: Final = 10_000
_RATE_SPANS_MS: Final = (10_000, 60_000, 600_000)
_ONE_DAY: Final = datetime.timedelta(days=1)

# A topic, or a topic and a group.
Key = str | tuple[str, str]


class CounterKind(StrEnum):
    """What is counted."""

    PUTS = "puts"
    READS = "reads"
    SEND_BACKS = "send backs"
    ALL_PUTS = "all puts"
    ALL_READS = "all reads"
    USER_PUTS = "puts to topics of users"
    USER_READS = "reads of topics of users"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Totals of the whole broker at one moment."""

    at_ms: float
    puts: int
    reads: int
    found_pulls: int
    missed_pulls: int

    @property
    def pulls(self) -> int:
        """All pulls, with and without messages."""
        return self.found_pulls + self.missed_pulls


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Messages sent and read since the broker's start, without system topics."""

    puts: int = 0
    reads: int = 0


class Days:
    """The totals at the last two midnights, local time."""

    def __init__(self, now_ms: int, *, zone: datetime.tzinfo | None = None) -> None:
        self._zone = zone
        self._today = self._date(now_ms)
        self.this_morning = Totals()
        self.yesterday_morning = Totals()

    def note(self, now_ms: int, totals: Totals) -> None:
        """Keep the totals if a new day has started since the last call."""
        today = self._date(now_ms)
        if today <= self._today:
            return
        is_next = today - self._today == _ONE_DAY
        self.yesterday_morning = self.this_morning if is_next else totals
        self.this_morning = totals
        self._today = today

    def _date(self, now_ms: int) -> datetime.date:
        moment = datetime.datetime.fromtimestamp(now_ms / 1000, tz=datetime.UTC)
        return moment.astimezone(self._zone).date()


class Samples:
    """Takes samples, and answers from them."""

    def __init__(
        self,
        counters: Counters,
        *,
        is_system: Callable[[str], bool],
        knows_topic: Callable[[str], object],
        knows_group: Callable[[str], object],
        clock: Clock,
    ) -> None:
        self.counters = counters
        self._is_system = is_system
        self._knows_topic = knows_topic
        self._knows_group = knows_group
        self._clock = clock
        self._windows = Windows()
        self._tracks: dict[CounterKind, dict[Key, Tracks]] = {kind: {} for kind in CounterKind}
        spans = _RATE_SPANS_MS[-1] // SAMPLE_INTERVAL_MS
        self._calls: deque[Calls] = deque([self._calls_now()], maxlen=spans + 2)
        self._last_minute = self._calls[0]
        self.days = Days(clock.now_ms())
        self.sample()

    def sample(self) -> None:
        """Take the samples that are due; call it every ten seconds."""
        now_ms = self._clock.monotonic_ms()
        due = [window.is_due(now_ms) for window in self._windows.all]
        if due[1]:
            self.counters.forget(knows_topic=self._knows_topic, knows_group=self._knows_group)
        for window, is_due in zip(self._windows.all, due, strict=True):
            if is_due:
                window.begin_sample(now_ms)
        taking = [(index, window) for index, window in enumerate(self._windows.all) if due[index]]
        for kind, counters in self._tables():
            tracks = self._tracks[kind]
            for key, counter in counters.items():
                found = tracks.get(key)
                if found is None:
                    found = tracks[key] = Tracks()
                sample = counter.messages, counter.bytes
                for index, window in taking:
                    window.take(found.by_window[index], sample)
            for key in tracks.keys() - counters.keys():
                del tracks[key]
        self._calls.append(self._calls_now())
        self.days.note(self._clock.now_ms(), self.totals())
        self._end_minute()

    # --- queries ------------------------------------------------------------------------------

    def growth(self, kind: CounterKind, key: Key = "") -> CounterGrowth | None:
        """How much a counter grew; None if it does not exist, or has no sample yet."""
        tracks = self._tracks[kind].get(key)
        return tracks.growth(self._windows) if tracks is not None else None

    def puts_per_second(self, topic: str) -> float:
        """Messages per second sent to a topic in the last minute."""
        return self._per_second(CounterKind.PUTS, topic)

    def reads_per_second(self, topic: str, group: str) -> float:
        """Messages per second of a topic delivered to a group in the last minute."""
        return self._per_second(CounterKind.READS, (topic, group))

    def totals(self) -> Totals:
        """Messages sent and read since the start, without system topics."""
        counters = self.counters
        puts = sum(
            counter.messages
            for topic, counter in counters.puts.items()
            if not self._is_system(topic)
        )
        reads = sum(
            counter.messages
            for (topic, _), counter in counters.reads.items()
            if not self._is_system(topic)
        )
        return Totals(
            puts=puts + counters.other_puts.messages, reads=reads + counters.other_reads.messages
        )

    def rates(self, number: Callable[[Calls], int]) -> str:
        """Growth per second over 10, 60 and 600 s; empty where the broker ran for less."""
        now = self._calls_now()
        texts: list[str] = []
        for span_ms in _RATE_SPANS_MS:
            before = next(
                (calls for calls in reversed(self._calls) if now.at_ms - calls.at_ms >= span_ms),
                None,
            )
            texts.append(
                ""
                if before is None
                else str((number(now) - number(before)) * 1000 / (now.at_ms - before.at_ms))
            )
        return " ".join(texts)

    # --- inside -------------------------------------------------------------------------------

    def _per_second(self, kind: CounterKind, key: Key) -> float:
        grown = self.growth(kind, key)
        return grown.minute.messages_per_second if grown is not None else 0.0

    def _tables(self) -> Iterator[tuple[CounterKind, Mapping[Any, Counter]]]:
        """All counters by kind and key; those of the whole broker have the key ""."""
        counters, totals = self.counters, self.totals()
        yield CounterKind.PUTS, counters.puts
        yield CounterKind.READS, counters.reads
        yield CounterKind.SEND_BACKS, counters.send_backs
        for kind, messages in (
            (CounterKind.ALL_PUTS, _messages(counters.puts, counters.other_puts)),
            (CounterKind.ALL_READS, _messages(counters.reads, counters.other_reads)),
            (CounterKind.USER_PUTS, totals.puts),
            (CounterKind.USER_READS, totals.reads),
        ):
            whole = Counter()
            whole.add(messages, 0)
            yield kind, {"": whole}

    def _calls_now(self) -> Calls:
        counters = self.counters
        return Calls(
            at_ms=self._clock.monotonic_ms(),
            puts=_messages(counters.puts, counters.other_puts),
            reads=_messages(counters.reads, counters.other_reads),
            found_pulls=counters.found_pulls,
            missed_pulls=counters.missed_pulls,
        )

    def _end_minute(self) -> None:
        now, before = self._calls[-1], self._last_minute
        if now.at_ms - before.at_ms < _RATE_SPANS_MS[1]:
            return
        counters = self.counters
        at_once = now.puts - before.puts - counters.put_waits.count
        counters.put_waits.end_minute(at_once=max(at_once, 0))
        counters.read_waits.end_minute()
        self._last_minute = now


def _messages(counters: dict[str, Counter] | dict[tuple[str, str], Counter], other: Counter) -> int:
    return sum(counter.messages for counter in counters.values()) + other.messages
