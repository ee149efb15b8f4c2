"""The interface of concurrent and ordered consumption, and what both depend on."""

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
    """Passes messages to the listener, and acts on its results."""

    pool: ListenerPool

    def start(self) -> None:
        """Start."""

    async def stop(self, grace_ms: float) -> None:
        """Wait for running listeners, up to `grace_ms`."""

    def take(
        self, queue: MessageQueue, window: Window, messages: Sequence[ReceivedMessage]
    ) -> None:
        """Consume pulled messages, which are in the window already."""

    def release(self, queue: MessageQueue, window: Window) -> bool:
        """Give a queue up; False while it must not go to another member yet."""


class OffsetRecorder(Protocol):
    """Records how far a queue has been consumed."""

    def record(self, queue: MessageQueue, window: Window) -> None:
        """Record the committable offset of the window."""


class RetrySender(Protocol):
    """Sends failed messages to the broker, to be delivered again later."""

    async def send_back(self, message: ReceivedMessage, delay_level: int, reason: str = "") -> bool:
        """Have a message delivered again; False if that failed."""

    async def send_copy(self, message: ReceivedMessage, reason: str = "") -> bool:
        """Send a copy to the retry topic; False if that failed."""
