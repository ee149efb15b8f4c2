from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError, StoreFormatError
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.index.consume_queue import ENTRY, FILLER
from orbitmq.store.readonly.queue_files import ReadOnlyQueue, begins_at, ends_at, first_where
from tests.unit.store.written_stores import QUEUE_FILE_BYTES, fill


def opened(folder: Path) -> ReadOnlyQueue:
    return ReadOnlyQueue(folder, OpenFiles(4, writable=False))


def test_the_end_of_a_queue_is_found_in_its_files(tmp_path: Path) -> None:
    fill(tmp_path, 1000)

    queue = opened(tmp_path / "consumequeue" / "topic0" / "0")

    assert queue.file_bytes == QUEUE_FILE_BYTES
    assert len(queue.file_offsets) == 5
    assert (queue.first, queue.end) == (0, 250)
    assert queue.entry(249)[0] > queue.entry(248)[0]
    assert len(queue.entries(40, 100)) == 10 * 20  # to the end of the file
    assert queue.entries(250, 10) == b""


def test_a_queue_without_files_is_empty(tmp_path: Path) -> None:
    queue = opened(tmp_path / "none")

    assert (queue.first, queue.end, queue.file_bytes) == (0, 0, 0)
    assert not queue.is_written(0)


def test_fillers_lie_before_everything(tmp_path: Path) -> None:
    entries = FILLER * 3 + ENTRY.pack(500, 100, 7) + ENTRY.pack(900, 100, 7)
    (tmp_path / f"{1000:020d}").write_bytes(entries.ljust(1000, b"\0"))

    queue = opened(tmp_path)

    assert (queue.first, queue.end) == (50, 55)
    assert begins_at(queue.entry(50)) == ends_at(queue.entry(50)) == -1
    assert ends_at(queue.entry(53)) == 600
    assert queue.first_from(0) == 53
    assert queue.first_from(501) == 54
    assert queue.first_from(901) == 55


def test_a_file_made_and_not_written_yet_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(ENTRY.pack(0, 100, 0) * 50)
    (tmp_path / f"{1000:020d}").write_bytes(bytes(1000))
    (tmp_path / f"{2000:020d}").write_bytes(b"")

    assert opened(tmp_path).end == 50


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    fill(tmp_path, 1000)
    folder = tmp_path / "consumequeue" / "topic0" / "0"
    os.truncate(folder / f"{2000:020d}", 500)

    with pytest.raises(StoreFormatError, match="rebuild"):
        opened(folder)


def test_a_missing_file_is_reported_when_it_is_needed(tmp_path: Path) -> None:
    fill(tmp_path, 1000)
    folder = tmp_path / "consumequeue" / "topic0" / "0"
    (folder / f"{1000:020d}").unlink()
    queue = opened(folder)

    assert queue.end == 250
    with pytest.raises(StoreDamagedError, match=f"entry 60 .*{1000:020d}"):
        queue.entries(60, 1)
    with pytest.raises(StoreDamagedError):
        queue.entry(60)


def test_other_names_are_listed_separately(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")

    assert opened(tmp_path).strange_files == [tmp_path / "notes"]


def test_halving_finds_where_something_begins_to_hold() -> None:
    def found(answer: int) -> int:
        return first_where(2, 10, lambda number: number >= answer)

    assert [found(answer) for answer in range(12)] == [2, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]
