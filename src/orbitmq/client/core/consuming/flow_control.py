"""Flow control: pauses the pulls of a queue until its listeners have caught up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from orbitmq.model.queues import MessageQueue

MIB: Final = 1024 * 1024
WARN_EVERY: Final = 1000


class MeasuredWindow(Protocol):
    """What flow control needs to know about a window."""

    @property
    def count(self) -> int:
        """Unfinished messages."""

    @property
    def bytes(self) -> int:
        """Their bytes."""

    @property
    def span(self) -> int:
        """Distance from the first of them to the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How much may be unfinished before pulls pause."""

    count: int = 1000
    bytes: int = 100 * MIB
    # Compat: None for ordered consumption, where messages never overtake each other.
    span: int | None = 2000
    # For all queues together: each gets an equal share, instead of the limits above.
    total_count: int | None = None
    total_bytes: int | None = None

    def shared_by(self, queue_count: int) -> FlowLimits:
        """Return the limits of one queue if the consumer has `queue_count` of them."""
        if not queue_count:
            return self
        count, total_bytes = self.total_count, self.total_bytes
        return replace(
            self,
            count=self.count if count is None else max(1, count // queue_count),
            bytes=self.bytes if total_bytes is None else max(1, total_bytes // queue_count),
        )


class Pause(NamedTuple):
    """Why a queue is not pulled now."""

    reason: str
    warn: bool  # whether to log it: one of `WARN_EVERY` pauses is logged


class FlowControl:
    """Compares windows with the limits, and counts the pauses."""

    def __init__(self, limits: FlowLimits) -> None:
        self._limits = limits
        self._current = limits
        self._pauses = 0

    @property
    def current(self) -> FlowLimits:
        """The present limits of one queue."""
        return self._current

    def set_queue_count(self, queue_count: int) -> None:
        """Share the total limits among this many queues."""
        self._current = self._limits.shared_by(queue_count)

    def pause(self, queue: MessageQueue, window: MeasuredWindow) -> Pause | None:
        """Return why a queue must not be pulled now; None if it may."""
        reason = self._over(window)
        if reason is None:
            return None
        self._pauses += 1
        where = f"topic={queue.topic} broker={queue.broker_name} queue={queue.queue_id}"
        text = f"{reason} {where} count={window.count} bytes={window.bytes} pauses={self._pauses}"
        return Pause(text, warn=self._pauses % WARN_EVERY == 1)

    def _over(self, window: MeasuredWindow) -> str | None:
        limits = self._current
        if window.count > limits.count:
            return f"more than {limits.count} messages are unfinished"
        if window.bytes > limits.bytes:
            return f"unfinished messages take more than {limits.bytes} bytes"
        if limits.span is not None and window.span > limits.span:
            return f"the unfinished messages span more than {limits.span} offsets"
        return None
