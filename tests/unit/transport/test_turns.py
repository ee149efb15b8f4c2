"""Turns of connections: slow ones are spaced, others never wait."""

from __future__ import annotations

from orbitmq.transport.turns import SlowTurns


def test_a_short_turn_is_followed_by_the_next_at_once() -> None:
    turns = SlowTurns()

    assert [turns.charge(began, 2) for began in range(0, 100, 10)] == [0] * 10


def test_after_a_slow_turn_its_connection_waits_three_times_as_long() -> None:
    turns = SlowTurns()

    assert turns.charge(1050, 50) == 150
    # An hour later nothing is owed any more.
    assert turns.charge(3_600_020, 20) == 60


def test_slow_turns_of_many_connections_leave_three_quarters_of_the_time_to_others() -> None:
    turns = SlowTurns()
    now_ms, resume_ms = 0.0, [0.0] * 20
    busy_ms = 0.0

    for _ in range(200):
        connection = min(range(20), key=resume_ms.__getitem__)
        began_ms = max(now_ms, resume_ms[connection])
        now_ms = began_ms + 50
        busy_ms += 50
        resume_ms[connection] = now_ms + turns.charge(now_ms, 50)

    # All of them had their first turn at once; from then on each waits for those before it.
    assert 0.2 < busy_ms / now_ms < 0.3


def test_a_turn_that_waited_for_a_processor_is_not_slow() -> None:
    turns = SlowTurns(used_ms=lambda: 2.0)

    assert turns.wait_ms(0, 1000, used_before_ms=0.0) == 0
