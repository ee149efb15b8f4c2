"""Hooks around the calls of a listener: for tracing, metrics, tests.

A hook runs where the listener runs, in its thread or on the loop, so it must not block the loop of
an async listener. An exception of a hook is logged and has no other effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.consume_results import ConsumeResult
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.model.queues import MessageQueue

log = logging.getLogger(__name__)


class CallOutcome(Enum):
    """How a call of a listener ended; the values are Java's, as traces carry them."""

    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    RAISED = "EXCEPTION"
    TOO_SLOW = "TIME_OUT"


@dataclass(slots=True, kw_only=True)
class ConsumeContext:
    """One call of a listener; the fields after `notes` are set when it has ended."""

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    ordered: bool
    # Lets a hook keep values from `before_consume` to `after_consume`.
    notes: dict[str, object] = field(default_factory=dict)
    result: ConsumeResult | None = None
    outcome: CallOutcome | None = None
    # What the listener raised, if it did.
    error: BaseException | None = None
    spent_ms: float = 0.0


class ConsumeHook(Protocol):
    """Called before and after every call of a listener."""

    def before_consume(self, context: ConsumeContext) -> None:
        """Called right before the listener."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Called after the listener, with its result."""


def notify_before(hooks: Sequence[ConsumeHook], context: ConsumeContext) -> None:
    """Call every hook before the listener."""
    for hook in hooks:
        _notify(hook.before_consume, context)


def notify_after(hooks: Sequence[ConsumeHook], context: ConsumeContext) -> None:
    """Call every hook after the listener."""
    for hook in hooks:
        _notify(hook.after_consume, context)


def _notify(call: Callable[[ConsumeContext], None], context: ConsumeContext) -> None:
    try:
        call(context)
    except Exception:
        log.exception("consume hook failed hook=%s group=%s", call, context.group)
