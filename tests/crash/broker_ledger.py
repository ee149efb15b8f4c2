"""What the clients of a broker tried, were told and saw, and whether that fits together.

Timers and transactions share one queue. After any crashes, once everything is due and decided:

    a timer            is seen once, and never before its time
    a recalled one     is never seen if the recall was acknowledged
    a committed one    is seen once
    a rolled-back one  is never seen

Only what was acknowledged must be there; what was merely tried may be.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What a broker acknowledged."""

    TIMER = "timer"
    RECALL = "recall"
    HALF = "half"
    END = "end"


class Ack(NamedTuple):
    """An acknowledgement; all it is about is in the log below `log_end`."""

    kind: Kind
    name: str
    log_end: int = 0


class Seen(NamedTuple):
    """A message that a consumer got."""

    queue_offset: int
    name: str
    store_ms: int


@dataclass
class Ledger:
    """One queue's timers and transactions, by name."""

    # Due times of the timers that were sent.
    due_ms: dict[str, int] = field(default_factory=dict)
    recalls: set[str] = field(default_factory=set)
    # Transactions that were begun, and whether their producer decided to commit.
    begun: set[str] = field(default_factory=set)
    commits: dict[str, bool] = field(default_factory=dict)
    acks: list[Ack] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        """Where the consumer resumes."""
        return self.seen[-1].queue_offset + 1 if self.seen else 0

    def see(self, message: Seen) -> None:
        """Note the next message of the queue."""
        expected = self.next_offset
        assert message.queue_offset == expected, f"{message} came instead of number {expected}"
        self.seen.append(message)

    def acked(self, kind: Kind) -> set[str]:
        """The names of what was acknowledged."""
        return {ack.name for ack in self.acks if ack.kind is kind}

    def check(self) -> Counter[str]:
        """Compare what was seen in the end with what was tried; returns what there was of each."""
        counts = Counter(message.name for message in self.seen)
        twice = [name for name, count in counts.items() if count > 1]
        assert not twice, f"seen twice: {twice} in {self.seen}"
        early = [m for m in self.seen if m.store_ms < self.due_ms.get(m.name, 0)]
        assert not early, f"delivered early: {early}"
        recalled = self.acked(Kind.RECALL) & counts.keys()
        assert not recalled, f"recalled, and seen: {sorted(recalled)}"
        rolled_back = {name for name, commits in self.commits.items() if not commits}
        assert not rolled_back & counts.keys(), (
            f"rolled back, and seen: {rolled_back & counts.keys()}"
        )
        unknown = counts.keys() - self.due_ms.keys() - self.commits.keys()
        assert not unknown, f"seen, but never committed: {sorted(unknown)}"
        timers = self.acked(Kind.TIMER) - self.recalls
        committed = {name for name in self.acked(Kind.HALF) if self.commits.get(name)}
        lost = (timers | committed) - counts.keys()
        assert not lost, f"lost: {sorted(lost)}"
        return Counter(
            {
                "timers": len(self.due_ms.keys() & counts.keys()),
                "recalls": len(self.acked(Kind.RECALL)),
                "commits": len(self.commits.keys() & counts.keys()),
                "rollbacks": len(rolled_back & self.acked(Kind.HALF)),
            }
        )
