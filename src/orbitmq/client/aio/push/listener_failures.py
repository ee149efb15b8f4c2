"""Errors of listeners in the log: each kind once with its traceback, then counted.

A listener that fails on every message would otherwise fill the log with one traceback a message.

Threads: any; the counts are under a lock, which only failing calls take.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

# After a traceback, the same kind of error is told of in one line, and no more often than this.
REPEAT_MS: Final = 60_000
# Beyond these, an error counts as of the last kind: what is kept must not grow.
KINDS_MAX: Final = 100

_Kind = tuple[type[BaseException], str, int]
_OTHER: Final[_Kind] = (BaseException, "", 0)


class _Seen:
    """One kind of error: when it was written last, and how often it came since."""

    __slots__ = ("count", "written_ms")

    def __init__(self, written_ms: float) -> None:
        self.written_ms = written_ms
        self.count = 0


class ListenerFailures:
    """Writes what listeners of one consumer raise."""

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[_Kind, _Seen] = {}

    def add(self, error: BaseException, message: ReceivedMessage) -> None:
        """Write an error with its traceback, or count it when its kind was written already."""
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
                if now_ms - seen.written_ms < REPEAT_MS:
                    return
                again, seen.count, seen.written_ms = seen.count, 0, now_ms
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
            "listener failed, its messages are tried again; further errors of this kind are "
            "counted group=%s topic=%s broker=%s queue=%d offset=%d message=%s tried=%d",
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
    """Tell errors apart by their type and by the line that raised them."""
    trace = error.__traceback__
    if trace is None:
        return type(error), "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
