"""What the benchmark of Spark makes of what it measured."""

from __future__ import annotations

import pytest

from benchmarks.spark_kafka import Measured, Plan, steady_rate, summary, table


def test_a_steady_stream_is_counted_without_the_micro_batch_that_starts_it() -> None:
    steps = [(1_000, 9_000.0), (2_000, 500.0), (2_000, 300.0)]

    assert steady_rate(steps) == pytest.approx(5_000)


def test_micro_batches_without_rows_do_not_count() -> None:
    steps = [(0, 700.0), (1_000, 9_000.0), (0, 40.0), (2_000, 500.0), (0, 100.0)]

    assert steady_rate(steps) == pytest.approx(4_000)


def test_larger_rows_are_fewer_in_every_workload() -> None:
    plan = Plan(rounds=1, rows=900_000, steady_copies=2, seed=1)

    assert plan.rows_of(128) == 900_000
    assert plan.rows_of(1024) == 200_000
    assert plan.steady_rows_of(1024) == 400_000


def test_a_workload_without_processor_time_has_a_row_too() -> None:
    measured = [
        Measured(workload="streaming read, steady, 128 B", side=side, round=1, figures=figures)
        for side, figures in (
            ("Kafka", {"rows_per_s": 200_000.0}),
            ("OrbitMQ, ASYNC_FLUSH", {"rows_per_s": 300_000.0}),
        )
    ]

    lines = table(summary(measured)).splitlines()

    assert lines[2] == "| streaming read, steady, 128 B | Kafka | 200,000 |  |  |  |  |  |"
    assert "| 300,000 |  |  |  | 1.50 / 1.50 / 1.50 |  |" in lines[3]
