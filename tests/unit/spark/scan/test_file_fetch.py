from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError
from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.spark.scan.entry_merge import EntryWindow
from orbitmq.spark.scan.file_fetch import GAP_BYTES_MAX, RecordFetch, batch_windows, plan_reads
from orbitmq.spark.scan.store_partitions import QueueSlice, StoreLocation
from orbitmq.store.files.file_names import file_name
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.log.stand_ins import stand_in_for_message
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    WriterProcess,
    change,
    fill,
)


def slices_of(root: Path, *keys: tuple[str, int]) -> list[QueueSlice]:
    """Everything visible of queues."""
    found: list[QueueSlice] = []
    with ReadOnlyStore(root) as store:
        for topic, queue_id in keys or store.queue_keys():
            queue = store.queue(topic, queue_id)
            found.append(
                QueueSlice(
                    topic,
                    queue_id,
                    queue.start,
                    queue.end,
                    queue.disk_end,
                    queue.on_disk.file_bytes,
                    queue.tail,
                )
            )
    return found


def location(root: Path) -> StoreLocation:
    return StoreLocation(str(root), "broker-a")


def read_all(
    root: Path,
    slices: list[QueueSlice],
    *,
    fail_on_data_loss: bool = True,
    fail_on_unreadable: bool = True,
) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    with RecordFetch(
        location(root), fail_on_data_loss=fail_on_data_loss, fail_on_unreadable=fail_on_unreadable
    ) as fetch:
        for buffer, positions in fetch.batches(slices):
            messages += [decode_record(buffer, int(at)) for at in positions]
    return messages


def window_of(offsets: list[int], sizes: list[int]) -> EntryWindow:
    """Entries of one queue."""
    return EntryWindow(
        np.array(offsets),
        np.array(sizes),
        np.arange(len(offsets)),
        np.zeros(len(offsets), np.int64),
    )


def keys_of(messages: list[StoredMessage]) -> list[int]:
    return [int(message.properties["UNIQ_KEY"][2:]) for message in messages]


def test_records_come_in_the_order_of_the_log(tmp_path: Path) -> None:
    fill(tmp_path, 1_000)

    assert keys_of(read_all(tmp_path, slices_of(tmp_path))) == list(range(1_000))


def test_records_of_one_queue_come_without_those_between(tmp_path: Path) -> None:
    fill(tmp_path, 1_000)

    found = read_all(tmp_path, slices_of(tmp_path, ("topic1", 1)))

    assert keys_of(found) == list(range(3, 1_000, 4))
    assert {message.topic for message in found} == {"topic1"}


def test_entries_not_yet_written_to_queue_files_are_read(tmp_path: Path) -> None:
    with WriterProcess(tmp_path, queue_flush_interval_ms=10**6) as writer:
        writer.ask(first=0, count=300)
        slices = slices_of(tmp_path)
        writer.ask(first=300, count=300)

        assert sum(len(one.tail) for one in slices) == 300 * ENTRY.size
        assert keys_of(read_all(tmp_path, slices)) == list(range(300))


def test_a_store_that_is_not_mounted_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"not a folder here .*mount"):
        RecordFetch(location(tmp_path / "none"))


def test_deleted_log_files_are_an_error(tmp_path: Path) -> None:
    fill(tmp_path, 1_000)
    slices = slices_of(tmp_path)
    (tmp_path / "commitlog" / file_name(0)).unlink()

    with pytest.raises(RecordsDeletedError, match=r"'broker-a' .*failOnDataLoss=false"):
        read_all(tmp_path, slices)


def test_deleted_messages_are_skipped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 1_000)
    slices = slices_of(tmp_path)
    (tmp_path / "commitlog" / file_name(0)).unlink()
    with ReadOnlyStore(tmp_path) as store:
        left = [offset for offset, _ in store.records()]

    with caplog.at_level(logging.WARNING):
        found = read_all(tmp_path, slices, fail_on_data_loss=False)

    assert [message.physical_offset for message in found] == left
    assert f"count={1_000 - len(left)}" in caplog.text


