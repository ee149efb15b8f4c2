"""Few descriptors for many files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError
from orbitmq.store.files.open_files import OpenFiles
from tests.leftovers import descriptors


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    files = OpenFiles(8, writable=True)

    for number in range(100):
        files.pwrite(tmp_path / str(number), b"%d" % number, 5, file_bytes=1000)

    assert len(files) == 8
    assert len(descriptors(tmp_path)) == 8
    assert [files.pread(tmp_path / str(n), 2, 5).strip(b"\0") for n in range(100)] == [
        b"%d" % number for number in range(100)
    ]


def test_a_new_file_is_sparse_at_full_size(tmp_path: Path) -> None:
    files = OpenFiles(8, writable=True)
    path = tmp_path / "topic" / "0" / "file"

    made = files.pwrite(path, b"entry", 0, file_bytes=6_000_000)
    made_again = files.pwrite(path, b"entry", 20, file_bytes=6_000_000)

    assert (made, made_again) == (True, False)
    assert path.stat().st_size == 6_000_000
    assert path.stat().st_blocks * 512 < 100_000


def test_a_missing_file_reads_as_nothing_and_needs_no_sync(tmp_path: Path) -> None:
    files = OpenFiles(8, writable=True)

    assert files.pread(tmp_path / "missing", 20, 0) == b""
    files.sync(tmp_path / "missing")


def test_a_forgotten_file_is_reopened(tmp_path: Path) -> None:
    files = OpenFiles(8, writable=True)
    files.pwrite(tmp_path / "file", b"old", 0, file_bytes=3)
    files.forget(tmp_path / "file")
    (tmp_path / "file").unlink()
    (tmp_path / "file").write_bytes(b"new")

    assert files.pread(tmp_path / "file", 3, 0) == b"new"
    files.clear(tmp_path / "file", 1, 3)
    files.sync(tmp_path / "file")
    files.close()
    assert (tmp_path / "file").read_bytes() == b"n\0\0"


def test_a_full_disk_is_an_error_that_can_be_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    files = OpenFiles(8, writable=True)
    monkeypatch.setattr(os, "pwrite", full)

    with pytest.raises(DiskFullError, match="no room for 5 bytes"):
        files.pwrite(tmp_path / "file", b"entry", 0, file_bytes=100)


def test_a_read_fills_a_buffer(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    files = OpenFiles(8, writable=False)
    room = bytearray(8)

    assert files.pread_into(tmp_path / "file", memoryview(room)[:4], 2) == 4
    assert room == b"2345\0\0\0\0"
    assert files.pread_into(tmp_path / "file", memoryview(room), 6) == 4  # the file ends there
    assert files.pread_into(tmp_path / "none", memoryview(room), 0) == 0
