"""Slot files: the last complete write counts, whatever a crash or another version left."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError
from orbitmq.store.files.slot_file import SlotFile, block_layout, read_slot

ONE = (block_layout("qI"),)
TWO = (*ONE, block_layout("q"))


def _block(sequence: int, *values: int, layout: str) -> bytes:
    fields = struct.pack(">q" + layout, sequence, *values)
    return fields + struct.pack(">I", zlib.crc32(fields))


def test_slots_are_written_in_turn_with_the_bytes_of_the_layout(tmp_path: Path) -> None:
    file = SlotFile(tmp_path / "new" / "slots", TWO)
    assert file.found is None

    for number in (1, 2, 3):
        file.write((number, 7), (-number,))

    second, third = (
        (_block(n, n, 7, layout="qI") + _block(n, -n, layout="q")).ljust(512, b"\0") for n in (2, 3)
    )
    assert (tmp_path / "new" / "slots").read_bytes() == second + third
    assert SlotFile(tmp_path / "new" / "slots", TWO).found == [(3, 7), (-3,)]
    assert read_slot(tmp_path / "new" / "slots", ONE) == [(3, 7)]


def test_a_slot_torn_at_any_byte_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    file = SlotFile(path, ONE)
    file.write((1, 1))
    before = path.read_bytes()
    file.write((2, 2))
    after = path.read_bytes()

    found = set()
    for at in range(len(after) + 1):
        path.write_bytes(after[:at] + before[at:])
        (values,) = read_slot(path, ONE) or [None]
        found.add(values)

    assert found == {(1, 1), (2, 2)}


def test_a_later_block_that_an_older_version_left_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    SlotFile(path, TWO).write((1, 1), (10,))
    older = SlotFile(path, ONE)
    for number in (2, 3):
        older.write((number, number))

    assert read_slot(path, TWO) == [(3, 3), None]


@pytest.mark.parametrize("content", [b"", bytes(1024), b"\xff" * 1024, b"x" * 100])
def test_zeros_and_garbage_are_no_slot(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "slots").write_bytes(content)

    assert read_slot(tmp_path / "slots", TWO) is None


def test_a_failed_write_is_repeated_in_the_same_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slots"
    file = SlotFile(path, ONE)
    file.write((1, 1))

    def torn(descriptor: int, content: bytes, at: int) -> int:
        written(descriptor, content[:5], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    written = os.pwrite
    for _ in range(2):
        monkeypatch.setattr("os.pwrite", torn)
        with pytest.raises(DiskFullError, match=f"no room for 512 bytes of {path}"):
            file.write((2, 2))
        monkeypatch.undo()
        assert read_slot(path, ONE) == [(1, 1)]

    file.write((2, 2))
    assert read_slot(path, ONE) == [(2, 2)]
