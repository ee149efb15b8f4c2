"""Numbers reserved on disk."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from orbitmq.errors import DiskFullError, StoreDamagedError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.reading.memory_log import FIRST_OFFSET, MemoryLog
from orbitmq.store.reading.reserved_offsets import FILE_NAME, ReservedOffsets

BOUNDS = {("orders", 0): QueueOffset(100), ('odd "name"\n', 3): QueueOffset(2**62)}


def test_nothing_is_reserved_without_a_file(tmp_path: Path) -> None:
    reserved = ReservedOffsets(tmp_path)

    assert (reserved.bounds, reserved.on_disk) == ({}, frozenset())
    assert reserved.physical_bound == FIRST_OFFSET
    assert list(tmp_path.iterdir()) == []


def test_bounds_are_read_back(tmp_path: Path) -> None:
    ReservedOffsets(tmp_path / "own").write(BOUNDS, PhysicalOffset(2**62 + 5), on_disk={"orders"})

    reserved = ReservedOffsets(tmp_path / "own")

    assert reserved.bounds == BOUNDS
    assert reserved.physical_bound == 2**62 + 5
    assert reserved.on_disk == {"orders"}


def test_a_queue_may_use_numbers_and_bytes_below_the_bounds_only(tmp_path: Path) -> None:
    reserved = ReservedOffsets(tmp_path)
    log = MemoryLog(1000)
    queue = log.queue("orders", 0, QueueOffset(90))
    assert not reserved.cover(queue, 1, FIRST_OFFSET)

    reserved.write(BOUNDS, PhysicalOffset(FIRST_OFFSET + 50))

    assert reserved.cover(queue, 10, FIRST_OFFSET + 50)
    assert not reserved.cover(queue, 11, FIRST_OFFSET + 50)
    assert not reserved.cover(queue, 10, FIRST_OFFSET + 51)
    assert not reserved.cover(log.queue("orders", 1, QueueOffset(0)), 1, FIRST_OFFSET)


@pytest.mark.parametrize("at", [0, 30, -3])
def test_a_changed_byte_is_noticed(tmp_path: Path, at: int) -> None:
    ReservedOffsets(tmp_path).write(BOUNDS, FIRST_OFFSET)
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)

    with pytest.raises(
        StoreDamagedError, match=r"reserved_offsets is damaged.*reset the consumers"
    ):
        ReservedOffsets(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\xff\n\xff\n", b"{}\n%08x" % crc32(b"{}")])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)

    with pytest.raises(StoreDamagedError):
        ReservedOffsets(tmp_path)


def test_unchanged_bounds_are_not_written_again(tmp_path: Path) -> None:
    ReservedOffsets(tmp_path).write(BOUNDS, FIRST_OFFSET)
    written = (tmp_path / FILE_NAME).stat().st_ino
    reserved = ReservedOffsets(tmp_path)

    reserved.write(dict(BOUNDS), FIRST_OFFSET, on_disk=set())
    assert (tmp_path / FILE_NAME).stat().st_ino == written
    reserved.write(BOUNDS, FIRST_OFFSET, on_disk={"orders"})
    assert (tmp_path / FILE_NAME).stat().st_ino != written


def test_a_failed_write_changes_nothing_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved = ReservedOffsets(tmp_path)
    reserved.write(BOUNDS, FIRST_OFFSET)

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(DiskFullError, match="reserved_offsets"):
        reserved.write({}, PhysicalOffset(2**62 + 1))
    monkeypatch.undo()

    assert reserved.bounds == ReservedOffsets(tmp_path).bounds == BOUNDS
    assert reserved.physical_bound == FIRST_OFFSET