def test_deleted_queue_files_are_an_error(tmp_path: Path) -> None:
    fill(tmp_path, 1_000)
    slices = slices_of(tmp_path, ("topic0", 0))
    (tmp_path / "consumequeue" / "topic0" / "0" / file_name(QUEUE_FILE_BYTES)).unlink()

    with pytest.raises(RecordsDeletedError, match="messages 50 to 99 of queue 0 of topic 'topic0'"):
        read_all(tmp_path, slices)
    assert len(read_all(tmp_path, slices, fail_on_data_loss=False)) == 200


def test_an_entry_of_another_record_is_damage(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    slices = slices_of(tmp_path, ("topic0", 0))
    file = tmp_path / "consumequeue" / "topic0" / "0" / file_name(0)
    offset, size, tag = ENTRY.unpack_from(file.read_bytes(), 20)
    change(file, 20, ENTRY.pack(offset + 1, size, tag))

    with pytest.raises(StoreDamagedError, match=r"points to a record of .*, but there is none"):
        read_all(tmp_path, slices)
    assert keys_of(read_all(tmp_path, slices, fail_on_unreadable=False)) == [0, *range(8, 100, 4)]


def test_an_entry_that_leaves_its_file_is_damage(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    slices = slices_of(tmp_path, ("topic0", 0))
    file = tmp_path / "consumequeue" / "topic0" / "0" / file_name(0)
    offset, _, tag = ENTRY.unpack_from(file.read_bytes(), 0)
    change(file, 0, ENTRY.pack(offset, 0x7FFFFFF0, tag))

    with pytest.raises(StoreDamagedError, match="a record of 2147483632 bytes"):
        read_all(tmp_path, slices)
    assert keys_of(read_all(tmp_path, slices, fail_on_unreadable=False)) == [*range(4, 100, 4)]


def test_stand_ins_for_lost_records_are_not_messages(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    slices = slices_of(tmp_path, ("topic0", 0))
    file = tmp_path / "consumequeue" / "topic0" / "0" / file_name(0)
    offset, size, _ = ENTRY.unpack_from(file.read_bytes(), 20)
    stand_in = stand_in_for_message(
        size, topic=b"topic0", queue_id=0, queue_offset=1, physical_offset=offset, store_ms=1
    )
    change(tmp_path / "commitlog" / file_name(0), offset, stand_in)

    assert keys_of(read_all(tmp_path, slices)) == [0, *range(8, 100, 4)]


def test_a_record_larger_than_the_buffer_is_read() -> None:
    found = list(batch_windows(window_of([0, 9_000_000], [9_000_000, 100]), bytes_max=4_000_000))

    assert [batch.physical_offsets.tolist() for batch in found] == [[0], [9_000_000]]


@given(st.lists(st.tuples(st.integers(0, 3 * GAP_BYTES_MAX), st.integers(91, 9_000)), min_size=1))
def test_batches_and_reads_cover_every_record_once(steps: list[tuple[int, int]]) -> None:
    offsets, at = [], 0
    for gap, size in steps:
        at += gap
        if at // LOG_FILE_BYTES != (at + size) // LOG_FILE_BYTES:
            at = (at // LOG_FILE_BYTES + 1) * LOG_FILE_BYTES
        offsets.append(at)
        at += size
    window = window_of(offsets, [size for _, size in steps])

    seen: list[int] = []
    for batch in batch_windows(window, rows_max=7, bytes_max=20_000):
        plan = plan_reads(batch, LOG_FILE_BYTES)
        assert batch.physical_offsets.size <= 7
        read_bytes = sum(read.size for read in plan.reads)
        assert read_bytes <= 20_000 + batch.record_bytes.max() or batch.physical_offsets.size == 1
        for read in plan.reads:
            last = read.offset + read.size - 1
            assert read.offset // LOG_FILE_BYTES == last // LOG_FILE_BYTES
        for offset, position, number in zip(
            batch.physical_offsets, plan.positions, plan.read_of, strict=True
        ):
            read = plan.reads[number]
            assert position == read.at + offset - read.offset
            seen.append(int(offset))
    assert seen == offsets
