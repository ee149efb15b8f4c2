"""Pull and consume rates of a consumer per topic, over the last minute.

Threads: one event loop.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.protocol.requests.relays import ConsumeSpeed

if TYPE_CHECKING:
    from orbitmq.clock import Clock

_INTERVAL_MS: Final = 10_000
_MINUTE_INTERVALS: Final = 6
# Compat: failed messages are counted over an hour, everything else over a minute.
_HOUR_INTERVALS: Final = 360


@dataclass(slots=True, eq=False)
class _Interval:
    """The counts of ten seconds."""

    started_ms: float
    calls: int = 0
    consumed: int = 0
    failed: int = 0
    consume_ms: float = 0.0
    pulls: int = 0
    pulled: int = 0
    pull_ms: float = 0.0


@dataclass(slots=True, eq=False)
class ConsumeSpeeds:
    """Counts messages and times of one consumer, per topic."""

    _clock: Clock
    _intervals: dict[str, deque[_Interval]] = field(default_factory=dict, init=False)

    def pulled(self, topic: str, messages: int, spent_ms: float) -> None:
        """Count a pull that returned messages."""
        interval = self._interval(topic)
        interval.pulls += 1
        interval.pulled += messages
        interval.pull_ms += spent_ms

    def consumed(self, topic: str, *, calls: int, done: int, failed: int, spent_ms: float) -> None:
        """Count calls of the listener, and the messages done and failed."""
        interval = self._interval(topic)
        interval.calls += calls
        interval.consumed += done
        interval.failed += failed
        interval.consume_ms += spent_ms

    def of(self, topic: str) -> ConsumeSpeed:
        """Return the rates of a topic."""
        now_ms = self._clock.monotonic_ms()
        intervals = self._intervals.get(topic, ())
        minute = [
            interval
            for interval in intervals
            if now_ms - interval.started_ms < _MINUTE_INTERVALS * _INTERVAL_MS
        ]
        hour = [
            interval
            for interval in intervals
            if now_ms - interval.started_ms < _HOUR_INTERVALS * _INTERVAL_MS
        ]
        # For a consumer that has just started, the time since then.
        seconds = max(
            (now_ms - min((interval.started_ms for interval in minute), default=now_ms)) / 1000, 1
        )
        calls = sum(interval.calls for interval in minute)
        pulls = sum(interval.pulls for interval in minute)
        return ConsumeSpeed(
            failed_messages=sum(interval.failed for interval in hour),
            failed_per_second=sum(interval.failed for interval in minute) / seconds,
            consumed_per_second=sum(interval.consumed for interval in minute) / seconds,
            consume_ms=sum(interval.consume_ms for interval in minute) / calls if calls else 0.0,
            pull_ms=sum(interval.pull_ms for interval in minute) / pulls if pulls else 0.0,
            pulled_per_second=sum(interval.pulled for interval in minute) / seconds,
        )

    def forget(self, topic: str) -> None:
        """Drop the counts of a topic that is no longer consumed."""
        self._intervals.pop(topic, None)

    def _interval(self, topic: str) -> _Interval:
        now_ms = self._clock.monotonic_ms()
        intervals = self._intervals.get(topic)
        if intervals is None:
            intervals = self._intervals[topic] = deque(maxlen=_HOUR_INTERVALS)
        if not intervals or now_ms - intervals[-1].started_ms >= _INTERVAL_MS:
            intervals.append(_Interval(now_ms))
        return intervals[-1]
