"""The log: files of one size, blanks at their ends, and an end that only grows."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError, MessageError, StateError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.decode import Verdict, examine
from orbitmq.store.log.commit_log import CommitLog
from tests.leftovers import descriptors
from tests.unit.store.stores import write

FILE_BYTES = 64 * 1024


def _log(folder: Path) -> CommitLog:
    log = CommitLog([folder], FILE_BYTES)
    log.load()
    return log


def test_bytes_follow_one_another(tmp_path: Path) -> None:
    log = _log(tmp_path)

    first, second = write(log, b"a" * 100), write(log, b"b" * 50)

    assert (first, second, log.end) == (0, 100, 150)
    assert log.pread(0, 150) == b"a" * 100 + b"b" * 50
    assert log.pread(90, 20) == b"a" * 10 + b"b" * 10
    assert log.pread(100, 51) is None
    assert (tmp_path / "00000000000000000000").stat().st_size == FILE_BYTES


def test_bytes_in_memory_are_read_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _log(tmp_path)
    write(log, b"a" * 100)

    def in_memory(number: int, buffers: list[bytearray], at: int, _flags: int) -> int:
        (buffer,) = buffers
        buffer[:] = os.pread(number, len(buffer), at)
        return len(buffer)

    monkeypatch.setattr("os.preadv", in_memory)

    assert log.pread_nowait(90, 10) == bytearray(b"a" * 10)
    assert log.pread_nowait(90, 11) is None
    assert log.pread_nowait(-1, 10) is None


@pytest.mark.parametrize("left", [8, 9, 107])
def test_a_record_that_does_not_fit_leaves_a_blank_and_begins_the_next_file(
    tmp_path: Path, left: int
) -> None:
    log = _log(tmp_path)
    write(log, b"a" * (FILE_BYTES - left))

    offset = write(log, b"b" * 100)

    assert offset == FILE_BYTES
    blank = examine(log.files[0].view, FILE_BYTES - left, FILE_BYTES, check_body=False)
    assert (blank.verdict, blank.size) == (Verdict.BLANK, left)
    assert log.end == FILE_BYTES + 100


def test_a_file_keeps_eight_bytes_for_its_blank(tmp_path: Path) -> None:
    log = _log(tmp_path)

    assert write(log, b"a" * (FILE_BYTES - 8)) == 0
    with pytest.raises(MessageError, match="do not fit a log file"):
        write(log, b"a" * (FILE_BYTES - 7))


def test_a_log_that_ends_with_its_file_continues_in_the_next(tmp_path: Path) -> None:
    log = _log(tmp_path)
    write(log, b"a" * (FILE_BYTES - 50))
    write(log, b"b" * 100)
    log.cut(PhysicalOffset(FILE_BYTES), flushed=PhysicalOffset(0))

    assert len(log.files) == 1
    assert write(log, b"c" * 100) == FILE_BYTES
    assert len(log.files) == 2


def test_bytes_are_readable_once_the_end_has_moved(tmp_path: Path) -> None:
    log = _log(tmp_path)
    write(log, b"a" * 100)

    file = log.room(50)
    file.view[100:150] = b"b" * 50
    assert (log.end, log.pread(100, 50)) == (100, None)
    log.end = PhysicalOffset(150)

    assert log.pread(100, 50) == b"b" * 50


def test_a_full_disk_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _log(tmp_path)
    write(log, b"a" * (FILE_BYTES - 50))
    allocate = os.posix_fallocate

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(DiskFullError):
        write(log, b"b" * 100)
    assert log.end == FILE_BYTES - 50
    assert not any(log.files[0].view[FILE_BYTES - 50 :])

    monkeypatch.setattr("os.posix_fallocate", allocate)
    assert write(log, b"b" * 100) == FILE_BYTES


def test_the_next_file_is_prepared_once_half_of_one_is_full_and_is_used(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.prepare_next_file()
    write(log, b"a" * 100)
    log.prepare_next_file()
    assert len(list(tmp_path.iterdir())) == 1
    write(log, b"a" * (FILE_BYTES // 2))
    assert log.needs_upkeep

    log.prepare_next_file()
    log.touch_ahead()
    log.prepare_next_file()

    assert len(list(tmp_path.iterdir())) == 2
    assert not log.needs_upkeep
    inode = (tmp_path / f"{FILE_BYTES:020d}").stat().st_ino
    write(log, b"b" * (FILE_BYTES // 2))
    assert (tmp_path / f"{FILE_BYTES:020d}").stat().st_ino == inode


def test_a_prepared_file_is_dropped_on_closing(tmp_path: Path) -> None:
    log = _log(tmp_path)
    write(log, b"a" * (FILE_BYTES - 100))
    log.prepare_next_file()

    log.close()

    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000000"]
    with pytest.raises(StateError):
        write(log, b"a" * 10)


def test_preparing_files_and_appending_never_collide(tmp_path: Path) -> None:
    log = _log(tmp_path)
    done = threading.Event()
    failures: list[BaseException] = []

    def prepare_next_file() -> None:
        try:
            while not done.is_set():
                log.prepare_next_file()
                log.touch_ahead()
        except BaseException as error:  # noqa: BLE001  # shown by the assertion
            failures.append(error)

    maker = threading.Thread(target=prepare_next_file)
    maker.start()
    offsets = [write(log, b"a" * 5000) for _ in range(400)]
    done.set()
    maker.join()

    assert failures == []
    assert offsets == sorted(offsets)
    assert all(log.pread(offset, 5000) == b"a" * 5000 for offset in offsets)


def test_a_long_log_needs_few_descriptors(tmp_path: Path) -> None:
    log = _log(tmp_path)
    offsets: list[int] = []
    for _ in range(60):
        offsets.append(write(log, b"a" * (FILE_BYTES - 8)))
        log.sync()

    assert all(log.pread(offset, 10) == b"a" * 10 for offset in offsets)
    # A file has a descriptor, and its mapping keeps another.
    assert len(descriptors(tmp_path)) <= 2 * 12


def test_a_sync_covers_every_file_since_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _log(tmp_path)
    synced: list[str] = []
    sync = os.fdatasync

    def spy(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    for _ in range(3):
        write(log, b"a" * (FILE_BYTES - 8))
    monkeypatch.setattr("os.fdatasync", spy)

    assert log.sync() == log.end == log.flushed
    assert synced == [f"{n * FILE_BYTES:020d}" for n in range(3)]
    synced.clear()
    log.sync()
    assert synced == []


def test_a_cut_zeroes_its_file_deletes_later_ones_and_syncs_the_unsynced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _log(tmp_path)
    for _ in range(3):
        write(log, b"a" * (FILE_BYTES - 8))
    synced: list[str] = []
    sync = os.fdatasync

    def spy(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr("os.fdatasync", spy)
    log.cut(PhysicalOffset(FILE_BYTES + 10), flushed=PhysicalOffset(100))

    assert (log.end, log.flushed) == (FILE_BYTES + 10, FILE_BYTES + 10)
    assert len(list(tmp_path.iterdir())) == 2
    assert bytes(log.files[1].view) == b"a" * 10 + bytes(FILE_BYTES - 10)
    assert synced == ["00000000000000000000", f"{FILE_BYTES:020d}"]


def test_the_oldest_file_is_deleted_while_others_are_read_but_never_the_last(
    tmp_path: Path,
) -> None:
    log = _log(tmp_path)
    for _ in range(2):
        write(log, b"a" * (FILE_BYTES - 8))

    assert log.delete_first() == FILE_BYTES
    assert log.start == FILE_BYTES
    assert log.pread(0, 10) is None
    assert log.pread(FILE_BYTES, 10) == b"a" * 10
    with pytest.raises(StateError, match="cannot delete the only file"):
        log.delete_first()


def test_files_are_spread_over_folders_as_java_does(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    log = CommitLog(folders, FILE_BYTES)
    log.load()
    offsets = [write(log, b"a" * (FILE_BYTES - 8)) for _ in range(3)]
    log.sync()
    log.close()

    assert [len(list(folder.iterdir())) for folder in folders] == [2, 1]
    again = CommitLog(folders, FILE_BYTES)
    again.load()
    assert [file.first_offset for file in again.files] == offsets
    assert again.file_at(3 * FILE_BYTES) is None
    assert again.file_at(-1) is None


def _folders_of_new_files(log: CommitLog, count: int) -> list[str]:
    for _ in range(count):
        write(log, b"a" * (FILE_BYTES - 8))
    return [file.path.parent.name for file in log.files]


def test_new_files_avoid_folders_that_are_full_or_read_only(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    log = CommitLog(folders, FILE_BYTES, read_only_folders=[tmp_path / "b", tmp_path / "old"])
    assert _folders_of_new_files(log, 3) == ["a", "c", "a"]

    log.full_folders = frozenset({tmp_path / "a"})
    assert _folders_of_new_files(log, 2)[3:] == ["c", "c"]

    # If all are full, there is no other choice.
    log.full_folders = frozenset(folders)
    assert _folders_of_new_files(log, 2)[5:] == ["c", "a"]


def test_files_in_read_only_folders_belong_to_the_log(tmp_path: Path) -> None:
    old = CommitLog([tmp_path / "old"], FILE_BYTES)
    _folders_of_new_files(old, 2)
    old.close()

    log = CommitLog([tmp_path / "new"], FILE_BYTES, read_only_folders=[tmp_path / "old"])
    log.load()
    log.cut(PhysicalOffset(2 * FILE_BYTES - 8), flushed=PhysicalOffset(2 * FILE_BYTES - 8))

    assert _folders_of_new_files(log, 1) == ["old", "old", "new"]
    assert log.pread(0, 1) == b"a"
    assert log.delete_first() == FILE_BYTES
    assert len(list((tmp_path / "old").iterdir())) == 1
