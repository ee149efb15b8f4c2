"""What a checker finds: which promise is broken, in words, with the events that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tests.replication.history import Event


class Rule(Enum):
    """What must hold of every history."""

    KEPT = "an acknowledged message is not lost, at its stated durability"
    ONE_VALUE = "an offset of a queue has one value for all readers"
    GROWS = "offsets only grow"
    ORDER = "messages of one producer appear in a queue in the order of their acknowledgements"
    ONCE = "a message acknowledged at its first try is stored once"
    FAILED = "a send that surely failed never appears"
    KNOWN = "what appears was sent"
    ANNOUNCED = "a promotion loses exactly what it announced"
    SAFE = "a promotion loses nothing that the promoted slave has by its receipt"
    FENCED = "a master that knows of its successor acknowledges nothing"
    COMMITTED = "committed offsets never fall, but as far as a crash, promotion or owner explains"
    DELIVERED = "a group's committed offset passes no message that it did not get"
    COPIED = "a message is where its receipt says, also while readers are not shown it"
    COMPLETE = "every queue is read in the end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """How far a cluster may fall back."""

    # How old the committed offsets are at most that a server finds on disk after it was killed.
    persist_interval_ms: float = 5_000
    # How old the committed offsets of a slave are at most while it follows.
    sync_interval_ms: float = 10_000
    # What a busy machine adds to both.
    slack_ms: float = 2_000


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise."""

    rule: Rule
    text: str
    events: tuple[Event, ...]

    def __str__(self) -> str:
        proof = "".join(f"\n    {event}" for event in self.events)
        return f"{self.text} (broken: {self.rule.value}){proof}"
