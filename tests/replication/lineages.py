"""Where a queue's past may have been cut, and on which side of that an observation is.

A promotion replaces what the old master had above the new one's end; power loss under ASYNC_FLUSH
may take any unsynced tail. Above such a cut one offset may have one value before and another one
after it. Which side an observation belongs to is decided by the server that showed it: the old
master, and slaves that do not yet follow the new one, still show the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tests.replication.history import Event, Followed, Loss, PowerLost, Promoted, Queue


class Side(Enum):
    """Which past an observation shows."""

    BEFORE = "before"
    AFTER = "after"
    # It was made while the cut was.
    EITHER = "either"


class Seen(NamedTuple):
    """Who says something about a queue, and between which two events."""

    server: str
    asked: int
    number: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A promotion, or power lost."""

    event: Promoted | PowerLost
    # From which event on a server shows the new past, for those that do.
    followed: dict[str, int]

    def loss_of(self, queue: Queue) -> Loss | None:
        """What a promotion announced for a queue."""
        if isinstance(self.event, PowerLost):
            return None
        return next((each for each in self.event.announced if each.queue == queue), None)

    def covers(self, queue: Queue, offset: int) -> bool:
        """Whether an offset may have another value afterwards."""
        if queue.broker != self.event.broker:
            return False
        loss = self.loss_of(queue)
        return isinstance(self.event, PowerLost) or (loss is not None and offset >= loss.kept)

    def side(self, seen: Seen) -> Side:
        """Which past an observation shows."""
        since = self.followed.get(seen.server)
        if since is None or seen.number < since:
            return Side.BEFORE
        return Side.AFTER if seen.asked > since else Side.EITHER


class Lineages:
    """All cuts of a history."""

    def __init__(self, history: Sequence[Event]) -> None:
        self.cuts: list[Cut] = []
        servers = {name for event in history if (name := getattr(event, "server", ""))}
        for event in history:
            if isinstance(event, Promoted):
                # The first time counts.
                followed = {
                    later.server: later.number
                    for later in reversed(history[event.number :])
                    if isinstance(later, Followed) and later.broker == event.broker
                } | {event.server: event.number}
                self.cuts.append(Cut(event, followed))
            elif isinstance(event, PowerLost) and not event.flushes_first:
                self.cuts.append(Cut(event, dict.fromkeys(servers, event.number)))

    def past(self, queue: Queue, offset: int, seen: Seen) -> tuple[Side, ...] | None:
        """Name the past that an observation of an offset shows; None if that cannot be told."""
        return _sides([cut for cut in self.cuts if cut.covers(queue, offset)], seen)

    def past_of_server(self, queue: Queue, seen: Seen) -> tuple[Side, ...] | None:
        """Name the past of a whole queue that an observation shows; None if that cannot be told."""
        return _sides([cut for cut in self.cuts if cut.event.broker == queue.broker], seen)


def _sides(cuts: list[Cut], seen: Seen) -> tuple[Side, ...] | None:
    sides = tuple(cut.side(seen) for cut in cuts)
    return None if Side.EITHER in sides else sides
