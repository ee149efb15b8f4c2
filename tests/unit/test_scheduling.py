"""Which worker runs which tests."""

from __future__ import annotations

from pathlib import Path

from tests.scheduling import (
    INTEROP_WORKERS,
    LONGEST,
    PIPELINES_FOLDER,
    SPARK_FOLDER,
    WORKERS_MIN,
    kind_of,
    kinds_for,
    work_unit,
)

ROOT = Path(__file__).parents[2]
KINDS = {"spark", "interop", "loop", "other"}


def test_files_that_share_spark_are_one_piece_and_others_one_each() -> None:
    assert work_unit("tests/spark/test_writing.py::test_a[1]") == SPARK_FOLDER
    assert work_unit("tests/spark/pipelines/test_sql.py::test_a") == PIPELINES_FOLDER
    assert work_unit("tests/spark/test_demo.py::test_a") == "tests/spark/test_demo.py"
    assert work_unit("tests/unit/test_disk.py::test_a") == "tests/unit/test_disk.py"


def test_spark_and_official_servers_are_started_by_few_workers() -> None:
    takes = [set(kinds_for(worker, 6)) for worker in range(6)]

    assert [worker for worker in range(6) if "spark" in takes[worker]] == [0, 5]
    assert sum("interop" in kinds for kinds in takes) == INTEROP_WORKERS
    assert all("other" in kinds for kinds in takes)
    assert [worker for worker in range(6) if "loop" not in takes[worker]] == [0, 5]


def test_nothing_is_left_over_when_workers_are_few_or_replaced() -> None:
    assert set(kinds_for(0, WORKERS_MIN - 1)) == KINDS
    assert set(kinds_for(6, 6)) == KINDS


def test_the_files_that_are_begun_first_are_there() -> None:
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []
    assert kind_of(LONGEST[0]) == "interop"
