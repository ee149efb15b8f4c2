"""Requests by message that wait for their answers.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.errors import StateError

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.received_message import ReceivedMessage


class PendingAnswers:
    """Futures by correlation id."""

    def __init__(self) -> None:
        self._pending: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """Return a future of an answer; call `forget` when it is no longer needed."""
        if correlation_id in self._pending:
            raise StateError(f"an answer to {correlation_id!r} is already pending")
        pending: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = pending
        return pending

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for an answer."""
        pending = self._pending.pop(correlation_id, None)
        if pending is not None:
            pending.cancel()

    def deliver(self, correlation_id: str, answer: ReceivedMessage) -> bool:
        """Deliver an answer; False if nobody waits for it."""
        pending = self._pending.pop(correlation_id, None)
        if pending is None or pending.done():
            return False
        pending.set_result(answer)
        return True

    def fail_all(self) -> None:
        """Tell all waiters that the client stops."""
        pending, self._pending = self._pending, {}
        for correlation_id, answer in pending.items():
            if not answer.done():
                answer.set_exception(
                    StateError(
                        f"the client was stopped before the reply to {correlation_id} arrived",
                        hint="stop it after the last reply",
                    )
                )
