"""Hooks of a producer, which run before and after each attempt of a send."""

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
    """One attempt of a send, as hooks see it."""

    group: str
    # One message, or those of a batch.
    message: Message | Sequence[Message] | EncodedMessages
    # The unique id that consumers see; for a batch all ids, separated by commas.
    message_id: str
    queue: MessageQueue
    address: str
    mode: SendMode
    namespace: str
    # The number of this attempt, from 1.
    attempt: int
    # One of the two is set after the attempt; neither if the send was one-way.
    result: SendResult | None = None
    error: Exception | None = None
    # For the hook's own use, from `before_send` to `after_send`.
    notes: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class SendHook(Protocol):
    """Sees every attempt of a send; its errors are logged and change nothing."""

    def before_send(self, context: SendContext) -> None:
        """Run before the request is sent."""

    def after_send(self, context: SendContext) -> None:
        """Run after the attempt, or after a one-way request was written."""


@runtime_checkable
class CheckForbiddenHook(Protocol):
    """Decides whether a message may be sent."""

    def check_forbidden(self, context: SendContext) -> None:
        """Raise an error to forbid the send; it fails with that error and is not retried."""


class SendHooks:
    """The hooks of one producer; one object may be both kinds."""

    def __init__(self, hooks: Sequence[SendHook | CheckForbiddenHook]) -> None:
        self._all = tuple(hooks)
        self._sending = tuple(hook for hook in hooks if isinstance(hook, SendHook))
        self._checking = tuple(hook for hook in hooks if isinstance(hook, CheckForbiddenHook))
        for hook in hooks:
            if hook not in self._sending and hook not in self._checking:
                raise TypeError(
                    f"{hook!r} is not a producer hook: it needs before_send and after_send, "
                    "or check_forbidden"
                )

    def __bool__(self) -> bool:
        return bool(self._sending or self._checking)

    def with_hook(self, hook: SendHook) -> SendHooks:
        """Return these hooks and one more, which runs last."""
        return SendHooks((*self._all, hook))

    def before(self, context: SendContext) -> None:
        """Run the checks, which may forbid the send, then the hooks before it."""
        for checking in self._checking:
            checking.check_forbidden(context)
        for sending in self._sending:
            try:
                sending.before_send(context)
            except Exception:
                log.exception("hook failed before a send topic=%s", context.queue.topic)

    def after(self, context: SendContext) -> None:
        """Run the hooks after an attempt."""
        for sending in self._sending:
            try:
                sending.after_send(context)
            except Exception:
                log.exception("hook failed after a send topic=%s", context.queue.topic)
