"""The watermark, for this process and for others."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.index.watermark import Watermark, read_watermark


def test_it_starts_at_the_given_offset_and_never_falls(tmp_path: Path) -> None:
    watermark = Watermark(tmp_path / "orbitmq", PhysicalOffset(10))
    seen = [read_watermark(tmp_path / "orbitmq")]
    for offset in (30, 20, 40):
        watermark.raise_to(PhysicalOffset(offset))
        seen.append(read_watermark(tmp_path / "orbitmq"))
    watermark.close()

    assert seen == [10, 30, 30, 40]
    assert read_watermark(tmp_path / "orbitmq") == 40


def test_a_store_without_one_has_none(tmp_path: Path) -> None:
    assert read_watermark(tmp_path) is None


def test_copies_that_disagree_are_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "watermark").write_bytes(bytes(8) + b"\1" * 8)

    assert read_watermark(tmp_path) is None


def test_a_full_disk_is_an_error_before_anything_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)

    with pytest.raises(DiskFullError):
        Watermark(tmp_path, PhysicalOffset(0))
