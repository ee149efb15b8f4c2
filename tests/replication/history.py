"""What happened to a cluster and its clients: events, in the order in which they were recorded.

Every event gets a number and a time when it is recorded. A call is recorded twice, when it is made
and when it ends; an event at its end holds the number of the first (`send`, `commit`), or how many
events there were when it was made (`asked`): what the server did happened in between.

Values are what bodies say: every send has another one, so a value read is a send identified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar


class Queue(NamedTuple):
    """One queue of a master and its slaves."""

    broker: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened."""

    number: int = -1
    ms: float = 0.0

    def words(self) -> str:
        """Say what happened."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"#{self.number} at {self.ms:.0f} ms: {self.words()}"


# --- producers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SendInvoked(Event):
    """A producer begins to send; the number of this event names the send."""

    producer: str
    value: str

    def words(self) -> str:
        return f"{self.producer} sends {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAcked(Event):
    """A server says that it stored the message, where, and how safely."""

    send: int
    producer: str
    value: str
    queue: Queue
    offset: int
    server: str
    message_id: str = ""
    status: str = "OK"
    # Whether the receipt says that the message is on disk.
    flushed: bool = True
    # How many servers hold it, as the receipt says, and where in their logs.
    copies: int = 1
    physical_offset: int = -1
    # How often it was sent; more than once, it may be stored more than once.
    tries: int = 1

    def words(self) -> str:
        safety = "on disk" if self.flushed else "in memory"
        return (
            f"{self.server} acknowledges {self.value} to {self.producer} at offset {self.offset} of "
            f"{self.queue}: {self.status}, {safety}, {self.copies} "
            f"{'copy' if self.copies == 1 else 'copies'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFailed(Event):
    """The message was surely not stored."""

    send: int
    value: str
    reason: str = ""

    def words(self) -> str:
        return f"the send of {self.value} fails, nothing is stored: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendUnknown(Event):
    """Nobody knows whether the message was stored."""

    send: int
    value: str
    reason: str = ""

    def words(self) -> str:
        return f"the send of {self.value} ends without an answer: {self.reason}"


# --- readers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRead(Event):
    """A reader finds a message at an offset."""

    reader: str
    queue: Queue
    offset: int
    value: str
    server: str
    asked: int

    def words(self) -> str:
        return f"{self.reader} reads {self.value} at offset {self.offset} of {self.queue} from {self.server}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanEnded(Event):
    """A reader has read all that one server shows of a queue, each message as an event before.

    A final scan is made when all is healed: what it does not show is lost.
    """

    reader: str
    queue: Queue
    low: int
    end: int
    server: str
    asked: int
    final: bool = False

    def words(self) -> str:
        last = "finally " if self.final else ""
        return (
            f"{self.reader} {last}has read {self.queue} from {self.server}: offsets {self.low} to "
            f"{self.end - 1}"
            if self.end > self.low
            else f"{self.reader} {last}finds {self.queue} empty at {self.server}"
        )


# --- consumers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(Event):
    """A member of a group takes a queue, and reads it from an offset on."""

    group: str
    member: str
    queue: Queue
    start: int

    def words(self) -> str:
        return f"{self.member} of {self.group} takes {self.queue} from offset {self.start} on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered(Event):
    """A member of a group gets a message."""

    group: str
    member: str
    queue: Queue
    offset: int
    value: str
    server: str
    asked: int

    def words(self) -> str:
        return (
            f"{self.member} of {self.group} gets {self.value} at offset {self.offset} of "
            f"{self.queue} from {self.server}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInvoked(Event):
    """A member begins to commit an offset; the number of this event names the commit."""

    group: str
    member: str
    queue: Queue
    offset: int

    def words(self) -> str:
        return f"{self.member} of {self.group} commits offset {self.offset} of {self.queue}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAcked(Event):
    """A server says that it has the committed offset."""

    commit: int
    group: str
    member: str
    queue: Queue
    offset: int
    server: str

    def words(self) -> str:
        return (
            f"{self.server} acknowledges to {self.member} of {self.group} offset {self.offset} of "
            f"{self.queue}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedSeen(Event):
    """A server is asked what a group has committed; 0 stands for nothing."""

    group: str
    queue: Queue
    offset: int
    server: str
    asked: int

    def words(self) -> str:
        return f"{self.server} says that {self.group} has committed {self.offset} of {self.queue}"


# --- servers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent(Event):
    """Something that happens to one server of a broker's master and slaves."""

    server: str
    broker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(ServerEvent):
    """A server serves."""

    def words(self) -> str:
        return f"{self.server} has started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(ServerEvent):
    """A server was stopped in good order."""

    def words(self) -> str:
        return f"{self.server} was stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed(ServerEvent):
    """A server's process was killed; what it wrote is with the system."""

    def words(self) -> str:
        return f"{self.server} was killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(ServerEvent):
    """A server's process stands still; its connections stay open."""

    def words(self) -> str:
        return f"{self.server} was paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(ServerEvent):
    """A paused server goes on."""

    def words(self) -> str:
        return f"{self.server} goes on"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLost(ServerEvent):
    """A server's machine lost power: what was not synced may be gone."""

    flushes_first: bool

    def words(self) -> str:
        mode = "SYNC_FLUSH" if self.flushes_first else "ASYNC_FLUSH"
        return f"{self.server} lost power under {mode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEndSeen(ServerEvent):
    """A server says where its log ends, whether or not it shows what is there."""

    end: int
    asked: int

    def words(self) -> str:
        return f"{self.server} has a log that ends at {self.end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LagBegan(ServerEvent):
    """A slave can no longer follow its master, or falls behind."""

    def words(self) -> str:
        return f"{self.server} begins to lag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed(ServerEvent):
    """A server follows the present master, and holds what that holds."""

    def words(self) -> str:
        return f"{self.server} follows its master"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced(ServerEvent):
    """A master that was replaced has learnt of it."""

    def words(self) -> str:
        return f"{self.server} knows that it is no longer the master"


