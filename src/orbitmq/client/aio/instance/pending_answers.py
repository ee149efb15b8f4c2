"""Answers that are awaited: who asked by message gets what comes back for it.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.errors import StateError

if TYPE_CHECKING:
    from orbitmq.protocol.requests.answers import PushAnswer


class PushedAnswer(NamedTuple):
    """An answer as the broker handed it over."""

    header: PushAnswer
    body: bytes
    arrived_ms: int


class PendingAnswers:
    """Futures by correlation id."""

    def __init__(self) -> None:
        self._awaited: dict[str, asyncio.Future[PushedAnswer]] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def expect(self, correlation_id: str) -> asyncio.Future[PushedAnswer]:
        """Begin to wait for an answer; whoever does must `forget` it in the end."""
        if correlation_id in self._awaited:
            raise StateError(f"an answer to {correlation_id!r} is awaited already")
        awaited: asyncio.Future[PushedAnswer] = asyncio.get_running_loop().create_future()
        self._awaited[correlation_id] = awaited
        return awaited

    def forget(self, correlation_id: str) -> None:
        """Wait no longer."""
        awaited = self._awaited.pop(correlation_id, None)
        if awaited is not None:
            awaited.cancel()

    def deliver(self, correlation_id: str, answer: PushedAnswer) -> bool:
        """Hand an answer over; False when nobody waits for it."""
        awaited = self._awaited.pop(correlation_id, None)
        if awaited is None or awaited.done():
            return False
        awaited.set_result(answer)
        return True

    def forget_all(self) -> None:
        """Let everybody go who still waits."""
        for correlation_id in [*self._awaited]:
            self.forget(correlation_id)
