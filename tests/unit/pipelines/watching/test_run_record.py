"""The record of a run: totals, what is newest, and a timeline that does not grow."""

from __future__ import annotations

from orbitmq.pipelines.watching.run_record import RunRecord
from orbitmq.pipelines.watching.timeline import STEPS_MAX
from tests.unit.pipelines.watching.runs import BEGAN_MS, QUARANTINE, batch, lag, started_run


def test_a_record_adds_up_what_the_batches_of_a_query_did() -> None:
    record = started_run("table", QUARANTINE)

    record.note(batch(number=0, rows=10, took_ms=300, late_rows=1))
    record.note(batch(number=1, rows=30, took_ms=700, late_rows=2, state_rows=5, lag=4))
    record.note(batch(QUARANTINE, rows=40, rejected={"cannot be decoded": 3}))
    record.note(batch(QUARANTINE, rows=4, rejected={"cannot be decoded": 1, "not paid": 2}))

    table, quarantine = record.queries["table"], record.queries[QUARANTINE]
    assert (table.batches, table.rows, table.took_ms, table.late_rows) == (2, 40, 1000, 3)
    assert (table.lag, table.behind_s) == (4, None)
    assert table.last is not None
    assert table.last.state_rows == 5
    assert quarantine.rejected == {"cannot be decoded": 4, "not paid": 2}
    assert record.rows() == {"table": 40, QUARANTINE: 44}


def test_lag_is_what_brokers_say_once_they_were_asked() -> None:
    record = started_run("table")
    table = record.queries["table"]

    record.note(batch(lag=3))
    assert (table.lag, table.behind_s) == (3, None)
    record.note(lag(messages=7))
    record.note(batch(lag=0))

    assert (table.lag, table.behind_s, table.lagging_queues) == (7, 1.5, {"orders/broker-a/0": 7})


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    record = started_run("table")
    table = record.queries["table"]

    record.note(batch(after_ms=5_000, rows=100))
    assert table.rate(BEGAN_MS + 10_000) == 10
    record.note(batch(after_ms=40_000, rows=300))

    assert table.rate(BEGAN_MS + 40_000) == 10
    assert table.rate(BEGAN_MS + 80_000) == 0


def test_a_record_of_weeks_is_as_large_as_one_of_minutes() -> None:
    record, second = started_run("table"), 1000
    count = 20_000

    for number in range(count):
        record.note(batch(number=number, after_ms=number * 90 * second, rows=2, took_ms=number))

    table = record.queries["table"]
    steps = table.timeline.steps
    assert STEPS_MAX / 2 <= len(steps) <= STEPS_MAX
    assert sum(step.rows for step in steps) == table.rows == 2 * count
    assert max(step.took_ms for step in steps) == count - 1
    assert steps[-1].at_ms <= BEGAN_MS + (count - 1) * 90 * second
    assert len(table.newest) == 100


def test_a_clock_that_is_set_back_changes_the_first_step() -> None:
    record = started_run("table")

    record.note(batch(after_ms=-5000, rows=3))

    assert [(step.at_ms, step.rows) for step in record.queries["table"].timeline.steps] == [
        (BEGAN_MS, 3)
    ]


def test_listeners_see_a_record_that_has_the_event() -> None:
    record, seen = started_run("table"), []
    record.listeners.append(lambda _: seen.append(record.queries["table"].rows))

    record.note(batch(rows=3))
    record.note(batch(rows=4))

    assert seen == [3, 7]


def test_a_new_record_has_nothing() -> None:
    assert RunRecord().rows() == {}
