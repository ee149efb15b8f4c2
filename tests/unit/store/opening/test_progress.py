"""Saved progress: read back, never ahead of the disk, and always knows its checkpoint."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.config import FlushMode
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.progress import ProgressFile, SavedProgress, read_progress
from tests.unit.store.stores import message, open_store

SAVED = SavedProgress(
    flushed=PhysicalOffset(100),
    dispatched=PhysicalOffset(90),
    index_name=20260101000000000,
    index_next=7,
    queue_count=3,
    checkpoint_before=1,
    checkpoint_after=2,
)


def test_progress_is_read_back(tmp_path: Path) -> None:
    progress_file = ProgressFile(tmp_path / "orbitmq")
    assert not progress_file.is_present

    progress_file.write(SAVED)
    progress_file.close()

    again = ProgressFile(tmp_path / "orbitmq")
    assert again.is_present
    assert again.saved == SAVED
    assert read_progress(tmp_path / "orbitmq") == SAVED
    assert read_progress(tmp_path / "nowhere") is None


def test_raising_the_flushed_offset_keeps_the_rest_and_never_lowers_it(tmp_path: Path) -> None:
    progress_file = ProgressFile(tmp_path)
    progress_file.write(SAVED)

    progress_file.raise_flushed(PhysicalOffset(200))
    progress_file.raise_flushed(PhysicalOffset(150))

    assert read_progress(tmp_path) == replace(SAVED, flushed=PhysicalOffset(200))


def test_a_torn_slot_leaves_the_one_before(tmp_path: Path) -> None:
    progress_file = ProgressFile(tmp_path)
    progress_file.write(SAVED)
    before = (tmp_path / "marks").read_bytes()
    progress_file.raise_flushed(PhysicalOffset(200))
    after = (tmp_path / "marks").read_bytes()
    changed = [at for at in range(len(after)) if after[at : at + 1] != before[at : at + 1]]

    for at in range(changed[0], changed[-1]):
        torn = before.ljust(len(after), b"\0")
        (tmp_path / "marks").write_bytes(after[: at + 1] + torn[at + 1 :])

        assert read_progress(tmp_path) in (SAVED, replace(SAVED, flushed=PhysicalOffset(200)))


def test_a_file_of_zeros_or_garbage_is_no_progress(tmp_path: Path) -> None:
    for content in (b"", bytes(1024), b"\xff" * 1024, b"x" * 100):
        (tmp_path / "marks").write_bytes(content)

        assert read_progress(tmp_path) is None
        assert not ProgressFile(tmp_path).is_present


def test_progress_knows_the_checkpoint_it_was_written_with_and_the_one_before() -> None:
    before, after, other = (Checkpoint(log_ms=ms, is_present=True) for ms in (1_000, 2_000, 3_000))
    progress = replace(
        SAVED, checkpoint_before=before.fingerprint, checkpoint_after=after.fingerprint
    )

    assert progress.knows(before)
    assert progress.knows(after)
    assert not progress.knows(other)
    assert progress.knows(Checkpoint())


def test_queues_and_index_are_on_disk_before_the_progress_and_that_before_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fdatasync

    def spy(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(path.relative_to(tmp_path).parts[-1 if path.parent == tmp_path else 0])
        sync(descriptor)

    with open_store(tmp_path) as store:
        store.put(message(properties={"KEYS": "k"}))
        monkeypatch.setattr("os.fdatasync", spy)
        store._upkeep.round()
        monkeypatch.undo()

        assert synced == ["consumequeue", "index", "orbitmq", "checkpoint"]
        progress = read_progress(tmp_path / "orbitmq")
        assert progress is not None
        assert progress.flushed == progress.dispatched == store.log_end
        assert progress.queue_count == 1
        assert progress.index_next == 2
        assert progress.knows(Checkpoint.read(tmp_path / "checkpoint"))


def test_a_store_at_rest_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path) as store:
        store.put(message())
        store._upkeep.round()
        synced: list[int] = []
        monkeypatch.setattr("os.fdatasync", synced.append)
        store._upkeep.round()
        monkeypatch.undo()

        assert synced == []


def test_the_checkpoint_has_the_times_for_java(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        receipts = [store.put(message(properties={"KEYS": f"k{n}"})) for n in range(25)]
    checkpoint = Checkpoint.read(tmp_path / "checkpoint")

    assert checkpoint.log_ms == checkpoint.queues_ms == receipts[-1].store_ms
    assert 0 < checkpoint.index_ms <= receipts[-1].store_ms


def test_progress_saved_under_async_flush_does_not_lead_the_log(tmp_path: Path) -> None:
    with open_store(tmp_path, flush_mode=FlushMode.ASYNC, flush_interval_ms=60_000) as store:
        store.put(message())
        store._upkeep.round()
        progress = read_progress(tmp_path / "orbitmq")

        assert progress is not None
        assert store.flushed == progress.flushed == progress.dispatched == store.log_end
