"""Where damage starts and ends, and what is around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.store.readonly.log_files import ReadOnlyLog
from orbitmq.store.tools.damage import find_damage
from tests.unit.store.written_stores import LOG_FILE_BYTES, T0, change, fill


def _records(root: Path) -> list[tuple[int, int]]:
    log = ReadOnlyLog([root / "commitlog"])
    found: list[tuple[int, int]] = []
    for chunk in log.walk(0, log.room_end, on_damage=lambda *_: log.room_end):
        at = 0
        while at < chunk.found.position:
            size = int.from_bytes(chunk.content[at : at + 4])
            found.append((chunk.offset + at, size))
            at += size
    return found


def _change(root: Path, offset: int, content: bytes) -> ReadOnlyLog:
    at = offset % LOG_FILE_BYTES
    change(root / "commitlog" / f"{offset - at:020d}", at, content)
    return ReadOnlyLog([root / "commitlog"])


@pytest.mark.parametrize(("at", "content"), [(90, b"!!"), (4, b"!!!!"), (28, bytes(7) + b"\1")])
def test_one_bad_record_ends_where_the_next_begins(tmp_path: Path, at: int, content: bytes) -> None:
    fill(tmp_path, 500)
    offset, size = _records(tmp_path)[300]

    found = find_damage(_change(tmp_path, offset + at, content), offset)

    assert (found.start, found.end, found.is_tail) == (offset, offset + size, False)
    assert found.store_ms == T0 + 299 * 10
    assert found.reason


def test_what_follows_at_once_belongs_to_it(tmp_path: Path) -> None:
    fill(tmp_path, 500)
    (first, _), (second, size) = _records(tmp_path)[300:302]
    _change(tmp_path, first + 90, b"!!")

    found = find_damage(_change(tmp_path, second + 90, b"!!"), first)

    assert (found.start, found.end) == (first, second + size)


def test_the_first_record_of_a_log_takes_its_time_from_the_next(tmp_path: Path) -> None:
    fill(tmp_path, 10)

    found = find_damage(_change(tmp_path, 90, b"!!"), 0)

    assert found.store_ms == T0 + 10


def test_damage_with_nothing_after_it_is_the_tail(tmp_path: Path) -> None:
    fill(tmp_path, 500)
    records = _records(tmp_path)
    offset = records[-3][0]
    end = sum(records[-1])

    found = find_damage(_change(tmp_path, offset, b"\xff" * (end - offset)), offset)

    assert found.is_tail
    assert found.written_end == end
    assert found.end % LOG_FILE_BYTES == 0


def test_a_place_without_damage_is_an_error_that_names_the_damaged_ones(tmp_path: Path) -> None:
    fill(tmp_path, 500)
    offset, _ = _records(tmp_path)[10]
    log = _change(tmp_path, offset + 90, b"!!")

    with pytest.raises(StoreError, match=rf"starts at: {offset}\)"):
        find_damage(log, 0)
    with pytest.raises(StoreError, match="outside the log"):
        find_damage(log, 100 * LOG_FILE_BYTES)
