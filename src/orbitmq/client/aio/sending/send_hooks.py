"""Hooks of a producer: what runs before and after each try of a send."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from orbitmq.client.core.sending.encoded_messages import EncodedMessages
    from orbitmq.client.core.sending.send_plan import SendMode
    from orbitmq.client.core.sending.send_results import SendResult
    from orbitmq.model.messages import Message
    from orbitmq.model.queues import MessageQueue

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One try of a send, as hooks see it."""

    group: str
    # The messages of a batch; one message otherwise.
    message: Message | Sequence[Message] | EncodedMessages
    # The ids that consumers will know them by; of a batch: all, with commas.
    message_id: str
    queue: MessageQueue
    address: str
    mode: SendMode
    namespace: str
    # Counts the tries of this send from 1.
    attempt: int
    # One of them is set once the try is over; neither, if it was one-way.
    result: SendResult | None = None
    error: Exception | None = None
    # Whatever a hook wants to find again afterwards.
    notes: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class SendHook(Protocol):
    """Sees every try of a send; what it raises is logged, and changes nothing."""

    def before_send(self, context: SendContext) -> None:
        """Run before the request is sent."""

    def after_send(self, context: SendContext) -> None:
        """Run once the try has ended, or a one-way request is on its way."""


@runtime_checkable
class CheckForbiddenHook(Protocol):
    """Decides whether a message may be sent."""

    def check_forbidden(self, context: SendContext) -> None:
        """Raise what the send shall fail with; another try is not made."""


class SendHooks:
    """The hooks of one producer; an object may be of both kinds."""

    def __init__(self, hooks: Sequence[SendHook | CheckForbiddenHook]) -> None:
        self._sending = tuple(hook for hook in hooks if isinstance(hook, SendHook))
        self._checking = tuple(hook for hook in hooks if isinstance(hook, CheckForbiddenHook))
        for hook in hooks:
            if hook not in self._sending and hook not in self._checking:
                raise TypeError(
                    f"{hook!r} is no hook of a producer: it has neither before_send and "
                    "after_send, nor check_forbidden"
                )

    def __bool__(self) -> bool:
        return bool(self._sending or self._checking)

    def before(self, context: SendContext) -> None:
        """Ask whether the message may be sent, and tell that it will be."""
        for checking in self._checking:
            checking.check_forbidden(context)
        for sending in self._sending:
            try:
                sending.before_send(context)
            except Exception:
                log.exception("hook failed before a send topic=%s", context.queue.topic)

    def after(self, context: SendContext) -> None:
        """Tell how the try ended."""
        for sending in self._sending:
            try:
                sending.after_send(context)
            except Exception:
                log.exception("hook failed after a send topic=%s", context.queue.topic)