class Loss(NamedTuple):
    """What a promotion announces for a queue: the offsets from `kept` to below `end` are lost.

    Without an end nobody knows what the old master had: anything above may be lost.
    """

    queue: Queue
    kept: int
    end: int | None

    def __str__(self) -> str:
        if self.end == self.kept:
            return f"nothing of {self.queue}"
        to = "on" if self.end is None else f"to {self.end - 1}"
        return f"{self.queue} from offset {self.kept} {to}"

    def includes(self, offset: int) -> bool:
        """Whether an offset is announced as lost."""
        return offset >= self.kept and (self.end is None or offset < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted(ServerEvent):
    """A slave became the master; with what was announced, for every queue that the broker has."""

    deposed: str
    announced: tuple[Loss, ...] = ()
    # Whether no other slave had more.
    is_longest: bool = False

    def words(self) -> str:
        losses = ", ".join(map(str, self.announced)) or "nothing announced"
        return f"{self.server} takes the place of {self.deposed}, announced as lost: {losses}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionRefused(ServerEvent):
    """A slave was asked to become the master, and refused."""

    def words(self) -> str:
        return f"{self.server} refuses to be promoted"


# --- recording ------------------------------------------------------------------------------------

Recorded = TypeVar("Recorded", bound=Event)


class History(Sequence[Event]):
    """The events so far.

    Threads: one event loop.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._events: list[Event] = []

    def record(self, event: Recorded) -> Recorded:
        """Add an event, and return it with its number and time."""
        numbered = replace(event, number=len(self._events), ms=self._now_ms())
        self._events.append(numbered)
        return numbered

    def announce(
        self, promotion: Promoted, announced: tuple[Loss, ...], *, is_longest: bool
    ) -> None:
        """Note what a promotion announced, once it is known."""
        self._events[promotion.number] = replace(
            promotion, announced=announced, is_longest=is_longest
        )

    def withdraw(self, promotion: Promoted) -> None:
        """Note that a promotion was refused."""
        self._events[promotion.number] = PromotionRefused(
            number=promotion.number,
            ms=promotion.ms,
            server=promotion.server,
            broker=promotion.broker,
        )

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # an event, or a list of them
        return self._events[index]
