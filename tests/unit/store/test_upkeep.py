"""Background work on the store's files."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock, SystemClock
from orbitmq.errors import DiskFullError, StoreError, StoreFencedError
from orbitmq.model.queues import QueueOffset
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.index.consume_queues import ConsumeQueues
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.obstacles import Obstacles
from orbitmq.store.upkeep import Intervals, Upkeep
from tests.unit.store.stores import LOG_FILE_BYTES, message, open_store, write


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_next_log_file_is_created_while_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by: list[str] = []
    made = threading.Event()
    allocate = os.posix_fallocate

    def spy(descriptor: int, start: int, count: int) -> None:
        allocate(descriptor, start, count)
        if count == LOG_FILE_BYTES:
            made_by.append(threading.current_thread().name)
            made.set()

    with open_store(tmp_path, index_enable=False) as store:
        store.put(message())
        monkeypatch.setattr("os.posix_fallocate", spy)
        for _ in range(8):
            store.append(message(bytes(5000)))

        assert made.wait(60)
        assert made_by == ["store upkeep"]


def test_queues_without_room_stop_appending_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def full(descriptor: int, content: bytes, at: int) -> int:
        if "/consumequeue/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            _full()
        return pwrite(descriptor, content, at)

    with open_store(tmp_path) as store:
        store.put(message(b"0"))
        monkeypatch.setattr("os.pwrite", full)
        store._upkeep.round()
        with pytest.raises(DiskFullError, match="cannot write to the store"):
            store.append(message(b"1"))
        assert len(store.read("orders", 0, 0).records) == 1

        monkeypatch.undo()
        store._upkeep.round()
        store.put(message(b"1"))

        assert store.end_of("orders", 0) == 2


def test_a_failed_sync_in_upkeep_fences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with open_store(tmp_path) as store:
        store.put(message())
        monkeypatch.setattr("os.fdatasync", fail)
        store._upkeep.round()
        monkeypatch.undo()

        with pytest.raises(StoreFencedError):
            store.put(message())
    assert (tmp_path / "abort").exists()


def test_a_bug_in_upkeep_fences_the_store(tmp_path: Path) -> None:
    fenced: list[str] = []

    def bug() -> None:
        raise RuntimeError("a bug")

    upkeep = Upkeep(
        commit_log=CommitLog([tmp_path], LOG_FILE_BYTES),
        queues=ConsumeQueues(tmp_path / "q", 200),
        save=bug,
        retry=lambda: None,
        fence=fenced.append,
        retain=lambda: None,
        scrub=lambda: None,
        obstacles=Obstacles(),
        clock=SystemClock(),
        intervals=Intervals(round_ms=1000, thorough_ms=1000, retain_ms=10_000),
    )
    upkeep.round()

    assert fenced == ["a bug"]


def test_many_queues_are_synced_only_after_the_thorough_interval(tmp_path: Path) -> None:
    clock = ManualClock()
    queues = ConsumeQueues(tmp_path / "q", 200)
    saved: list[float] = []
    upkeep = Upkeep(
        commit_log=CommitLog([tmp_path / "log"], LOG_FILE_BYTES),
        queues=queues,
        save=lambda: saved.append(clock.monotonic_ms()),
        retry=lambda: None,
        fence=lambda _: None,
        retain=lambda: None,
        scrub=lambda: None,
        obstacles=Obstacles(),
        clock=clock,
        intervals=Intervals(round_ms=1000, thorough_ms=60_000, retain_ms=10_000),
    )
    with queues.lock:
        for queue_id in range(65):
            queues.append("t", queue_id, QueueOffset(0), ENTRY.pack(0, 1, 0))
    upkeep.round()
    assert saved == []
    assert all(queue.unwritten_bytes == 0 for queue in queues), "written, not synced"

    clock._now_ms += 60_000
    upkeep.round()
    assert len(saved) == 1


def test_a_log_file_that_cannot_be_prepared_is_no_trouble_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = CommitLog([tmp_path / "log"], LOG_FILE_BYTES)
    upkeep = Upkeep(
        commit_log=log,
        queues=ConsumeQueues(tmp_path / "q", 200),
        save=lambda: None,
        retry=lambda: None,
        fence=lambda _: None,
        retain=lambda: None,
        scrub=lambda: None,
        obstacles=Obstacles(),
        clock=SystemClock(),
        intervals=Intervals(round_ms=1000, thorough_ms=1000, retain_ms=10_000),
    )

    write(log, b"x" * (LOG_FILE_BYTES - 100))
    monkeypatch.setattr("os.posix_fallocate", _full)
    upkeep._prepare_log()
    upkeep._prepare_log()

    assert upkeep.trouble is None
    assert len([r for r in caplog.records if "cannot prepare the next log file" in r.message]) == 1


def test_it_can_be_stopped_without_having_started(tmp_path: Path) -> None:
    def refuse() -> None:
        raise StoreError("never called")

    upkeep = Upkeep(
        commit_log=CommitLog([tmp_path], LOG_FILE_BYTES),
        queues=ConsumeQueues(tmp_path / "q", 200),
        save=refuse,
        retry=refuse,
        fence=lambda _: None,
        retain=lambda: None,
        scrub=lambda: None,
        obstacles=Obstacles(),
        clock=SystemClock(),
        intervals=Intervals(round_ms=1, thorough_ms=1, retain_ms=10_000),
    )
    upkeep.wake()
    upkeep.stop()

    assert upkeep.trouble is None
