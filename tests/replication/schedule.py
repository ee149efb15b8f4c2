"""A schedule: which faults come when, chosen by a seed. The same seed chooses the same faults.

Every fault ends by itself, and before the schedule does: servers are started again, links healed.
Two faults never hit one server or one link at a time. In groups with slaves, one may be promoted
besides; what is left of a promotion is done after the span of time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """What is done to a server or a link."""

    KILL = "is killed"
    STOP = "is stopped"
    PAUSE = "stands still"
    CUT = "is cut"
    RESET = "is reset"
    REFUSE = "refuses"
    DELAY = "delays"
    SLOW = "is slow"
    HOLD = "holds"
    DROP_THERE = "drops what is sent to the target"
    DROP_BACK = "drops what is sent back"
    DROP = "drops everything"
    HALF_OPEN_OPENER = "is reset for its opener only"
    HALF_OPEN_TARGET = "is reset for its target only"


OF_SERVERS: Final = (Kind.KILL, Kind.STOP, Kind.PAUSE)
OF_LINKS: Final = tuple(kind for kind in Kind if kind not in OF_SERVERS)
# Without a duration.
AT_ONCE: Final = frozenset({Kind.CUT, Kind.RESET, Kind.HALF_OPEN_OPENER, Kind.HALF_OPEN_TARGET})
_SHORTEST_MS: Final = 100
_LONGEST_MS: Final = 2_000
_SHARE_OF_SERVERS: Final = 0.35
_SHARE_OF_RETURNS: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is done to a server or a link for a while."""

    at_ms: int
    lasts_ms: int
    kind: Kind
    subject: str

    def __str__(self) -> str:
        lasting = f" for {self.lasts_ms} ms" if self.lasts_ms else ""
        return f"at {self.at_ms} ms {self.subject} {self.kind.value}{lasting}"


def schedule(
    seed: int, *, servers: Sequence[str], links: Sequence[str], span_ms: int
) -> list[Fault]:
    """Choose faults for a span of time, in order."""
    chance = random.Random(f"schedule {seed}")
    busy_until = dict.fromkeys([*servers, *links], 0)
    faults: list[Fault] = []
    at_ms = chance.randrange(_SHORTEST_MS, 500)
    while at_ms < span_ms - _SHORTEST_MS:
        of_server = chance.random() < _SHARE_OF_SERVERS
        subject = chance.choice(servers if of_server else links)
        kind = chance.choice(OF_SERVERS if of_server else OF_LINKS)
        longest_ms = min(_LONGEST_MS, span_ms - at_ms)
        lasts_ms = 0 if kind in AT_ONCE else chance.randrange(_SHORTEST_MS, longest_ms + 1)
        if busy_until[subject] <= at_ms:
            faults.append(Fault(at_ms=at_ms, lasts_ms=lasts_ms, kind=kind, subject=subject))
            busy_until[subject] = at_ms + lasts_ms
        at_ms += chance.randrange(50, 800)
    return faults


class Fate(Enum):
    """What becomes of a master before a slave takes its place."""

    KILLED = "is killed"
    STOPPED = "is stopped"
    PAUSED = "stands still"
    CUT_OFF = "is cut off from everybody"
    CUT_FROM_GROUP = "is cut off from its slaves and the name server, not from clients"
    ALIVE = "lives"


# How a slave may lag when it is promoted.
LAGS: Final = (Kind.REFUSE, Kind.SLOW, Kind.HOLD, Kind.DROP_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """A master comes to an end, a slave takes its place, and the old master returns."""

    at_ms: int
    broker: str
    # What is done to the links to the master's log first, and for how long; None for nothing.
    lag: Kind | None
    lag_ms: int
    fate: Fate
    # How long it takes the operator to promote a slave, and the old master to return after that.
    wait_ms: int
    away_ms: int
    # Whether the old master is promoted in its turn, once it follows.
    returns: bool

    def __str__(self) -> str:
        lag = f"its log {self.lag.value} for {self.lag_ms} ms, " if self.lag else ""
        returns = ", and is promoted then" if self.returns else ""
        return (
            f"at {self.at_ms} ms the master of {self.broker}: {lag}it {self.fate.value}, a slave is "
            f"promoted {self.wait_ms} ms later, it returns after {self.away_ms} ms{returns}"
        )


def promotions(seed: int, *, brokers: Sequence[str], span_ms: int) -> list[Promotion]:
    """Choose a promotion for each group."""
    chance = random.Random(f"promotions {seed}")
    return [
        Promotion(
            at_ms=chance.randrange(300, span_ms // 3),
            broker=broker,
            lag=chance.choice((None, *LAGS)),
            lag_ms=chance.randrange(100, 1_000),
            fate=chance.choice(list(Fate)),
            wait_ms=chance.randrange(300),
            away_ms=chance.randrange(1_500),
            returns=chance.random() < _SHARE_OF_RETURNS,
        )
        for broker in brokers
    ]
