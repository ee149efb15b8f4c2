"""All queues of a store."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError, StoreFormatError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.index.consume_queues import ConsumeQueues


def _queues(folder: Path) -> ConsumeQueues:
    return ConsumeQueues(folder / "consumequeue", 199)


def _put(queues: ConsumeQueues, topic: str, queue_id: int, number: int, place: int) -> None:
    with queues.lock:
        queues.append(topic, queue_id, QueueOffset(number), ENTRY.pack(place, 100, 7))


def test_queues_are_found_again_with_their_entries(tmp_path: Path) -> None:
    queues = _queues(tmp_path)
    for place in range(30):
        _put(queues, f"topic{place % 3}", place % 2, place // 6, place * 100)
    queues.sync()
    queues.close()

    again = _queues(tmp_path)
    assert again.load(PhysicalOffset(3000)) == 0
    assert len(again) == again.count == 6
    assert sorted((q.topic, q.queue_id, q.end) for q in again) == [
        (f"topic{t}", q, 5) for t in range(3) for q in range(2)
    ]
    assert again.find("topic0", 9) is None


def test_ten_thousand_queues_work_within_ordinary_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fdatasync", lambda _: None)
    monkeypatch.setattr("os.fsync", lambda _: None)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    maps = Path("/proc/self/maps")
    maps_before = len(maps.read_text().splitlines())
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        queues = _queues(tmp_path)
        for number in range(10_000):
            _put(queues, f"topic{number % 100}", number // 100, 0, number * 100)
        queues.sync()
        queues.close()
        again = _queues(tmp_path)
        again.load(PhysicalOffset(2_000_000))

        assert again.count == 10_000
        assert len(maps.read_text().splitlines()) - maps_before < 1000
        assert all(
            (queue.entry(QueueOffset(0)) or (0,))[0]
            == (int(queue.topic[5:]) + queue.queue_id * 100) * 100
            for queue in again
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_cannot_be_written_stays_in_memory_and_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = _queues(tmp_path)
    pwrite = os.pwrite

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for number in range(5):
        _put(queues, "orders", number, 0, number * 100)
    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(DiskFullError):
        queues.sync()
    assert queues.unsynced_count == 5
    assert all(queue.entry(QueueOffset(0)) for queue in queues)

    monkeypatch.setattr("os.pwrite", pwrite)
    queues.sync()
    assert queues.unsynced_count == 0
    again = _queues(tmp_path)
    again.load(PhysicalOffset(500))
    assert again.count == 5


def test_a_doubtful_queue_is_dropped(tmp_path: Path) -> None:
    queues = _queues(tmp_path)
    for number in range(25):
        _put(queues, "orders", 0, number, number * 100)
        _put(queues, "orders", 1, number, number * 100)
    queues.sync()
    (tmp_path / "consumequeue" / "orders" / "0" / f"{200:020d}").unlink()

    again = _queues(tmp_path)
    assert again.load(PhysicalOffset(2500)) == 1
    assert again.count == 1
    assert again.load(PhysicalOffset(2500), is_consistent=lambda queue: queue.queue_id != 1) == 2
    assert again.count == 0


def test_names_left_unsynced_by_a_killed_process_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = _queues(tmp_path)
    _put(queues, "orders", 0, 0, 0)
    queues.write()
    synced: list[str] = []

    def spy(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr("os.fsync", spy)
    again = _queues(tmp_path)
    again.load(PhysicalOffset(100), names_synced=False)
    again.sync()

    assert synced == ["0", "orders", "consumequeue", tmp_path.name]


def test_a_topic_is_deleted_with_its_folders(tmp_path: Path) -> None:
    queues = _queues(tmp_path)
    _put(queues, "orders", 0, 0, 0)
    _put(queues, "orders", 1, 0, 100)
    _put(queues, "other", 0, 0, 200)
    queues.sync()

    queues.delete_topic("orders")
    queues.sync()

    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["other"]
    assert queues.find("orders", 0) is None
    queues.delete_all()
    assert len(queues) == 0


def test_starts_of_all_queues_move_together(tmp_path: Path) -> None:
    queues = _queues(tmp_path)
    for number in range(25):
        _put(queues, "orders", 0, number, number * 100)
    queues.sync()

    queues.raise_starts(PhysicalOffset(1500))
    queues.sync()

    queue = queues.find("orders", 0)
    assert queue is not None
    assert queue.start == 15


@pytest.mark.parametrize("name", ["file", "orders/x", "orders/-1"])
def test_a_foreign_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "consumequeue" / name
    path.parent.mkdir(parents=True)
    path.write_text("x")

    with pytest.raises(StoreFormatError, match="move it away"):
        _queues(tmp_path).load()
