"""Progress on disk: marks never lead, the checkpoint is always known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.opening.marks import read_mark
from tests.unit.store.stores import message, open_store


def test_queues_and_index_are_on_disk_before_the_mark_and_the_mark_before_the_checkpoint(
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
        mark = read_mark(tmp_path / "orbitmq")
        assert mark is not None
        assert mark.flushed == mark.dispatched == store.log_end
        assert mark.queue_count == 1
        assert mark.index_next == 2
        assert mark.knows(Checkpoint.read(tmp_path / "checkpoint"))


def test_a_store_at_rest_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path) as store:
        store.put(message())
        store._upkeep.round()
        synced: list[int] = []
        monkeypatch.setattr("os.fdatasync", synced.append)
        store._upkeep.round()
        monkeypatch.undo()

        assert synced == []


def test_the_checkpoint_tells_java_the_times(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        receipts = [store.put(message(properties={"KEYS": f"k{n}"})) for n in range(25)]
    checkpoint = Checkpoint.read(tmp_path / "checkpoint")

    assert checkpoint.log_ms == checkpoint.queues_ms == receipts[-1].store_ms
    assert 0 < checkpoint.index_ms <= receipts[-1].store_ms


def test_a_mark_written_under_async_flush_does_not_lead_the_log(tmp_path: Path) -> None:
    from orbitmq.store.config import FlushMode

    with open_store(tmp_path, flush_mode=FlushMode.ASYNC, flush_interval_ms=60_000) as store:
        store.put(message())
        store._upkeep.round()
        mark = read_mark(tmp_path / "orbitmq")

        assert mark is not None
        assert store.flushed == mark.flushed == mark.dispatched == store.log_end
