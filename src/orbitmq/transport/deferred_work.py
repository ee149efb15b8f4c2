"""Requests of one connection that are answered later, within two bounds.

Threads: the event loop's only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbitmq.transport.limits import ByteBudget

# A request that is answered later occupies at least this much, however small its frame.
DEFERRED_BYTES_MIN: Final = 4096


class DeferredWork:
    """Counts them, by bytes: for their connection, and in a budget that all connections share."""

    def __init__(self, bytes_max: int, budget: ByteBudget) -> None:
        self._bytes_max = bytes_max
        self._budget = budget
        self._bytes = 0
        self._done: asyncio.Future[None] | None = None

    def begin(self, frame_bytes: int) -> int:
        """Admit a request; 0 when a bound forbids it, else what `end` is to return."""
        charge = max(frame_bytes, DEFERRED_BYTES_MIN)
        if self._bytes + charge > self._bytes_max:
            return 0
        if not self._budget.take(charge):
            return 0
        self._bytes += charge
        return charge

    def end(self, charge: int) -> None:
        """Return what `begin` admitted."""
        self._bytes -= charge
        self._budget.give_back(charge)
        if self._done is not None and not self._bytes:
            self._done.set_result(None)
            self._done = None

    @property
    def is_under_way(self) -> bool:
        """Whether a request waits for a later answer."""
        return self._bytes > 0

    async def all_done(self) -> None:
        """Return once no request waits for a later answer."""
        while self._bytes:
            if self._done is None:
                self._done = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._done)
