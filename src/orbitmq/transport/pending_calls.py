"""Calls of one connection that wait for their answer.

One timer serves all of them: it is set for the earliest deadline, so that a call costs one entry
in a table and nothing else.

Threads: the event loop's only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.errors import CallTimeoutError, OrbitError
from orbitmq.protocol.codes import request_name
from orbitmq.protocol.command import Command

if TYPE_CHECKING:
    from orbitmq.clock import Clock, TimerHandle

OnDone = Callable[[Command | OrbitError], None]

_OPAQUE_MASK: Final = 0x7FFFFFFF
# Deadlines closer together than this are met in one sweep.
_SWEEP_PAUSE_MS: Final = 5.0


class _Call(NamedTuple):
    code: int
    timeout_ms: float
    deadline_ms: float
    on_done: OnDone


class PendingCalls:
    """Matches answers to calls by opaque, and fails the calls that get none."""

    def __init__(self, address: str, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._calls: dict[int, _Call] = {}
        self._next_opaque = 0
        self._timer: TimerHandle | None = None
        self._timer_due_ms = 0.0
        self._emptied: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, code: int, timeout_ms: float, on_done: OnDone) -> int:
        """Expect an answer within the time given; return the opaque to send."""
        opaque = self.unused_opaque()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._calls[opaque] = _Call(code, timeout_ms, deadline_ms, on_done)
        if self._timer is None or deadline_ms < self._timer_due_ms:
            self._set_timer(deadline_ms)
        return opaque

    def unused_opaque(self) -> int:
        """Return a number that no call under way has."""
        while True:
            self._next_opaque = (self._next_opaque + 1) & _OPAQUE_MASK
            if self._next_opaque not in self._calls:
                return self._next_opaque

    def answer(self, response: Command) -> bool:
        """Hand an answer to the call it belongs to; False when nobody waits for it."""
        call = self._calls.pop(response.opaque, None)
        if call is None:
            return False
        call.on_done(response)
        self._tell_if_empty()
        return True

    def fail_all(self, error: OrbitError) -> None:
        """Fail every call at once."""
        calls, self._calls = self._calls, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for call in calls.values():
            call.on_done(error)
        self._tell_if_empty()

    async def all_done(self) -> None:
        """Return once no call waits."""
        if self._calls:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._emptied)

    def _tell_if_empty(self) -> None:
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
            self._set_timer(max(earliest_ms, now_ms + _SWEEP_PAUSE_MS))
        for call in failed:
            name = request_name(call.code)
            call.on_done(CallTimeoutError(self._address, name, call.timeout_ms))
        self._tell_if_empty()
