"""Open files that close when their last user drops them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError, StoreError
from orbitmq.store.files import descriptor as descriptor_module
from orbitmq.store.files.descriptor import Descriptor, write_failure


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_a_file_is_closed_when_its_last_user_drops_it(tmp_path: Path) -> None:
    descriptor = Descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    number = descriptor.number
    reader = descriptor
    del descriptor

    assert _is_open(number)
    del reader
    assert not _is_open(number)


def test_a_missing_file_leaves_nothing_open(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Descriptor(tmp_path / "file", os.O_RDWR)


def test_writes_and_reads_repeat_until_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr("os.pwrite", lambda fd, content, at: pwrite(fd, content[:3], at))
    monkeypatch.setattr("os.pread", lambda fd, count, at: pread(fd, min(count, 2), at))
    descriptor = Descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT)

    descriptor.pwrite(b"0123456789", 5)

    assert descriptor.pread(100, 5) == b"0123456789"


def test_clearing_writes_only_where_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = Descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor.number, 10 << 20)
    descriptor.pwrite(b"keep", 4096)
    descriptor.pwrite(b"stale", 5 << 20)
    written: list[int] = []
    pwrite = os.pwrite

    def spy(number: int, content: bytes, at: int) -> int:
        written.append(len(content))
        return pwrite(number, content, at)

    monkeypatch.setattr("os.pwrite", spy)
    descriptor.clear(4100, 10 << 20)

    assert descriptor.pread(4, 4096) == b"keep"
    assert not any(descriptor.pread(10 << 20, 4100))
    assert sum(written) <= 64 * 1024


@pytest.mark.parametrize("read_before", [0, 16], ids=["untouched", "read ahead before"])
def test_clearing_does_not_read_pages_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_before: int
) -> None:
    descriptor = Descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor.number, 0, 64 << 20)
    descriptor.pwrite(b"keep", 4096)
    descriptor.sync()
    for at in range(read_before):
        descriptor.pread(1 << 20, at << 20)
    read: list[int] = []
    pread = os.pread

    def spy(number: int, count: int, at: int) -> bytes:
        read.append(count)
        return pread(number, count, at)

    monkeypatch.setattr("os.pread", spy)
    descriptor.clear(4100, 64 << 20)

    assert sum(read) <= 64 * 1024


def test_a_full_disk_and_a_refusal_are_different_errors(tmp_path: Path) -> None:
    full = write_failure(tmp_path, OSError(errno.ENOSPC, "No space left"), what="8 bytes")
    refused = write_failure(tmp_path, OSError(errno.EACCES, "Permission denied"), what="8 bytes")

    assert isinstance(full, DiskFullError)
    assert full.retryable
    assert not isinstance(refused, DiskFullError)
    assert isinstance(refused, StoreError)
    assert "permissions" in str(refused)


def _failing(error: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(error, "injected")

    return fail


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.EOPNOTSUPP, errno.EIO])
def test_a_read_that_would_wait_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    descriptor = Descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    descriptor.pwrite(b"content", 0)
    monkeypatch.setattr("os.preadv", _failing(error))

    with pytest.raises(BlockingIOError, match="7 bytes at 0"):
        descriptor.pread_nowait(7, 0)
    assert descriptor.pread(7, 0) == b"content"


def test_bytes_in_memory_are_read_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptor = Descriptor(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    descriptor.pwrite(b"content", 0)

    def in_memory(number: int, buffers: list[bytearray], at: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        return os.readv(number, buffers) if at == 0 else 0

    monkeypatch.setattr("os.preadv", in_memory)

    assert descriptor.pread_nowait(7, 0) == b"content"
    with pytest.raises(BlockingIOError):
        descriptor.pread_nowait(7, 0)  # fewer bytes than wanted
    monkeypatch.setattr(descriptor_module, "_NOWAIT", 0)
    os.lseek(descriptor.number, 0, os.SEEK_SET)
    with pytest.raises(BlockingIOError):
        descriptor.pread_nowait(7, 0)  # a system that cannot tell


def test_reads_into_a_buffer_repeat_until_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda number, rooms, at: whole(number, [rooms[0][:3]], at))
    room = bytearray(12)

    assert Descriptor(tmp_path / "file", os.O_RDONLY).pread_into(memoryview(room), 1) == 9
    assert room == b"123456789\0\0\0"
