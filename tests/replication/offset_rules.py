"""Rules about committed offsets: how far they may fall back, and what they must not pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.replication.findings import Promises, Rule, Violation
from tests.replication.history import (
    Assigned,
    CommitAcked,
    CommitInvoked,
    CommittedSeen,
    Delivered,
    Event,
    Followed,
    Killed,
    LagBegan,
    Paused,
    PowerLost,
    Promoted,
    Queue,
    Resumed,
    SendAcked,
    ServerEvent,
    Started,
)
from tests.replication.lineages import Seen
from tests.replication.message_rules import Messages


@dataclass(slots=True)
class _Known:
    """A committed offset that a server surely has, and the event that says so."""

    offset: int
    event: Event


@dataclass(slots=True)
class _Progress:
    """What is known of one group in one queue."""

    owner: str = ""
    # By server, oldest first.
    known: dict[str, list[_Known]] = field(default_factory=lambda: defaultdict(list))
    # Commits without an answer yet, by number.
    open: dict[int, CommitInvoked] = field(default_factory=dict)
    # When a server became the master, or followed another one: what was asked before says nothing.
    turned: dict[str, int] = field(default_factory=dict)

    def add(self, server: str, offset: int, event: Event, *, asked: int) -> None:
        if asked > self.turned.get(server, -1):
            self.known[server].append(_Known(offset, event))

    def rewind(self, offset: int) -> None:
        """The owner goes back: what was known above does not count any more."""
        for known in self.known.values():
            for each in known:
                each.offset = min(each.offset, offset)

    def fall_back(self, until_ms: float) -> None:
        """All that was learnt since may be lost, by slaves too: they follow their master."""
        for server, known in self.known.items():
            self.known[server] = [each for each in known if each.event.ms <= until_ms]

    def highest(self, server: str, before: int) -> _Known | None:
        """The highest offset that a server surely has, as known at an event."""
        candidates = [each for each in self.known[server] if each.event.number < before]
        return max(candidates, key=lambda each: each.offset, default=None)


def committed(messages: Messages, promises: Promises) -> Iterator[Violation]:
    """Find committed offsets that fell further than anything explains."""
    groups: dict[tuple[str, Queue], _Progress] = defaultdict(_Progress)
    contact = _Contact(promises)
    for event in messages.history:
        contact.note(event)
        if isinstance(event, (Assigned, CommitInvoked, CommitAcked)):
            _note(groups[event.group, event.queue], event)
        elif isinstance(event, CommittedSeen):
            progress = groups[event.group, event.queue]
            yield from _fallen(progress, event, messages.history)
            progress.add(event.server, event.offset, event, asked=event.asked)
        elif isinstance(event, (Killed, PowerLost, Promoted, Followed)):
            for (_, queue), progress in groups.items():
                if queue.broker == event.broker:
                    _note_server(queue, progress, event, contact, promises)


def _note(progress: _Progress, event: Assigned | CommitInvoked | CommitAcked) -> None:
    match event:
        case Assigned():
            progress.owner = event.member
        case CommitInvoked() if event.member == progress.owner:
            progress.open[event.number] = event
            progress.rewind(event.offset)
        case CommitAcked() if progress.open.pop(event.commit, None) is not None:
            progress.add(event.server, event.offset, event, asked=event.commit)


def _note_server(
    queue: Queue,
    progress: _Progress,
    event: Killed | PowerLost | Promoted | Followed,
    contact: _Contact,
    promises: Promises,
) -> None:
    match event:
        case Killed() | PowerLost():
            worked_ms = contact.worked_until(event)
            progress.fall_back(worked_ms - promises.persist_interval_ms - promises.slack_ms)
        case Promoted():
            synced_ms = contact.synced_until(event) - promises.sync_interval_ms - promises.slack_ms
            # A new master lowers committed offsets to the ends of its queues.
            ends = [each.kept for each in event.announced if each.queue == queue]
            progress.known[event.server] = [
                _Known(min([each.offset, *ends]), each.event)
                for each in (
                    *progress.known[event.server],
                    *(one for one in progress.known[event.deposed] if one.event.ms <= synced_ms),
                )
            ]
            progress.turned[event.server] = event.number
        case Followed():
            # What it has now is its master's.
            progress.known.pop(event.server, None)
            progress.turned[event.server] = event.number


def _fallen(
    progress: _Progress, seen: CommittedSeen, history: Sequence[Event]
) -> Iterator[Violation]:
    if seen.asked <= progress.turned.get(seen.server, -1):
        return
    highest = progress.highest(seen.server, seen.asked)
    if highest is None or seen.offset >= highest.offset:
        return
    # The owner's own commits may arrive late.
    if any(commit.offset <= seen.offset for commit in progress.open.values()):
        return
    culprits = [
        event
        for event in history[highest.event.number : seen.number]
        if (
            isinstance(event, CommitInvoked)
            and (event.group, event.queue) == (seen.group, seen.queue)
            and event.offset == seen.offset
        )
        or (isinstance(event, (Killed, PowerLost)) and event.server == seen.server)
        or (isinstance(event, Promoted) and event.server == seen.server)
    ]
    yield Violation(
        Rule.COMMITTED,
        f"the committed offset of {seen.group} in {seen.queue} at {seen.server} fell from "
        f"{highest.offset} to {seen.offset}",
        (highest.event, *culprits, seen),
    )


class _Contact:
    """Until when servers worked, and slaves were in contact with their master."""

    def __init__(self, promises: Promises) -> None:
        # So long a slave must follow until it surely has what its master knew before.
        self._sync_ms = promises.sync_interval_ms + promises.slack_ms
        self._lost_ms: dict[str, float] = {}
        self._followed_ms: dict[str, float] = {}
        self._paused_ms: dict[str, float] = {}

    def note(self, event: Event) -> None:
        match event:
            case LagBegan():
                if self._is_synced(event):
                    self._lost_ms[event.server] = event.ms
                self._followed_ms.pop(event.server, None)
            case Followed():
                self._followed_ms.setdefault(event.server, event.ms)
            case Paused():
                self._paused_ms[event.server] = event.ms
            case Resumed() | Started():
                self._paused_ms.pop(event.server, None)

    def _is_synced(self, event: ServerEvent) -> bool:
        if event.server not in self._lost_ms:
            return True
        followed_ms = self._followed_ms.get(event.server)
        return followed_ms is not None and event.ms - followed_ms >= self._sync_ms

    def worked_until(self, crash: Killed | PowerLost) -> float:
        """When a server wrote something at last: before a pause, if it was killed in one."""
        return self._paused_ms.get(crash.server, crash.ms)

    def synced_until(self, promotion: Promoted) -> float:
        """When a slave learnt something at last."""
        return promotion.ms if self._is_synced(promotion) else self._lost_ms[promotion.server]


def delivered(messages: Messages) -> Iterator[Violation]:
    """Find messages that a group never got, though a server has a higher offset for it."""
    got = {(e.group, e.value) for e in messages.history if isinstance(e, Delivered)}
    start: dict[tuple[str, Queue], int] = {}
    passed: dict[tuple[str, Queue], list[CommitAcked | CommittedSeen]] = defaultdict(list)
    for event in messages.history:
        if isinstance(event, Assigned):
            key = event.group, event.queue
            start[key] = min(start.get(key, event.start), event.start)
        elif isinstance(event, (CommitAcked, CommittedSeen)):
            passed[event.group, event.queue].append(event)
    survivors = _survivors(messages)
    for (group, queue), commits in passed.items():
        for ack in messages.acks:
            if (
                ack.queue != queue
                or ack.offset < start.get((group, queue), 0)
                or ack.value not in survivors
                or (group, ack.value) in got
            ):
                continue
            commit = _commit_above(messages, ack, commits)
            if commit is not None:
                yield Violation(
                    Rule.DELIVERED,
                    f"{group} never got {ack.value} at offset {ack.offset} of {queue}, and "
                    f"its committed offset is {commit.offset}",
                    (ack, commit),
                )
                break


def _commit_above(
    messages: Messages, ack: SendAcked, commits: Sequence[CommitAcked | CommittedSeen]
) -> CommitAcked | CommittedSeen | None:
    """Find a commit that passes a message, at a server that has the message."""
    for commit in commits:
        if commit.number < ack.number or commit.offset <= ack.offset:
            continue
        asked = commit.commit if isinstance(commit, CommitAcked) else commit.asked
        lineages, seen = messages.lineages, Seen(commit.server, asked, commit.number)
        stored = Seen(ack.server, ack.send + 1, ack.number)
        past = lineages.past(ack.queue, ack.offset, seen)
        if past is not None and past == lineages.past(ack.queue, ack.offset, stored):
            return commit
    return None


def _survivors(messages: Messages) -> set[str]:
    """The values that final scans show."""
    return {
        found.value
        for scan in messages.scans
        if scan.final
        for found in messages.found[scan.number].values()
    }
