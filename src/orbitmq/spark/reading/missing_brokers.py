"""The option `missingBrokers`: reads fail, wait or skip while a broker is missing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.client.core.topic_routes import MissingQueues
from orbitmq.clock import SystemClock
from orbitmq.errors import BrokersMissingError
from orbitmq.spark.options.read_options import FIRST_RETRIES, SKIP, WAIT

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.spark.options.read_options import ReadOptions

log = logging.getLogger(__name__)

# The least pause between two looks while brokers are waited for, and between two warnings.
_PAUSE_MS_MIN: Final = 100
_WARNING_INTERVAL_MS: Final = 60_000


class Look(NamedTuple):
    """The queues to read, as they are at one moment."""

    present: list[MessageQueue]
    missing: list[MissingQueues]
    # Whether only the user's options name the missing ones, maybe misspelt.
    is_guess: bool = False


class MissingBrokers:
    """Decides whether a read fails, waits or continues without missing brokers."""

    def __init__(
        self, options: ReadOptions, *, pause: Callable[[float], object], clock: Clock | None = None
    ) -> None:
        """Follow the options; `pause` waits some milliseconds."""
        self._options = options
        self._pause = pause
        self._clock = clock or SystemClock()
        # What was skipped last, so that it is logged once.
        self._skipped: frozenset[MissingQueues] = frozenset()

    def complete(self, look: Callable[[], Look]) -> list[MessageQueue]:
        """Look until no broker is missing, for as long as the options allow."""
        found = look()
        if self._options.missing_brokers == SKIP:
            self._log_skipped(found.missing)
            return found.present
        patience = Patience(self._options, self._clock)
        while found.missing:
            if not patience.lasts(found):
                raise missing_error(found.missing, waited_ms=patience.waited_ms)
            self._pause(patience.pause_ms)
            found = look()
        return found.present

    def _log_skipped(self, missing: Sequence[MissingQueues]) -> None:
        for one in sorted(frozenset(missing) - self._skipped):
            log.warning("reading without a missing broker, by missingBrokers=skip: %s", one)
        self._skipped = frozenset(missing)


class Patience:
    """How long missing brokers are waited for: by number of looks, or by time."""

    def __init__(self, options: ReadOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._start_ms = clock.monotonic_ms()
        self._warned_ms: float | None = None
        self._looks = 0
        self.pause_ms: float = options.retry_interval_ms
        if options.missing_brokers == WAIT:
            self.pause_ms = max(self.pause_ms, _PAUSE_MS_MIN)

    @property
    def waited_ms(self) -> float:
        """How long it has been waiting."""
        return self._clock.monotonic_ms() - self._start_ms

    def lasts(self, found: Look) -> bool:
        """Whether to look once more; logs now and then what is waited for."""
        retries = self._options.retries
        if self._options.missing_brokers == WAIT and found.missing:
            lasts = self.waited_ms < self._options.max_broker_wait_ms
        else:
            lasts = self._looks < (min(retries, FIRST_RETRIES) if found.is_guess else retries)
        self._looks += 1
        now_ms = self._clock.monotonic_ms()
        if lasts and (self._warned_ms is None or now_ms - self._warned_ms >= _WARNING_INTERVAL_MS):
            missing = "; ".join(map(str, found.missing)) or "its topic has fewer queues now"
            log.warning("waiting for missing queues: %s", missing)
            self._warned_ms = now_ms
        return lasts


def missing_error(missing: Sequence[MissingQueues], *, waited_ms: float) -> BrokersMissingError:
    """Name the brokers and queues that are missing, and what to do."""
    names = sorted({one.broker_name for one in missing})
    hint = (
        f"start {' and '.join(names)}, or set missingBrokers: wait waits up to maxBrokerWait, skip "
        "reads without"
    )
    remembered = sorted({one.broker_name for one in missing if one.since_ms is not None})
    if remembered:
        hint += f"; if it is lost for good: orbitmq cluster forget {' '.join(remembered)}"
    return BrokersMissingError(
        f"part of the messages cannot be read: {'; '.join(map(str, missing))}; "
        f"waited {waited_ms / 1000:.0f} s",
        broker_names=names,
        hint=hint,
    )


def known_but_missing(
    known: Collection[MessageQueue],
    *,
    present: Iterable[MessageQueue],
    live_brokers: Callable[[], Collection[str]],
) -> list[MissingQueues]:
    """List known queues whose broker is registered nowhere.

    A queue whose broker is registered is gone for another reason: its topic was deleted there, or
    has fewer queues now.
    """
    there = {(queue.topic, queue.broker_name) for queue in present}
    absent: dict[tuple[str, str], list[MessageQueue]] = {}
    for queue in known:
        if (queue.topic, queue.broker_name) not in there:
            absent.setdefault((queue.topic, queue.broker_name), []).append(queue)
    if not absent:
        return []
    live = live_brokers()
    return [
        MissingQueues(name, tuple(sorted(queues)), None)
        for (_, name), queues in sorted(absent.items())
        if name not in live
    ]
