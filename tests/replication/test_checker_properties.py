"""The checker passes random legal histories, and finds whatever is then changed in them.

A small model of a cluster makes the histories: a master and a slave as lists of values, clients that
send, read and commit, kills, power losses and promotions. It never breaks a promise. A mutation then
changes one event so that exactly one promise is broken.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.replication.checker import violations
from tests.replication.findings import Promises, Rule
from tests.replication.history import (
    CommittedSeen,
    Event,
    History,
    MessageRead,
    Promoted,
    ScanEnded,
    SendAcked,
    SendFailed,
    SendUnknown,
)
from tests.replication.stories import MASTER, SLAVE, Story, texts

PROMISES = Promises(persist_interval_ms=500, sync_interval_ms=800, slack_ms=100)
STEPS_MAX = 60


class Model:
    """A queue of a master and a slave that keep their promises."""

    def __init__(self, chance: random.Random, *, flushes_first: bool) -> None:
        self.chance = chance
        self.flushes_first = flushes_first
        self.story = Story()
        self.logs: dict[str, list[str]] = {MASTER: [], SLAVE: []}
        self.master, self.slave = MASTER, SLAVE
        self.follows = True
        # How many values of the master's log are on disk, under ASYNC_FLUSH.
        self.flushed = 0
        self.committed = 0
        self.saved: list[tuple[float, int]] = [(0.0, 0)]
        self.names = 0
        self.story.assign()

    def run(self, steps: int) -> History:
        weights = {
            self.send: 6,
            self.fail: 2,
            self.unknown: 2,
            self.read: 2,
            self.consume: 3,
            self.kill: 1,
            self.lose_power: 1,
            self.copy: 2,
            self.lag: 2,
            self.promote: 1,
        }
        for _ in range(steps):
            self.story.wait(self.chance.randrange(200))
            (step,) = self.chance.choices(list(weights), list(weights.values()))
            step()
        self.story.end(*self.logs[self.master], server=self.master)
        return self.story.history

    def _name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def _store(self, value: str) -> int:
        self.logs[self.master].append(value)
        if self.follows:
            self.logs[self.slave] = list(self.logs[self.master])
        return len(self.logs[self.master]) - 1

    def send(self) -> None:
        send = self.story.begin(value := self._name())
        self.story.ack(
            send,
            self._store(value),
            server=self.master,
            flushed=self.flushes_first,
            copies=2 if self.follows else 1,
        )

    def fail(self) -> None:
        self.story.fail(self._name())

    def unknown(self) -> None:
        value = self._name()
        self.story.lose_answer(value)
        for _ in range(self.chance.randrange(3)):
            self._store(value)

    def read(self) -> None:
        server = self.chance.choice([self.master, self.slave])
        self.story.scan(*self.logs[server], server=server, reader=f"r{self.chance.randrange(2)}")

    def copy(self) -> None:
        """The slave follows again."""
        self.follows = True
        self.logs[self.slave] = list(self.logs[self.master])
        self.story.follow(self.slave)

    def lag(self) -> None:
        if self.follows:
            self.follows = False
            self.story.lag(self.slave)

    def consume(self) -> None:
        log = self.logs[self.master]
        start = min(self.committed, len(log))
        self.story.assign(start=start)
        self.story.deliver(*log[start:], first=start, server=self.master)
        self.committed = len(log)
        self.saved.append((self.story.now_ms, self.committed))
        self.story.commit(self.committed, server=self.master)
        self.story.committed(self.committed, server=self.master)

    def kill(self) -> None:
        self.story.kill(self.master)
        self._forget(PROMISES.persist_interval_ms)

    def lose_power(self) -> None:
        # With a slave that holds more than its master was left with, an operator has to decide.
        if self.flushes_first or self.follows:
            self.story.lose_power(self.master, flushes_first=self.flushes_first)
            self._forget(PROMISES.persist_interval_ms)
            return
        kept = self.chance.randrange(len(self.logs[self.master]) + 1)
        if kept >= len(self.logs[self.slave]):
            self.story.lose_power(self.master, flushes_first=False)
            self.logs[self.master] = self.logs[self.master][:kept]
            self._forget(PROMISES.persist_interval_ms)
            self._go_back()

    def _forget(self, age_ms: float) -> None:
        """Fall back to the newest committed offset that is older than this."""
        old = [offset for ms, offset in self.saved if ms <= self.story.now_ms - age_ms]
        self.committed = old[-1] if old else 0
        self.saved = [(self.story.now_ms - age_ms, self.committed)]
        self.story.committed(self.committed, server=self.master)

    def _go_back(self) -> None:
        """A consumer that is beyond the end of the queue goes back to it."""
        if self.committed > (end := len(self.logs[self.master])):
            self.committed = end
            self.saved = [(0.0, end)]
            self.story.assign(start=end)
            self.story.commit(end, server=self.master)

    def promote(self) -> None:
        kept, end = len(self.logs[self.slave]), len(self.logs[self.master])
        if self.logs[self.master][:kept] != self.logs[self.slave]:
            return
        lost_offsets = self.committed if self.follows else 0
        self.story.promote(kept, end, server=self.slave, deposed=self.master)
        self.master, self.slave = self.slave, self.master
        self.follows = True
        self.logs[self.slave] = list(self.logs[self.master])
        self.story.follow(self.slave)
        self.committed = min(lost_offsets, kept)
        self.saved = [(0.0, self.committed)]
        self._go_back()
        self.story.assign(start=self.committed)
        self.story.commit(self.committed, server=self.master)


@st.composite
def histories(draw: st.DrawFn) -> tuple[History, random.Random]:
    chance = random.Random(draw(st.integers(0, 2**32)))
    model = Model(chance, flushes_first=draw(st.booleans()))
    return model.run(draw(st.integers(1, STEPS_MAX))), chance


@given(histories())
def test_a_legal_history_passes(made: tuple[History, random.Random]) -> None:
    history, _ = made

    assert texts(violations(history, PROMISES)) == ""


# --- mutations ------------------------------------------------------------------------------------


def _last_scan(events: list[Event]) -> list[MessageRead]:
    end = events[-1]
    assert isinstance(end, ScanEnded)
    return [e for e in events[end.asked :] if isinstance(e, MessageRead)]


def _acked_at_last(events: list[Event]) -> dict[int, SendAcked]:
    """The acknowledged messages that the final scan shows at their offsets, on disk or safe."""
    shown = {read.offset: read.value for read in _last_scan(events)}
    return {
        event.offset: event
        for event in events
        if isinstance(event, SendAcked) and shown.get(event.offset) == event.value and event.flushed
    }


def _lose_a_message(events: list[Event], chance: random.Random) -> bool:
    kept = _acked_at_last(events)
    if not kept:
        return False
    offset = chance.choice(list(kept))
    gone = next(read for read in _last_scan(events) if read.offset == offset)
    events[gone.number] = replace(gone, reader="somebody else")
    return True


def _lose_the_tail(events: list[Event], chance: random.Random) -> bool:
    del chance
    kept = _acked_at_last(events)
    end = events[-1]
    assert isinstance(end, ScanEnded)
    if not kept:
        return False
    cut = max(kept)
    for read in _last_scan(events):
        if read.offset >= cut:
            events[read.number] = replace(read, reader="somebody else")
    events[-1] = replace(end, end=cut)
    return True


def _change_a_value(events: list[Event], chance: random.Random) -> bool:
    reads = _last_scan(events)
    if len(reads) < 2:
        return False
    read, other = chance.sample(reads, 2)
    if read.value == other.value:
        return False
    # Another reader, at the same moment.
    events.insert(-1, replace(read, value=other.value, reader="another", number=len(events) - 1))
    events[-1] = replace(events[-1], number=len(events) - 1)
    return True


def _let_a_failure_appear(events: list[Event], chance: random.Random) -> bool:
    unknown = [e for e in events if isinstance(e, SendUnknown)]
    reads = {read.value for read in _last_scan(events)}
    candidates = [e for e in unknown if e.value in reads]
    if not candidates:
        return False
    chosen = chance.choice(candidates)
    events[chosen.number] = SendFailed(
        number=chosen.number, ms=chosen.ms, send=chosen.send, value=chosen.value
    )
    return True


def _let_an_offset_fall(events: list[Event], chance: random.Random) -> bool:
    seen = [
        (before, event)
        for before, event in itertools.pairwise(events)
        if isinstance(event, CommittedSeen)
        and event.offset > 0
        # Right after its commit was acknowledged, rather than after a crash.
        and type(before).__name__ == "CommitAcked"
    ]
    if not seen:
        return False
    _, chosen = chance.choice(seen)
    events[chosen.number] = replace(chosen, offset=chosen.offset - 1)
    return True


def _announce_too_much(events: list[Event], chance: random.Random) -> bool:
    kept = _acked_at_last(events)
    promotions = [
        (event, loss, [ack for ack in kept.values() if ack.number < event.number])
        for event in events
        if isinstance(event, Promoted)
        for loss in event.announced
    ]
    candidates = [each for each in promotions if each[2]]
    if not candidates:
        return False
    event, loss, acks = chance.choice(candidates)
    first = min(ack.offset for ack in acks)
    events[event.number] = replace(
        event, announced=(loss._replace(kept=first, end=max(loss.kept, loss.end or 0)),)
    )
    return True


MUTATIONS: dict[Callable[[list[Event], random.Random], bool], set[Rule]] = {
    _lose_a_message: {Rule.KEPT},
    _lose_the_tail: {Rule.KEPT},
    _change_a_value: {Rule.ONE_VALUE},
    _let_a_failure_appear: {Rule.FAILED},
    _let_an_offset_fall: {Rule.COMMITTED},
    _announce_too_much: {Rule.ANNOUNCED},
}


@given(histories(), st.sampled_from(list(MUTATIONS)))
def test_a_mutation_is_found(
    made: tuple[History, random.Random],
    mutate: Callable[[list[Event], random.Random], bool],
) -> None:
    history, chance = made
    events = list(history)
    if not mutate(events, chance):
        return

    found = {violation.rule for violation in violations(events, PROMISES)}

    assert found >= MUTATIONS[mutate]
