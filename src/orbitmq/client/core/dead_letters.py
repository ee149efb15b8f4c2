"""Dead letters: messages that a group gave up on, and what is known of the cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.model import property_names
from orbitmq.model.names import DEAD_LETTER_PREFIX

if TYPE_CHECKING:
    from orbitmq.client.core.consuming.received_message import ReceivedMessage


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in the dead-letter topic of a group."""

    message: ReceivedMessage

    @property
    def group(self) -> str:
        """The group that gave up on it."""
        return self.message.stored_queue.topic.removeprefix(DEAD_LETTER_PREFIX)

    @property
    def topic(self) -> str:
        """The topic that it was first sent to; empty if that is not known."""
        properties = self.message.properties
        return (
            properties.get(property_names.RETRY_TOPIC)
            or properties.get(property_names.DEAD_LETTER_ORIGIN_TOPIC)
            or ""
        )

    @property
    def failures(self) -> int:
        """How often the group failed to consume it."""
        return self.message.reconsume_times

    @property
    def cause(self) -> str:
        """Why the last attempt failed, as far as known.

        Our consumers report it, and our brokers keep it, as they do that a message was rejected;
        otherwise only the number of failures is known.
        """
        reason = self.message.properties.get(property_names.FAILURE_REASON)
        times = "once" if self.failures == 1 else f"{self.failures} times"
        return reason or f"failed {times}"

    @property
    def ids(self) -> tuple[str, str]:
        """The id that its producer gave it, and the one that says where it is stored."""
        return self.message.message_id, self.message.offset_message_id

    def matches(self, *, key: str = "", cause: str = "") -> bool:
        """Whether it has a key or id, and a cause that contains a text, in any case."""
        names = {*self.message.keys, *self.ids}
        return (not key or key in names) and cause.casefold() in self.cause.casefold()
