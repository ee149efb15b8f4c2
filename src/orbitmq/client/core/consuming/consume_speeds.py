"""How fast a consumer pulls and consumes each topic, over the last minute.

Threads: one event loop.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from orbitmq.protocol.requests.relays import ConsumeSpeed

if TYPE_CHECKING:
    from orbitmq.clock import Clock

_PART_MS: Final = 10_000
_MINUTE_PARTS: Final = 6
# Compat: failed messages are counted over an hour, all else over a minute.
_HOUR_PARTS: Final = 360


class _Part:
    """What happened in ten seconds."""

    __slots__ = (
        "begun_ms",
        "calls",
        "consume_ms",
        "consumed",
        "failed",
        "pull_ms",
        "pulled",
        "pulls",
    )

    def __init__(self, begun_ms: float) -> None:
        self.begun_ms = begun_ms
        self.calls = self.consumed = self.failed = self.pulls = self.pulled = 0
        self.consume_ms = self.pull_ms = 0.0


class ConsumeSpeeds:
    """Counts messages and times of one consumer, by topic."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parts: dict[str, deque[_Part]] = {}

    def pulled(self, topic: str, messages: int, spent_ms: float) -> None:
        """Count a pull that brought messages."""
        part = self._part(topic)
        part.pulls += 1
        part.pulled += messages
        part.pull_ms += spent_ms

    def consumed(self, topic: str, *, calls: int, done: int, failed: int, spent_ms: float) -> None:
        """Count calls of the listener, and what became of their messages."""
        part = self._part(topic)
        part.calls += calls
        part.consumed += done
        part.failed += failed
        part.consume_ms += spent_ms

    def of(self, topic: str) -> ConsumeSpeed:
        """Say how fast a topic is consumed."""
        now_ms = self._clock.monotonic_ms()
        parts = self._parts.get(topic, ())
        minute = [part for part in parts if now_ms - part.begun_ms < _MINUTE_PARTS * _PART_MS]
        hour = [part for part in parts if now_ms - part.begun_ms < _HOUR_PARTS * _PART_MS]
        # Of a consumer that has just begun, the time there was.
        seconds = max((now_ms - min((part.begun_ms for part in minute), default=now_ms)) / 1000, 1)
        calls = sum(part.calls for part in minute)
        pulls = sum(part.pulls for part in minute)
        return ConsumeSpeed(
            failed_messages=sum(part.failed for part in hour),
            failed_per_second=sum(part.failed for part in minute) / seconds,
            consumed_per_second=sum(part.consumed for part in minute) / seconds,
            consume_ms=sum(part.consume_ms for part in minute) / calls if calls else 0.0,
            pull_ms=sum(part.pull_ms for part in minute) / pulls if pulls else 0.0,
            pulled_per_second=sum(part.pulled for part in minute) / seconds,
        )

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic that is no longer consumed."""
        self._parts.pop(topic, None)

    def _part(self, topic: str) -> _Part:
        now_ms = self._clock.monotonic_ms()
        parts = self._parts.get(topic)
        if parts is None:
            parts = self._parts[topic] = deque(maxlen=_HOUR_PARTS)
        if not parts or now_ms - parts[-1].begun_ms >= _PART_MS:
            parts.append(_Part(now_ms))
        return parts[-1]
