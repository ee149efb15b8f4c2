"""How transactions end, and what is known of those that were sent."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.client.core.sending.send_results import SendResult
from orbitmq.errors import MessageError, MessageTypeError, SettingsError
from orbitmq.model import property_names
from orbitmq.model.messages import Message
from orbitmq.record.layout import SystemFlag

if TYPE_CHECKING:
    from collections.abc import Mapping


class TransactionState(Enum):
    """How a local transaction ended; a listener and a check function return one of these."""

    COMMIT = "deliver the message"
    ROLLBACK = "discard the message"
    UNKNOWN = "not known yet: the broker will ask"


_OUTCOMES: Final[Mapping[TransactionState, int]] = {
    TransactionState.COMMIT: int(SystemFlag.COMMITTED),
    TransactionState.ROLLBACK: int(SystemFlag.ROLLED_BACK),
    TransactionState.UNKNOWN: 0,
}


class TransactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message that was sent in a transaction."""

    state: TransactionState
    # Where its half message is stored.
    half: SendResult

    @property
    def message_id(self) -> str:
        """The id of the message, which consumers see; it names the transaction, too."""
        return self.half.message_id


def outcome_of(state: TransactionState) -> int:
    """The number that stands for a state on the wire."""
    return _OUTCOMES[state]


def checked_state(state: object, by: str) -> TransactionState:
    """Raise SettingsError unless a function returned a state."""
    if not isinstance(state, TransactionState):
        raise SettingsError(
            f"{by} returned {state!r:.60}, which says nothing about the transaction",
            hint="return TransactionState.COMMIT, ROLLBACK or UNKNOWN",
        )
    return state


def half_message(message: Message, group: str) -> Message:
    """A message marked as part of a transaction; raises MessageError if it cannot be one."""
    if not isinstance(message, Message):
        raise MessageTypeError("message", message, takes="one Message; a batch has no transaction")
    if message.delay_level or message.has_due_time:
        what = f"delay_level={message.delay_level}" if message.delay_level else "a due time"
        raise MessageError(
            f"a message of a transaction cannot be delayed; it has {what}",
            hint="leave out the delay, or send it without a transaction",
        )
    return message.with_reserved(
        {property_names.HALF_MESSAGE: "true", property_names.PRODUCER_GROUP: group}
    )
