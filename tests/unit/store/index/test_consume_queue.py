"""Entries of one queue: on disk, in memory, and in between."""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path

import pytest

from orbitmq.errors import StoreFormatError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.index.consume_queue import ENTRY, ConsumeQueue
from tests.leftovers import is_in

FILE_BYTES = 10 * 20


def _queue(folder: Path, file_bytes: int = FILE_BYTES) -> ConsumeQueue:
    files = OpenFiles(8, writable=True)
    return ConsumeQueue("orders", 0, folder / "0", file_bytes, files, threading.RLock())


def _entries(first: int, count: int) -> bytes:
    """Entries of records of 100 bytes; record n is at n * 100."""
    return b"".join(ENTRY.pack(n * 100, 100, n) for n in range(first, first + count))


def _filled(folder: Path, count: int) -> ConsumeQueue:
    queue = _queue(folder)
    queue.append(QueueOffset(0), _entries(0, count))
    queue.write()
    return queue


def test_an_entry_has_20_bytes_in_javas_layout() -> None:
    assert ENTRY.pack(1, 2, -3) == struct.pack(">q", 1) + struct.pack(">i", 2) + struct.pack(
        ">q", -3
    )


def test_entries_are_read_from_memory_from_disk_and_across(tmp_path: Path) -> None:
    queue = _filled(tmp_path, 5)
    queue.append(QueueOffset(5), _entries(5, 3))

    assert queue.unwritten_bytes == 60
    assert queue.entries(QueueOffset(0), 100) == _entries(0, 8)
    assert queue.entries(QueueOffset(6), 100) == _entries(6, 2)
    assert queue.entry(QueueOffset(4)) == (400, 100, 4)
    assert queue.entry(QueueOffset(8)) is None
    assert (queue.start, queue.end, queue.max_physical_end) == (0, 8, 800)


def test_one_read_stays_within_a_file(tmp_path: Path) -> None:
    queue = _filled(tmp_path, 25)

    assert queue.entries(QueueOffset(7), 100) == _entries(7, 3)
    assert queue.entries(QueueOffset(10), 100) == _entries(10, 10)
    assert queue.entries_per_file == 10


def test_files_are_named_by_their_first_byte_and_sparse_at_full_size(tmp_path: Path) -> None:
    _filled(tmp_path, 25)

    assert sorted((path.name, path.stat().st_size) for path in (tmp_path / "0").iterdir()) == [
        (f"{n * FILE_BYTES:020d}", FILE_BYTES) for n in range(3)
    ]


def test_known_entries_are_skipped(tmp_path: Path) -> None:
    queue = _filled(tmp_path, 5)

    assert queue.append(QueueOffset(0), _entries(0, 5)) == 0
    assert queue.append(QueueOffset(3), _entries(3, 4)) == 2
    assert queue.entries(QueueOffset(0), 100) == _entries(0, 7)


def test_a_record_with_an_odd_number_is_not_hidden(tmp_path: Path) -> None:
    queue = _filled(tmp_path, 5)

    assert queue.append(QueueOffset(0), _entries(5, 1)) == 1
    assert queue.append(QueueOffset(99), _entries(6, 1)) == 1
    assert queue.entries(QueueOffset(0), 100) == _entries(0, 7)


def test_a_queue_that_begins_late_is_filled_up_to_its_first_entry(tmp_path: Path) -> None:
    queue = _queue(tmp_path)
    queue.append(QueueOffset(23), _entries(23, 4))
    queue.write()

    content = (tmp_path / "0" / f"{2 * FILE_BYTES:020d}").read_bytes()
    assert content[:60] == ENTRY.pack(0, 0x7FFFFFFF, 0) * 3
    assert content[60:140] == _entries(23, 4)
    assert len(list((tmp_path / "0").iterdir())) == 1
    again = _queue(tmp_path)
    assert again.load(PhysicalOffset(10_000)) == ""
    assert (again.start, again.end, again.max_physical_end) == (23, 27, 2700)


def test_a_queue_of_fillers_only_is_empty(tmp_path: Path) -> None:
    queue = _queue(tmp_path)
    queue.append(QueueOffset(23), _entries(23, 4))
    queue.write()

    again = _queue(tmp_path)
    again.load(PhysicalOffset(100))

    assert (again.start, again.end, again.max_physical_end) == (23, 23, 0)


