"""What a listener says about the messages it was given.

returns nothing, or SUCCESS    they are done
raises                         as RETRY_LATER; ordered: as SUSPEND
RETRY_LATER, RetryLater(...)   the broker delivers them again after a while
SUSPEND, Suspend(...)          ordered only: the queue stands still, then they come again
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbitmq.errors import ConsumeResultError

DEAD_LETTER: Final = -1
SUSPEND_MS_MIN: Final = 10
SUSPEND_MS_MAX: Final = 30_000


@dataclass(frozen=True, slots=True)
class Success:
    """The messages are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """The messages come again, through the retry topic of the group.

    `delay_level` says after how long (0: longer each time, -1: never, they become dead letters).
    `succeeded` is how many of the batch, from its start, are done all the same.
    """

    delay_level: int = 0
    succeeded: int = 0

    def __post_init__(self) -> None:
        if self.delay_level < DEAD_LETTER:
            raise ConsumeResultError(
                f"delay level {self.delay_level} does not exist",
                hint="1 and up are delays, 0 leaves it to the broker, -1 makes dead letters",
            )
        if self.succeeded < 0:
            raise ConsumeResultError(
                f"{self.succeeded} messages cannot have succeeded", hint="give 0 or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """The messages come again, and none of their queue before; None is the consumer's own pause."""

    pause_ms: int | None = None

    def __post_init__(self) -> None:
        pause_ms = self.pause_ms
        if pause_ms is not None and not SUSPEND_MS_MIN <= pause_ms <= SUSPEND_MS_MAX:
            raise ConsumeResultError(
                f"a queue cannot be suspended for {pause_ms} ms",
                hint=f"give {SUSPEND_MS_MIN} to {SUSPEND_MS_MAX}",
            )


ConsumeResult = Success | RetryLater | Suspend

SUCCESS: Final = Success()
RETRY_LATER: Final = RetryLater()
SUSPEND: Final = Suspend()


def concurrent_result(returned: object) -> Success | RetryLater:
    """Read what a listener returned that takes messages in any order."""
    if returned is None:
        return SUCCESS
    if isinstance(returned, Success | RetryLater):
        return returned
    if isinstance(returned, Suspend):
        raise ConsumeResultError(
            "the listener returned SUSPEND, which only an ordered consumer can do",
            hint="return RETRY_LATER, or make the consumer with ordered=True",
        )
    raise _unknown(returned, "RETRY_LATER")


def ordered_result(returned: object) -> Success | Suspend:
    """Read what a listener returned that takes the messages of a queue in order."""
    if returned is None:
        return SUCCESS
    if isinstance(returned, Success | Suspend):
        return returned
    if isinstance(returned, RetryLater):
        # Sent back, the messages would come after those behind them.
        raise ConsumeResultError(
            "the listener returned RETRY_LATER, which would break the order of the queue",
            hint="return SUSPEND: the same messages come again before any other",
        )
    raise _unknown(returned, "SUSPEND")


def _unknown(returned: object, again: str) -> ConsumeResultError:
    return ConsumeResultError(
        f"the listener returned {returned!r:.60}, a {type(returned).__name__}",
        hint=f"return nothing or SUCCESS when the messages are done, {again} when not",
    )
