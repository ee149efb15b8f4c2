"""The checkpoint file, shared with Java."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orbitmq.store.opening.checkpoint import Checkpoint


def test_the_file_is_one_page_in_javas_layout(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint = Checkpoint(
        log_ms=1, queues_ms=2, index_ms=3, master_flushed_offset=4, confirmed_offset=5
    )

    checkpoint.write(path)

    assert path.read_bytes() == struct.pack(">5q", 1, 2, 3, 4, 5) + bytes(4096 - 40)
    again = Checkpoint.read(path)
    assert again == checkpoint
    assert again.fingerprint == checkpoint.fingerprint


@pytest.mark.parametrize("content", [None, b"", bytes(39)])
def test_a_missing_or_short_file_has_zero_times(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "checkpoint").write_bytes(content)

    checkpoint = Checkpoint.read(tmp_path / "checkpoint")

    assert not checkpoint.is_present
    assert checkpoint.safe_ms == 0


def test_times_are_taken_three_seconds_back() -> None:
    checkpoint = Checkpoint(log_ms=10_000, queues_ms=8_000, index_ms=4_000)

    assert checkpoint.safe_ms == 5_000
    assert checkpoint.safe_index_ms == 4_000
    assert Checkpoint(log_ms=100, queues_ms=100).safe_ms == 0


def test_any_field_changes_the_fingerprint() -> None:
    checkpoints = (
        Checkpoint(),
        Checkpoint(log_ms=7),
        Checkpoint(queues_ms=7),
        Checkpoint(index_ms=7),
        Checkpoint(master_flushed_offset=7),
        Checkpoint(confirmed_offset=7),
    )

    assert len({checkpoint.fingerprint for checkpoint in checkpoints}) == 6
