"""What a tail would send: messages by topic, and those left out by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbitmq.cli.output import time_text

if TYPE_CHECKING:
    from orbitmq.cli.cut_tails.sent_messages import SentMessages
    from orbitmq.cli.cut_tails.tail_messages import LeftOut, Tail


@dataclass(slots=True, eq=False)
class TopicCount:
    """The messages of one topic."""

    messages: int = 0
    delayed: int = 0
    sent: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def note_time(self, store_ms: int) -> None:
        """Take the time of a message into account."""
        self.first_ms = min(self.first_ms or store_ms, store_ms)
        self.last_ms = max(self.last_ms, store_ms)


@dataclass(slots=True, eq=False)
class Survey:
    """What is in a tail."""

    topics: dict[str, TopicCount] = field(default_factory=dict)
    left_out: Counter[LeftOut] = field(default_factory=Counter)

    @property
    def wanted(self) -> int:
        """How many are to be sent."""
        return sum(one.messages for one in self.topics.values())

    @property
    def sent(self) -> int:
        """How many were sent before."""
        return sum(one.sent for one in self.topics.values())

    @property
    def first_ms(self) -> int:
        """When the first of them was stored; 0 if there is none."""
        return min((one.first_ms for one in self.topics.values()), default=0)

    @property
    def last_ms(self) -> int:
        """When the last of them was stored; 0 if there is none."""
        return max((one.last_ms for one in self.topics.values()), default=0)

    def rows(self) -> list[dict[str, object]]:
        """Describe each topic in a row."""
        return [
            {
                "topic": topic,
                "messages": one.messages,
                "delayed": one.delayed,
                "sent_before": one.sent,
                "first_stored": time_text(one.first_ms),
                "last_stored": time_text(one.last_ms),
            }
            for topic, one in sorted(self.topics.items())
        ]


def survey(tail: Tail, sent: SentMessages, topics: Collection[str] = ()) -> Survey:
    """Count what is to be sent of some topics, or of all."""
    found = Survey()
    for message in tail:
        if message.left_out is not None:
            found.left_out[message.left_out] += 1
            continue
        if topics and message.topic not in topics:
            continue
        count = found.topics.setdefault(message.topic, TopicCount())
        count.note_time(message.stored.store_ms)
        if message.offset in sent.offsets:
            count.sent += 1
        else:
            count.messages += 1
            count.delayed += message.is_delayed
    return found
