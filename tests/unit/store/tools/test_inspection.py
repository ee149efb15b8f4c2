from __future__ import annotations

import os
from pathlib import Path

from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.layout import SystemFlag
from orbitmq.store.log.draft import Draft
from orbitmq.store.reading.reserved_offsets import FILE_NAME, ReservedOffsets
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.inspection import Inspection, inspect, lock_holder
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    T0,
    WriterProcess,
    as_rocketmq,
    draft,
    fill,
    open_store,
)


def inspected(root: Path, *, with_counts: bool = False) -> Inspection:
    with ReadOnlyStore(root) as store:
        return inspect(store, with_counts=with_counts)


def test_files_queues_times_and_state_are_shown_without_a_scan(tmp_path: Path) -> None:
    fill(tmp_path)

    found = inspected(tmp_path)

    assert (found.log_start, found.log_file_bytes) == (0, LOG_FILE_BYTES)
    assert [file.first_offset for file in found.log_files] == [
        number * LOG_FILE_BYTES for number in range(6)
    ]
    assert found.log_files[0].used_bytes == LOG_FILE_BYTES
    assert found.log_files[-1].used_bytes == found.log_end - 5 * LOG_FILE_BYTES
    assert (found.first_store_ms, found.last_store_ms) == (T0, T0 + 9990)
    assert found.topics == ("topic0", "topic1")
    queue = found.queues[3]
    assert (queue.topic, queue.queue_id, queue.start, queue.end) == ("topic1", 1, 0, 250)
    assert (queue.first_store_ms, queue.last_store_ms) == (T0 + 30, T0 + 9990)
    assert sum(file.keys for file in found.index_files) == 3000
    assert found.counts is None
    state = found.state
    assert (state.written_by, state.is_clean, state.locked_by) == ("OrbitMQ", True, None)
    assert state.watermark == state.flushed_mark == state.dispatched_mark == found.log_end
    assert state.checkpoint_log_ms == T0 + 9990
    assert found.strange_files == found.unreadable == ()


def test_an_open_store_tells_who_has_it(tmp_path: Path) -> None:
    with WriterProcess(tmp_path) as writer:
        writer.ask(first=0, count=10)

        state = inspected(tmp_path).state

        assert not state.is_clean
        assert state.abort_pid == str(state.locked_by)
        assert state.locked_by not in (None, os.getpid())
    assert lock_holder(tmp_path) is None
    assert lock_holder(tmp_path / "none") is None


def test_records_are_counted_when_asked(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    with open_store(tmp_path) as store:
        store.put(Draft(topic="half", body=b"x", system_flag=int(SystemFlag.PREPARED)))

    counts = inspected(tmp_path, with_counts=True).counts

    assert counts is not None
    assert counts.records == 101
    assert counts.queued == {"topic0": 50, "topic1": 50}
    assert counts.unqueued == 1


def test_a_rocketmq_store_is_recognised(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    as_rocketmq(tmp_path)

    state = inspected(tmp_path).state

    assert state.written_by == "RocketMQ"
    assert state.watermark is state.flushed_mark is state.dispatched_mark is None


def test_what_cannot_be_read_does_not_hide_the_rest(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    queue = tmp_path / "consumequeue" / "topic0" / "0"
    (queue / f"{1000:020d}").write_bytes(b"odd")
    (tmp_path / "index" / "00000000000000001").write_bytes(b"short")
    (tmp_path / "index" / "notes").write_bytes(b"")
    (tmp_path / "commitlog" / "notes").write_bytes(b"")

    found = inspected(tmp_path)

    assert len(found.queues) == 3
    assert len(found.unreadable) == 2
    assert len(found.strange_files) == 2


def test_a_queue_whose_messages_were_all_deleted_is_shown_empty(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(Draft(topic="old", body=b"x"))
        while store.log_end < 2 * LOG_FILE_BYTES:
            store.put(draft(0))
        parts = store.parts
        parts.queues.raise_starts(parts.log.delete_first())

    old = next(queue for queue in inspected(tmp_path).queues if queue.topic == "old")

    assert (old.start, old.end, old.first_store_ms, old.last_store_ms) == (1, 1, -1, -1)


def test_topics_in_memory_are_listed_with_a_warning(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    assert (inspected(tmp_path).memory_queues, inspected(tmp_path).warnings) == ((), ())
    ends = {("prices", 1): 100, ("prices", 0): 7, ("topic0", 0): 5, ("moved", 0): 9}
    ReservedOffsets(tmp_path / "orbitmq").write(
        {key: QueueOffset(end) for key, end in ends.items()},
        PhysicalOffset(2**62),
        # The one has messages on disk since, the other has none yet.
        on_disk={"topic0", "moved"},
    )

    found = inspected(tmp_path)

    assert [(queue.topic, queue.queue_id, queue.reserved_end) for queue in found.memory_queues] == [
        ("moved", 0, 9),
        ("prices", 0, 7),
        ("prices", 1, 100),
    ]
    (warning,) = found.warnings
    assert "moved, prices; a Java broker would start their queues at offset 0" in warning
    assert found.topics == ("topic0", "topic1")


def test_damaged_reservations_do_not_hide_the_rest(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    (tmp_path / "orbitmq" / FILE_NAME).write_bytes(b"odd")

    found = inspected(tmp_path)

    assert len(found.queues) == 4
    assert "reserved_offsets is damaged" in found.unreadable[0]


def test_an_empty_folder_is_an_empty_store(tmp_path: Path) -> None:
    found = inspected(tmp_path, with_counts=True)

    assert not found.log_files
    assert not found.queues
    assert found.first_store_ms == found.last_store_ms == -1
