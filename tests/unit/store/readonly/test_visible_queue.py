from __future__ import annotations

from pathlib import Path

from orbitmq.model.queues import QueueOffset
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.readonly.queue_files import ReadOnlyQueue
from orbitmq.store.readonly.visible_queue import VisibleQueue


def a_queue(folder: Path) -> VisibleQueue:
    """Three entries on disk, of which the first is deleted, and two from the log."""
    on_disk = b"".join(ENTRY.pack(number * 100, 100, number) for number in range(3))
    (folder / f"{0:020d}").write_bytes(on_disk.ljust(1000, b"\0"))
    tail = ENTRY.pack(350, 50, 3) + ENTRY.pack(900, 50, 4)
    disk = ReadOnlyQueue(folder, OpenFiles(4, writable=False))
    return VisibleQueue(disk, QueueOffset(1), QueueOffset(3), tail)


def test_entries_come_from_disk_and_then_from_the_log(tmp_path: Path) -> None:
    queue = a_queue(tmp_path)

    assert queue.end == 5
    assert [queue.entry(number)[2] for number in range(1, 5)] == [1, 2, 3, 4]
    assert [entry[2] for entry in queue.entries(2, 2)] == [2, 3]
    assert [entry[2] for entry in queue.entries(1, 99)] == [1, 2, 3, 4]
    assert list(queue.entries(5, 1)) == []


def test_the_first_entry_from_a_physical_offset_on_is_found(tmp_path: Path) -> None:
    queue = a_queue(tmp_path)

    assert [queue.first_from(at) for at in (0, 100, 101, 201, 351, 901)] == [1, 1, 2, 3, 4, 5]
