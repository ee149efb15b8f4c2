"""Calls of one connection that are not answered yet.

One timer serves all of them: it is set for the earliest deadline, so that a call costs only one
table entry.

Threads: the event loop's only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.errors import CallTimeoutError, OrbitError
from orbitmq.protocol.codes import request_name
from orbitmq.protocol.command import Command

if TYPE_CHECKING:
    from orbitmq.clock import Clock, TimerHandle
    from orbitmq.transport.limits import CallBudget

log = logging.getLogger(__name__)

OnDone = Callable[[Command | OrbitError], None]

_OPAQUE_MASK: Final = 0x7FFFFFFF
# Deadlines closer together than this are handled in one sweep. A sweep looks at every call, so the
# pause grows with their number.
_SWEEP_PAUSE_MS: Final = 5.0
_SWEEP_PAUSE_MS_PER_CALL: Final = 0.002


# Perf: made in 0.2 us, a NamedTuple in 0.6 (timeit).
class _Call(msgspec.Struct, gc=False):
    code: int
    timeout_ms: float
    deadline_ms: float
    on_done: OnDone


class PendingCalls:
    """Matches answers to calls by opaque, and fails the calls that get none."""

    def __init__(
        self,
        address: str,
        budget: CallBudget,
        clock: Clock,
        *,
        on_overdue: Callable[[float], None] | None = None,
    ) -> None:
        """Match the calls to one address.

        Args:
            address: the peer, for errors.
            budget: bounds the calls in flight.
            clock: for their timeouts.
            on_overdue: called when calls time out, with the start time of the oldest of them.
        """
        self.address = address
        self._on_overdue = on_overdue
        self._budget = budget
        self._clock = clock
        self._calls: dict[int, _Call] = {}
        self._next_opaque = 0
        self._timer: TimerHandle | None = None
        self._timer_due_ms = 0.0
        self._emptied: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, code: int, timeout_ms: float, on_done: OnDone) -> int:
        """Expect an answer within `timeout_ms`; returns the opaque to send."""
        self._budget.take(self.address)
        opaque = self.unused_opaque()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._calls[opaque] = _Call(code, timeout_ms, deadline_ms, on_done)
        if self._timer is None or deadline_ms < self._timer_due_ms:
            self._set_timer(deadline_ms)
        return opaque

    def unused_opaque(self) -> int:
        """Return a number that no pending call has."""
        while True:
            self._next_opaque = (self._next_opaque + 1) & _OPAQUE_MASK
            if self._next_opaque not in self._calls:
                return self._next_opaque

    def answer(self, response: Command) -> bool:
        """Hand an answer to its call; False if there is no such call."""
        return self.finish(response.opaque, response)

    def finish(self, opaque: int, outcome: Command | OrbitError) -> bool:
        """End one call with an answer or an error; False if there is no such call."""
        call = self._calls.pop(opaque, None)
        if call is None:
            return False
        self._budget.give_back()
        notify(call.on_done, outcome)
        self._notify_if_empty()
        return True

    def forget(self, opaque: int) -> None:
        """End one call silently; its answer will be dropped."""
        if self._calls.pop(opaque, None) is not None:
            self._budget.give_back()
            self._notify_if_empty()

    def fail_all(self, make_error: Callable[[], OrbitError]) -> None:
        """Fail every call at once, each with an error of its own."""
        calls, self._calls = self._calls, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for call in calls.values():
            self._budget.give_back()
            notify(call.on_done, make_error())
        self._notify_if_empty()

    async def all_done(self) -> None:
        """Return once no call is pending."""
        while self._calls:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    def _notify_if_empty(self) -> None:
        if self._emptied is not None and not self._calls:
            self._emptied.set_result(None)
            self._emptied = None

    def _set_timer(self, due_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 0.0)
        self._timer = self._clock.call_later(delay_ms, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        overdue = [opaque for opaque, call in self._calls.items() if call.deadline_ms <= now_ms]
        failed = [self._calls.pop(opaque) for opaque in overdue]
        if self._calls:
            earliest_ms = min(call.deadline_ms for call in self._calls.values())
            pause_ms = _SWEEP_PAUSE_MS + len(self._calls) * _SWEEP_PAUSE_MS_PER_CALL
            self._set_timer(max(earliest_ms, now_ms + pause_ms))
        if failed and self._on_overdue is not None:
            # Before the callbacks: a caller that retries must not get the same dead connection.
            self._on_overdue(min(call.deadline_ms - call.timeout_ms for call in failed))
        for call in failed:
            self._budget.give_back()
            name = request_name(call.code)
            notify(call.on_done, CallTimeoutError(self.address, name, call.timeout_ms))
        self._notify_if_empty()


def notify(on_done: OnDone, outcome: Command | OrbitError) -> None:
    """Call back; an error of the callback is logged here, and affects nobody else."""
    try:
        on_done(outcome)
    except Exception:
        log.exception("callback of a call failed outcome=%s", type(outcome).__name__)
