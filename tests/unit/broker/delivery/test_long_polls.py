"""Long polls: held, tried again when their queue grows, answered at their deadline."""

from __future__ import annotations

from dataclasses import dataclass, field

from orbitmq.broker.delivery.long_polls import LongPolls
from orbitmq.broker.delivery.rounds import SLICE_MS, Rounds
from orbitmq.clock import ManualClock, settle
from tests.waiting import until


@dataclass(eq=False)
class Peer:
    closed: bool = False


@dataclass(eq=False)
class Held:
    topic: str = "orders"
    queue_id: int = 0
    deadline_ms: float = 0.0
    connection: Peer = field(default_factory=Peer)


@dataclass(eq=False)
class Grown:
    topic: str = "orders"
    queue_id: int = 0


class Answers:
    """Answers pulls in `ready`, and all on their last try."""

    def __init__(self) -> None:
        self.ready: list[Held] = []
        self.tried: list[tuple[Held, bool]] = []
        self.released: list[Held] = []

    def __call__(self, pull: Held, is_last: bool) -> bool:  # noqa: FBT001  # a callback
        self.tried.append((pull, is_last))
        return is_last or pull in self.ready


def _polls(clock: ManualClock, answers: Answers, held_max: int = 100) -> LongPolls[Held]:
    return LongPolls(
        answer=answers,
        release=answers.released.append,
        held_max=lambda: held_max,
        rounds=Rounds(clock),
        clock=clock,
    )


async def test_growth_of_a_queue_wakes_only_its_own_pulls() -> None:
    clock, answers = ManualClock(), Answers()
    polls = _polls(clock, answers)
    far = clock.monotonic_ms() + 10_000
    mine, filtered, other = Held(deadline_ms=far), Held(deadline_ms=far), Held(queue_id=1)
    other.deadline_ms = far
    for pull in (mine, filtered, other):
        assert polls.hold(pull)
    answers.ready = [mine]

    polls.wake([Grown()])
    polls.wake([Grown()])
    await settle()

    assert [(pull, last) for pull, last in answers.tried] == [(mine, False), (filtered, False)]
    assert len(polls) == 2


async def test_a_pull_is_answered_at_its_deadline() -> None:
    clock, answers = ManualClock(), Answers()
    polls = _polls(clock, answers)
    soon, late = Held(), Held()
    soon.deadline_ms, late.deadline_ms = clock.monotonic_ms() + 100, clock.monotonic_ms() + 500
    polls.hold(soon)
    polls.hold(late)

    await clock.advance(100)
    polls.expire()

    assert answers.tried == [(soon, True)]
    assert len(polls) == 1


async def test_a_pull_whose_connection_is_closed_is_dropped() -> None:
    clock, answers = ManualClock(), Answers()
    polls = _polls(clock, answers)
    for n in range(50):
        far_ms = clock.monotonic_ms() + 10_000 + n * 100
        polls.hold(Held(connection=Peer(closed=True), deadline_ms=far_ms))

    for _ in range(10):
        polls.expire()

    assert len(polls) == 0
    assert not answers.tried


async def test_held_pulls_are_bounded() -> None:
    polls = _polls(ManualClock(), Answers(), held_max=1)

    assert polls.hold(Held())
    assert not polls.hold(Held())


async def test_closing_answers_all_pulls_and_holds_no_new_ones() -> None:
    clock, answers = ManualClock(), Answers()
    polls = _polls(clock, answers)
    pull = Held(deadline_ms=clock.monotonic_ms() + 60_000)
    polls.hold(pull)

    polls.close()

    assert answers.tried == [(pull, True)]
    assert not polls.hold(Held())


async def test_a_pull_that_fails_does_not_affect_others() -> None:
    clock, answers = ManualClock(), Answers()
    bad, good = (Held(deadline_ms=clock.monotonic_ms() + 60_000) for _ in range(2))

    def answer(pull: Held, is_last: bool) -> bool:  # noqa: FBT001  # a callback
        if pull is bad:
            raise RuntimeError("broken")
        return answers(pull, is_last)

    polls = LongPolls[Held](
        answer=answer,
        release=answers.released.append,
        held_max=lambda: 100,
        rounds=Rounds(clock),
        clock=clock,
    )
    polls.hold(bad)
    polls.hold(good)
    answers.ready = [good]

    polls.wake([Grown()])
    await settle()

    assert answers.tried == [(good, False)]
    assert answers.released == [bad, good]
    assert len(polls) == 0


class BusyClock(ManualClock):
    """A clock that also moves while the loop is busy."""

    def pass_ms(self, ms: float) -> None:
        self._now_ms += ms


async def test_a_connection_with_many_slow_pulls_delays_others_by_few_of_them() -> None:
    clock = BusyClock()

    class Slow(Answers):
        """Takes a third of a slice for each pull."""

        def __call__(self, pull: Held, is_last: bool) -> bool:  # noqa: FBT001  # a callback
            clock.pass_ms(SLICE_MS / 3)
            return super().__call__(pull, is_last)

    answers = Slow()
    polls = _polls(clock, answers, held_max=1000)
    hostile, healthy = Peer(), Peer()
    far = clock.monotonic_ms() + 60_000
    for _ in range(500):
        polls.hold(Held(deadline_ms=far, connection=hostile))
    mine = Held(deadline_ms=far, connection=healthy)
    polls.hold(mine)

    polls.wake([Grown()])
    await until(lambda: len(answers.tried) == 501)

    assert answers.tried.index((mine, False)) <= 6


async def test_expired_pulls_are_answered_in_slices() -> None:
    clock = BusyClock()
    turns: list[int] = []

    class Slow(Answers):
        """Takes a slice for each pull."""

        def __call__(self, pull: Held, is_last: bool) -> bool:  # noqa: FBT001  # a callback
            clock.pass_ms(SLICE_MS + 1)
            return super().__call__(pull, is_last)

    answers = Slow()
    polls = _polls(clock, answers)
    for _ in range(3):
        polls.hold(Held(deadline_ms=clock.monotonic_ms()))

    polls.expire()
    while len(polls):
        turns.append(len(answers.tried))
        await settle(1)

    assert turns[0] == 1
    assert len(answers.released) == 3
