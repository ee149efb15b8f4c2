"""Requests by message that wait for their answers.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.errors import StateError

if TYPE_CHECKING:
    from orbitmq.protocol.requests.answers import PushAnswer


class PushedAnswer(NamedTuple):
    """An answer as the broker pushed it."""

    header: PushAnswer
    body: bytes
    arrived_ms: int


class PendingAnswers:
    """Futures by correlation id."""

    def __init__(self) -> None:
        self._pending: dict[str, asyncio.Future[PushedAnswer]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def expect(self, correlation_id: str) -> asyncio.Future[PushedAnswer]:
        """Return a future of an answer; call `forget` when it is no longer needed."""
        if correlation_id in self._pending:
            raise StateError(f"an answer to {correlation_id!r} is already pending")
        pending: asyncio.Future[PushedAnswer] = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = pending
        return pending

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for an answer."""
        pending = self._pending.pop(correlation_id, None)
        if pending is not None:
            pending.cancel()

    def deliver(self, correlation_id: str, answer: PushedAnswer) -> bool:
        """Deliver an answer; False if nobody waits for it."""
        pending = self._pending.pop(correlation_id, None)
        if pending is None or pending.done():
            return False
        pending.set_result(answer)
        return True

    def forget_all(self) -> None:
        """Cancel all waiters."""
        for correlation_id in [*self._pending]:
            self.forget(correlation_id)
