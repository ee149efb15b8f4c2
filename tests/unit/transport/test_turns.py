"""Turns of connections: slow ones wait in a row, others never do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from orbitmq.clock import settle
from orbitmq.transport.turns import SLOW_MS, SlowTurns
from tests.busy_clock import BusyClock


class Row:
    """A row whose turns take as long as a test says."""

    def __init__(self) -> None:
        self.clock = BusyClock(0)
        self.turns = SlowTurns(self.clock, used_ms=self.clock.monotonic_ms)
        self.done: list[str] = []

    def note_others(self) -> None:
        """Have another connection take a turn outside the row."""
        self.turns.others_active_ms = self.clock.monotonic_ms()

    def turn(self, name: str, *, takes_ms: float) -> Callable[[], None]:
        def take() -> None:
            self.done.append(name)
            self.clock.pass_ms(takes_ms)
            self.turns.charge(takes_ms)

        return take


async def test_the_loop_serves_others_between_two_slow_turns() -> None:
    row = Row()
    loop = asyncio.get_running_loop()

    def take() -> None:
        row.done.append("slow")
        loop.call_soon(row.done.append, "other")

    for _ in range(3):
        row.turns.join(take)
    await settle()

    assert row.done == ["slow", "other"] * 3


async def test_while_others_are_active_the_row_pauses_three_times_as_long_as_a_turn_was_slow() -> (
    None
):
    row = Row()
    row.turns.join(row.turn("first", takes_ms=SLOW_MS + 20))
    row.turns.join(row.turn("second", takes_ms=0))
    row.note_others()
    await settle()

    row.note_others()
    await row.clock.advance(59)
    assert row.done == ["first"]

    await row.clock.advance(1)
    await settle()
    assert row.done == ["first", "second"]


async def test_the_row_does_not_pause_for_nobody() -> None:
    row = Row()
    for name in ("first", "second", "third"):
        row.turns.join(row.turn(name, takes_ms=1000))

    await settle()

    assert row.done == ["first", "second", "third"]


async def test_the_row_goes_on_soon_after_the_last_other_has_left() -> None:
    row = Row()
    row.turns.join(row.turn("first", takes_ms=10_000))
    row.turns.join(row.turn("second", takes_ms=0))
    await settle()
    row.note_others()
    await settle()

    await row.clock.advance(400)
    await settle()

    assert row.done == ["first", "second"]


async def test_slow_turns_of_many_connections_leave_three_quarters_of_the_time_to_others() -> None:
    row = Row()

    def again() -> None:
        row.clock.pass_ms(50)
        row.turns.charge(50)
        row.done.append("slow")
        row.turns.join(again)

    for _ in range(20):
        row.turns.join(again)
    for _ in range(400):
        row.note_others()
        await row.clock.advance(10)

    busy_ms = 50 * len(row.done)
    assert 0.2 < busy_ms / row.clock.monotonic_ms() < 0.3


async def test_a_turn_that_fails_does_not_stop_the_row() -> None:
    row = Row()
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def fail() -> None:
        raise OSError

    row.turns.join(fail)
    row.turns.join(row.turn("next", takes_ms=0))
    await settle()

    assert row.done == ["next"]
    assert len(failures) == 1


def test_a_short_turn_is_not_slow() -> None:
    turns = SlowTurns()

    assert not turns.charge(SLOW_MS - 0.1)
    assert turns.charge(SLOW_MS)
