"""Logs errors of listeners: each kind once with its traceback, then counted.

Otherwise a listener that fails on every message would fill the log with tracebacks.

Threads: any; a lock, which only failing calls take, guards the counts.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

# After the traceback, an error of the same kind is logged in one line, at most this often.
REPEAT_MS: Final = 60_000
# Further kinds count as one, to bound the memory.
KINDS_MAX: Final = 100

_Kind = tuple[type[BaseException], str, int]
_OTHER: Final[_Kind] = (BaseException, "", 0)


@dataclass(slots=True, eq=False)
class _Seen:
    """One kind of error: when it was logged last, and how often it occurred since."""

    logged_ms: float
    count: int = 0


@dataclass(slots=True, eq=False)
class ListenerFailures:
    """Logs what the listener of one consumer raises."""

    _group: str
    _clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _seen: dict[_Kind, _Seen] = field(default_factory=dict, init=False)

    def add(self, error: BaseException, message: ReceivedMessage) -> None:
        """Log an error with its traceback, or count it if its kind was logged already."""
        kind = _kind_of(error)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if kind not in self._seen and len(self._seen) >= KINDS_MAX:
                kind = _OTHER
            seen = self._seen.get(kind)
            if seen is None:
                self._seen[kind] = _Seen(now_ms)
                again = 0
            else:
                seen.count += 1
                if now_ms - seen.logged_ms < REPEAT_MS:
                    return
                again, seen.count, seen.logged_ms = seen.count, 0, now_ms
        if again:
            log.warning(
                "listener failed again times=%d group=%s topic=%s queue=%d offset=%d error=%r",
                again,
                self._group,
                message.topic,
                message.queue_id,
                message.queue_offset,
                error,
            )
            return
        log.error(
            "listener failed, its messages will be retried; further errors of this kind are "
            "counted group=%s topic=%s broker=%s queue=%d offset=%d message=%s retries=%d",
            self._group,
            message.topic,
            message.broker_name,
            message.queue_id,
            message.queue_offset,
            message.message_id,
            message.reconsume_times,
            exc_info=error,
        )


def _kind_of(error: BaseException) -> _Kind:
    """Classify an error by its type and the line that raised it."""
    trace = error.__traceback__
    if trace is None:
        return type(error), "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
