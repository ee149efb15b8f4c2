"""What concurrent and ordered consumption have in common, and what both need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orbitmq.client.aio.push.listeners import ListenerPool
    from orbitmq.client.core.consuming.inflight_window import InflightWindow
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.model.queues import MessageQueue

    Window = InflightWindow[ReceivedMessage]


class Consumption(Protocol):
    """Brings messages to the listener, and acts on what it says."""

    pool: ListenerPool

    def start(self) -> None:
        """Begin."""

    async def stop(self, grace_ms: float) -> None:
        """Let listeners under way end, within the grace."""

    def take(
        self, queue: MessageQueue, window: Window, messages: Sequence[ReceivedMessage]
    ) -> None:
        """Take messages that were pulled; they are in the window already."""

    def release(self, queue: MessageQueue, window: Window) -> bool:
        """Give a queue up; False while it must not go to another member yet."""


class OffsetRecorder(Protocol):
    """Takes note of how far a queue has been consumed."""

    def record(self, queue: MessageQueue, window: Window) -> None:
        """Take over what the window may commit."""


class RetrySender(Protocol):
    """Gives failed messages away, to be delivered again later."""

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Have a message delivered again; False when nobody took it."""

    async def send_copy(self, message: ReceivedMessage) -> bool:
        """Send a copy to the retry topic; False when that failed."""
