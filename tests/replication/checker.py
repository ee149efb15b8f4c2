"""Checks a history: which promises of a replicated cluster it breaks, and by which events.

What must hold is listed in `findings.Rule`. Sends without an answer may appear any number of times.
Nothing here reads a clock, a file or a socket: a history is all it knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.replication import message_rules, offset_rules
from tests.replication.findings import Promises, Violation
from tests.replication.history import Event

_PROMISES = Promises()


def violations(history: Sequence[Event], promises: Promises = _PROMISES) -> list[Violation]:
    """Find every broken promise, rule by rule."""
    messages = message_rules.Messages(history)
    found = [violation for rule in message_rules.RULES for violation in rule(messages)]
    found += offset_rules.committed(messages, promises)
    found += offset_rules.delivered(messages)
    return found
