"""Two logs, compared record by record where blocks differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orbitmq.pipelines.auditing.replica_comparison import Compared, ReplicaComparison
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.unit.store.written_stores import LOG_FILE_BYTES, change, fill


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    fill(tmp_path / "a", 500)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return tmp_path / "a", tmp_path / "b"


def compared(pair: tuple[Path, Path], start: int, end: int) -> Compared:
    with ReadOnlyStore(pair[0]) as first, ReadOnlyStore(pair[1]) as replica:
        return ReplicaComparison(first.log, replica.log).compare(start, end, int(first.end))


def test_equal_ranges_have_no_differences(pair: tuple[Path, Path]) -> None:
    found = compared(pair, 0, LOG_FILE_BYTES)

    assert found.findings == []
    assert found.compared_bytes == LOG_FILE_BYTES


def test_a_difference_belongs_to_the_range_in_which_its_record_starts(
    pair: tuple[Path, Path],
) -> None:
    with ReadOnlyStore(pair[0]) as store:
        offset, record = list(store.records())[50]
    change(pair[1] / "commitlog" / f"{0:020d}", offset + 200, b"X")
    middle = offset + 100

    before, behind = compared(pair, 0, middle), compared(pair, middle, LOG_FILE_BYTES)

    (finding,) = before.findings
    assert (finding.offset, finding.position) == (offset, offset + 200)
    assert len(record) > 200
    assert behind.findings == []


def test_a_file_that_one_of_them_lacks_is_left_out(pair: tuple[Path, Path]) -> None:
    (pair[1] / "commitlog" / f"{0:020d}").unlink()

    assert compared(pair, 0, LOG_FILE_BYTES) == Compared()
    assert compared((pair[1], pair[0]), 0, LOG_FILE_BYTES) == Compared()
