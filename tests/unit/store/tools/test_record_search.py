"""Finding the next record after damage: one that contains its own offset."""

from __future__ import annotations

from pathlib import Path

from orbitmq.store.readonly.log_files import ReadOnlyLog
from orbitmq.store.tools.record_search import next_record
from tests.unit.store.written_stores import LOG_FILE_BYTES, change, fill


def _second(log: ReadOnlyLog) -> int:
    return int.from_bytes(log.read(0, 4))


def test_the_next_record_is_found_after_any_byte_of_the_previous_one(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    log = ReadOnlyLog([tmp_path / "commitlog"])
    second = _second(log)

    found = {next_record(log, log.files[0], start) for start in range(1, second + 1)}

    assert found == {second}


def test_a_record_of_another_place_is_not_believed(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    log = ReadOnlyLog([tmp_path / "commitlog"])
    second = _second(log)
    copied = log.read(second, second)
    change(tmp_path / "commitlog" / f"{0:020d}", 10, copied[: second - 10])

    assert next_record(log, log.files[0], 1) == second


def test_a_blank_end_counts_and_else_the_end_of_the_file_is_returned(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    log = ReadOnlyLog([tmp_path / "commitlog"])
    blank = max(stop.offset + stop.found.position for stop in log.walk(0, LOG_FILE_BYTES))
    path = tmp_path / "commitlog" / f"{0:020d}"

    assert next_record(log, log.files[0], blank - 3) == blank
    change(path, blank, b"\xff" * 8)
    assert next_record(log, log.files[0], blank - 3) == LOG_FILE_BYTES