def _spy_on_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each later read of files in a folder asks for."""
    read: list[int] = []
    pread = os.pread

    def spy(descriptor: int, count: int, at: int) -> bytes:
        if is_in(folder, descriptor):
            read.append(count)
        return pread(descriptor, count, at)

    monkeypatch.setattr("os.pread", spy)
    return read


def test_loading_reads_little_of_large_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = _queue(tmp_path, 6_000_000)
    queue.append(QueueOffset(0), _entries(0, 50_000))
    queue.write()
    read = _spy_on_reads(tmp_path, monkeypatch)
    again = _queue(tmp_path, 6_000_000)
    again.load()

    assert again.end == 50_000
    assert len(read) <= 20
    assert sum(read) < 20_000


def test_a_queue_of_a_few_entries_is_loaded_with_two_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = _queue(tmp_path, 6_000_000)
    queue.append(QueueOffset(0), _entries(0, 3))
    queue.write()
    read = _spy_on_reads(tmp_path, monkeypatch)
    again = _queue(tmp_path, 6_000_000)
    again.load(PhysicalOffset(300))
    again.raise_start(PhysicalOffset(100))

    assert (again.start, again.end) == (1, 3)
    assert len(read) == 2


@pytest.mark.parametrize("good", [0, 1, 9, 10, 11, 20, 25])
def test_entries_of_unknown_records_are_cleared(tmp_path: Path, good: int) -> None:
    _filled(tmp_path, 25)
    again = _queue(tmp_path)

    assert again.load(PhysicalOffset(good * 100 + 50)) == ""

    assert (again.end, again.max_physical_end) == (good, good * 100)
    content = b"".join(path.read_bytes() for path in sorted((tmp_path / "0").iterdir()))
    assert content.rstrip(b"\0") == _entries(0, good).rstrip(b"\0")
    assert again.needs_sync == (good < 25)
    again.sync()
    again.append(QueueOffset(good), _entries(good, 30 - good))
    again.write()
    reloaded = _queue(tmp_path)
    reloaded.load()
    assert reloaded.end == 30


def test_a_page_lost_after_the_known_entries_does_not_matter(tmp_path: Path) -> None:
    _filled(tmp_path, 10)
    path = tmp_path / "0" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[5 * 20 : 7 * 20] = bytes(40)
    path.write_bytes(content)
    again = _queue(tmp_path)

    again.load(PhysicalOffset(500))

    assert again.end == 5
    assert path.read_bytes() == _entries(0, 5).ljust(FILE_BYTES, b"\0")


def test_a_missing_file_in_the_middle_is_a_doubt(tmp_path: Path) -> None:
    _filled(tmp_path, 25)
    (tmp_path / "0" / f"{FILE_BYTES:020d}").unlink()

    assert "a file is missing before" in _queue(tmp_path).load()


def test_an_unfinished_last_file_is_removed_and_one_in_the_middle_is_a_doubt(
    tmp_path: Path,
) -> None:
    _filled(tmp_path, 20)
    last = tmp_path / "0" / f"{2 * FILE_BYTES:020d}"
    last.write_bytes(b"")
    again = _queue(tmp_path)
    assert again.load() == ""
    assert again.end == 20
    assert not last.exists()

    (tmp_path / "0" / f"{FILE_BYTES:020d}").write_bytes(b"")
    last.write_bytes(bytes(FILE_BYTES))
    assert "was never finished" in _queue(tmp_path).load()


def test_files_of_another_size_are_doubtful_and_those_of_another_name_refused(
    tmp_path: Path,
) -> None:
    _filled(tmp_path, 5)
    assert "has 200 bytes, not 400" in _queue(tmp_path, 400).load()

    (tmp_path / "0" / "notes").write_text("x")
    with pytest.raises(StoreFormatError, match="notes is not a file of a consume queue"):
        _queue(tmp_path).load()


@pytest.mark.parametrize(
    ("log_start", "start", "files"), [(0, 0, 3), (950, 10, 2), (1000, 10, 2), (1450, 15, 2)]
)
def test_the_start_moves_past_deleted_records_and_emptied_files_are_deleted(
    tmp_path: Path, log_start: int, start: int, files: int
) -> None:
    queue = _filled(tmp_path, 25)

    queue.raise_start(PhysicalOffset(log_start))

    assert (queue.start, queue.end) == (start, 25)
    assert len(list((tmp_path / "0").iterdir())) == files
    assert queue.entries(QueueOffset(start - 1), 1) == b""


def test_a_queue_whose_records_are_all_deleted_keeps_its_end(tmp_path: Path) -> None:
    queue = _filled(tmp_path, 20)
    queue.append(QueueOffset(20), _entries(20, 2))

    queue.raise_start(PhysicalOffset(99_999))

    assert (queue.start, queue.end) == (22, 22)
    queue.append(QueueOffset(22), _entries(22, 1))
    queue.write()
    again = _queue(tmp_path)
    again.load()
    assert again.end == 23


def test_a_deleted_queue_is_empty(tmp_path: Path) -> None:
    queue = _filled(tmp_path, 25)

    queue.delete()

    assert (queue.start, queue.end, queue.max_physical_end) == (0, 0, 0)
    assert list((tmp_path / "0").iterdir()) == []
    assert queue.entries(QueueOffset(0), 10) == b""


def test_readers_see_whole_entries_while_others_append_and_write(tmp_path: Path) -> None:
    queue = _queue(tmp_path, 6_000_000)
    wrong: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            end = queue.end
            for first in range(max(0, end - 50), end, 7):
                if queue.entries(QueueOffset(first), 7) != _entries(first, min(7, end - first)):
                    content = queue.entries(QueueOffset(first), 7)
                    if content[: (end - first) * 20] != _entries(first, min(7, end - first)):
                        wrong.append(first)

    reader = threading.Thread(target=read)
    reader.start()
    lock = queue._lock
    for first in range(0, 20_000, 10):
        with lock:
            queue.append(QueueOffset(first), _entries(first, 10))
        if first % 70 == 0:
            queue.write()
    done.set()
    reader.join()

    assert wrong == []
