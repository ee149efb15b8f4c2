"""Files of fixed size, allocated before they are mapped."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError, StateError, StoreError
from orbitmq.store.files.mapped_file import MappedFile
from tests.leftovers import descriptors


def test_a_new_file_is_allocated_in_full_and_zero(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "0", 4096, 64 * 1024)

    assert file.path.stat().st_blocks * 512 >= 64 * 1024
    assert not any(file.view)
    assert file.end_offset == 4096 + 64 * 1024


def test_a_full_disk_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)

    with pytest.raises(DiskFullError, match="no room for 4096 bytes"):
        MappedFile.create(tmp_path / "0", 0, 4096)
    assert list(tmp_path.iterdir()) == []


def test_a_sparse_file_is_allocated_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "0"
    with path.open("wb") as sparse:
        sparse.truncate(1 << 20)
    file = MappedFile(path, 0, 1 << 20)
    assert path.stat().st_blocks * 512 < 1 << 20

    file.allocate()

    assert path.stat().st_blocks * 512 >= 1 << 20


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"")

    with pytest.raises(StoreError, match="exists already"):
        MappedFile.create(tmp_path / "0", 0, 4096)


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot write"):
        MappedFile.create(tmp_path / "missing" / "0", 0, 4096)


def test_bytes_written_to_the_mapping_are_read_without_it_too(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "0", 0, 8192)
    file.view[4000:4005] = b"bytes"

    assert file.pread(4000, 5) == b"bytes"


def test_a_released_file_has_no_descriptor_and_reopens_when_needed(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "0", 0, 4096)
    file.view[0:3] = b"abc"
    assert file.is_mapped
    assert descriptors(tmp_path)

    file.release()

    assert not descriptors(tmp_path)
    assert not file.is_mapped
    assert bytes(file.view[0:3]) == b"abc"


def test_bytes_of_a_deleted_file_stay_readable_for_their_holder(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "0", 0, 4096)
    file.view[0:3] = b"abc"
    held = file.view[0:3]

    file.delete()

    assert bytes(held) == b"abc"
    assert file.pread(0, 3) == b""
    assert not (tmp_path / "0").exists()
    with pytest.raises(StateError):
        _ = file.view


def test_clearing_leaves_earlier_bytes(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "0", 0, 8192)
    file.view[:] = b"x" * 8192

    file.clear(5000)

    assert bytes(file.view) == b"x" * 5000 + bytes(3192)


def test_rewriting_changes_nothing(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "0", 0, 8192)
    file.view[:] = bytes(range(256)) * 32

    file.rewrite(100, 8192)
    file.touch(0, 1 << 20)
    file.sync()

    assert bytes(file.view) == bytes(range(256)) * 32


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_byte_in_a_single_page_does_not_take_its_neighbours_to_disk(
    tmp_path: Path, *, is_mapped: bool
) -> None:
    file = MappedFile.create(tmp_path / "0", 0, 64 << 20)
    if is_mapped:
        assert file.view
    file.load_pages_singly(100)
    for at in range(0, 32 << 20, 1 << 20):
        file.view[at : at + (1 << 20)] = bytes(1 << 20)
        file.touch(at, at + (4 << 20))
    file.sync()
    before = _bytes_to_disk()

    for number in range(8):
        file.view[(32 << 20) + number] = 1
        file.sync()

    assert _bytes_to_disk() - before <= 8 * 64 * 1024


def test_a_full_file_has_no_pages_to_load_singly(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "0", 0, 8192)
    file.view[:] = b"x" * 8192

    file.load_pages_singly(8192)

    assert bytes(file.view) == b"x" * 8192


def _bytes_to_disk() -> int:
    """Bytes that this thread has sent to the disk so far."""
    for line in Path("/proc/thread-self/io").read_text().splitlines():
        name, _, number = line.partition(": ")
        if name == "write_bytes":
            return int(number)
    raise AssertionError("the system does not count what is written")


def test_a_reader_never_reads_another_file_while_files_come_and_go(tmp_path: Path) -> None:
    files = [MappedFile.create(tmp_path / str(n), 0, 4096) for n in range(8)]
    for number, file in enumerate(files):
        file.view[:] = bytes([number]) * 4096
    wrong: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for number, file in enumerate(files):
                content = file.pread(0, 4096)
                if content != bytes([number]) * 4096:
                    wrong.append(content[:1])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(300):
        for file in files:
            file.release()
    done.set()
    for reader in readers:
        reader.join()

    assert wrong == []


def test_a_file_that_may_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old" * 100)
    opened = os.open

    def refuse_writers(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, mode)

    monkeypatch.setattr("os.open", refuse_writers)
    file = MappedFile(path, 0, 300)

    assert file.pread(3, 3) == b"old"
    assert bytes(file.view[:3]) == b"old"
    assert file.view.readonly
    with pytest.raises(StoreError, match="cannot write"):
        file.allocate()


def test_a_released_file_is_not_opened_by_a_read_that_may_not_wait(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path / "0", 0, 4096)
    file.release()

    with pytest.raises(BlockingIOError, match="is not open"):
        file.pread_nowait(0, 10)
    assert file.pread(0, 10) == bytes(10)
