"""What a listener returns for the messages it was given.

None, or SUCCESS               the messages are done
Reply(...)                     the message is done, and its sender gets this reply
an exception                   like RETRY_LATER; ordered: like SUSPEND
RETRY_LATER, RetryLater(...)   the broker delivers them again later
REJECT, Reject(...)            they become dead letters now
SUSPEND, Suspend(...)          ordered only: the queue pauses, then delivers them again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import ConsumeResultError

DEAD_LETTER: Final = -1
SUSPEND_MS_MIN: Final = 10
SUSPEND_MS_MAX: Final = 30_000
REASON_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Success:
    """The messages are done."""


@dataclass(frozen=True, slots=True)
class Reply(Success):
    """The message is done, and the program that sent it as a request gets this reply.

    The arguments are those of `Message`.
    """

    body: bytes | bytearray | memoryview | str
    tags: str = ""
    keys: str | Iterable[str] = ()
    properties: Mapping[str, str] | None = None
    flag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """The messages are delivered again, through the retry topic of the group.

    `delay_level` sets the delay (0: longer with each retry, -1: none, they become dead letters).
    `succeeded` is how many messages at the start of the batch are done nevertheless. `reason` is
    kept with the message, for those who look at dead letters.
    """

    delay_level: int = 0
    succeeded: int = 0
    reason: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.delay_level < DEAD_LETTER:
            raise ConsumeResultError(
                f"delay level {self.delay_level} does not exist",
                hint="use 1 or more for a delay, 0 to let the broker choose, -1 for dead letters",
            )
        if self.succeeded < 0:
            raise ConsumeResultError(
                f"{self.succeeded} messages cannot have succeeded", hint="use 0 or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """The queue pauses, then delivers the same messages first; None: `suspend_current_queue_ms`."""

    pause_ms: int | None = None
    # Kept with a message that becomes a dead letter.
    reason: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        pause_ms = self.pause_ms
        if pause_ms is not None and not SUSPEND_MS_MIN <= pause_ms <= SUSPEND_MS_MAX:
            raise ConsumeResultError(
                f"a queue cannot be suspended for {pause_ms} ms",
                hint=f"use {SUSPEND_MS_MIN} to {SUSPEND_MS_MAX}",
            )


@dataclass(frozen=True, slots=True)
class Reject:
    """The messages become dead letters now, without further retries.

    `reason` is kept with them, for those who look at dead letters.
    """

    reason: str = ""


ConsumeResult = Success | RetryLater | Suspend | Reject

SUCCESS: Final = Success()
RETRY_LATER: Final = RetryLater()
SUSPEND: Final = Suspend()
REJECT: Final = Reject()


def concurrent_result(returned: object) -> Success | RetryLater:
    """Check what a concurrent listener returned."""
    if returned is None:
        return SUCCESS
    if isinstance(returned, Success | RetryLater):
        return returned
    if isinstance(returned, Reject):
        return RetryLater(delay_level=DEAD_LETTER, reason=returned.reason)
    if isinstance(returned, Suspend):
        raise ConsumeResultError(
            "the listener returned SUSPEND, which only an ordered consumer supports",
            hint="return RETRY_LATER, or make the consumer with ordered=True",
        )
    raise _unknown(returned, "RETRY_LATER")


def ordered_result(returned: object) -> Success | Suspend | Reject:
    """Check what an ordered listener returned."""
    if returned is None:
        return SUCCESS
    if isinstance(returned, Success | Suspend | Reject):
        return returned
    if isinstance(returned, RetryLater):
        # Sent back, the messages would come after later ones of the queue.
        raise ConsumeResultError(
            "the listener returned RETRY_LATER, which would break the order of the queue",
            hint="return SUSPEND: the same messages are delivered again before any other",
        )
    raise _unknown(returned, "SUSPEND")


def reason_of(error: BaseException) -> str:
    """Describe why a listener failed, in one short line."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # a user's exception may do anything
        text = ""
    name = type(error).__name__
    return " ".join(f"{name}: {text}".split())[:REASON_LENGTH_MAX] if text else name


def _unknown(returned: object, retry: str) -> ConsumeResultError:
    return ConsumeResultError(
        f"the listener returned {returned!r:.60}, of type {type(returned).__name__}",
        hint=f"return None or SUCCESS if the messages are done, {retry} if not, REJECT to give up",
    )
