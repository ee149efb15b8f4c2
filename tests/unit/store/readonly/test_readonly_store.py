from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError, StoreFormatError
from orbitmq.record.layout import SystemFlag
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.log.draft import Draft
from orbitmq.store.reading.queue_times import Boundary
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.readonly.visible_end import Writer
from tests.unit.store import stores
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    T0,
    WriterProcess,
    as_rocketmq,
    change,
    draft,
    fill,
    open_store,
    snapshot,
)


def bodies(store: ReadOnlyStore, topic: str, queue_id: int) -> list[bytes]:
    bounds = store.bounds(topic, queue_id)
    count = bounds.end - bounds.start
    return [m.body for m in store.messages(topic, queue_id, bounds.start, count)]


def expected(first: int, end: int, topic: int, queue_id: int) -> list[bytes]:
    return [
        draft(number).body
        for number in range(first, end)
        if (number % 2, number // 2 % 2) == (topic, queue_id)
    ]


@pytest.fixture
def read_only_folder(tmp_path: Path) -> Iterator[Path]:
    fill(tmp_path)
    paths = [tmp_path, *tmp_path.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield tmp_path
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_topics_and_queues_are_listed_with_their_bounds(tmp_path: Path) -> None:
    fill(tmp_path)

    with ReadOnlyStore(tmp_path) as store:
        assert store.topics() == ["topic0", "topic1"]
        assert [tuple(bounds) for bounds in store.queues("topic1")] == [
            ("topic1", 0, 0, 250),
            ("topic1", 1, 0, 250),
        ]
        assert len(store.queues()) == 4
        assert tuple(store.bounds("nothing", 0)) == ("nothing", 0, 0, 0)
        assert len(store.log_files()) == 6
        assert store.written_by is Writer.ORBITMQ


def test_a_queue_is_read_as_it_was_written(tmp_path: Path) -> None:
    fill(tmp_path)

    with ReadOnlyStore(str(tmp_path)) as store:
        assert bodies(store, "topic1", 0) == expected(0, 1000, 1, 0)
        assert store.read("topic1", 0, 250, 10) == []
        assert store.read("topic1", 0, 10_000, 10) == []
        assert len(store.read("topic1", 0, 248, 10)) == 2
        assert len(store.read("topic1", 0, 0, 100, bytes_max=1000)) == 2
        assert len(store.read("topic1", 0, 0, 100, bytes_max=1)) == 1


def test_messages_that_lie_back_to_back_are_read_together(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put_batch([Draft(topic="one", body=b"%d" % number) for number in range(500)])

    with ReadOnlyStore(tmp_path) as reader:
        assert bodies(reader, "one", 0) == [b"%d" % number for number in range(500)]


def test_the_log_is_read_in_ranges(tmp_path: Path) -> None:
    fill(tmp_path)

    with ReadOnlyStore(tmp_path) as store:
        every = [offset for offset, _ in store.records()]
        by_file = [
            offset
            for file in store.log_files()
            for offset, _ in store.records(file.first_offset, file.end_offset)
        ]
        chunks = list(store.chunks(chunk_bytes=10_000))

        assert len(every) == 1000
        assert by_file == every
        assert max(len(chunk.records) for chunk in chunks) <= 10_000
        assert sum(len(chunk.records) for chunk in chunks) < store.end
        assert store.message_at(every[7]) is not None
        assert store.message_at(every[7] + 1) is None
        assert store.message_at(store.end) is None


@pytest.mark.parametrize("lost", ["a page", "one entry", "all of the end"])
def test_damaged_entries_skip_no_message_in_a_search_by_time(tmp_path: Path, lost: str) -> None:
    clock = ManualClock(T0)
    with stores.open_store(tmp_path, clock=clock, queue_file_bytes=20 * 10_000) as store:
        for number in range(6000):
            clock._now_ms = T0 + number
            store.append(stores.message())
        store.flush()
    (path,) = (tmp_path / "consumequeue" / "orders" / "0").iterdir()
    content = bytearray(path.read_bytes())
    nowhere = ENTRY.pack(1 << 40, 200, 0)
    if lost == "one entry":
        # The first that a bisection looks at leads to the oldest message.
        content[3000 * 20 : 3001 * 20] = content[:20]
    elif lost == "a page":
        content[2900 * 20 : 3104 * 20] = bytes(204 * 20)
    else:
        content[3000 * 20 : 5999 * 20] = nowhere * 2999
    path.write_bytes(content)

    with ReadOnlyStore(tmp_path) as store:
        assert store.offset_at("orders", 0, T0 + 50) == 50
        assert store.offset_at("orders", 0, T0 + 50, Boundary.UPPER) == 50
        if lost != "all of the end":
            assert store.offset_at("orders", 0, T0 + 5000) == 5000


def test_offsets_are_found_by_store_time(tmp_path: Path) -> None:
    fill(tmp_path)

    with ReadOnlyStore(tmp_path) as store:
        # Message n of topic0, queue 0 is number 4 n, stored at 40 n.
        assert store.offset_at("topic0", 0, T0 + 400) == 10
        assert store.offset_at("topic0", 0, T0 + 401) == 11
        assert store.offset_at("topic0", 0, T0 + 401, Boundary.UPPER) == 10
        assert store.offset_at("topic0", 0, T0 - 1) == 0
        assert store.offset_at("topic0", 0, T0 - 1, Boundary.UPPER) == 0
        assert store.offset_at("topic0", 0, T0 + 100_000_000) == 250
        assert store.store_ms("topic0", 0, 10) == T0 + 400


def test_nothing_is_changed_by_reading(tmp_path: Path) -> None:
    fill(tmp_path)
    before = snapshot(tmp_path)

    with ReadOnlyStore(tmp_path) as store:
        list(store.records())
        for bounds in store.queues():
            bodies(store, bounds.topic, bounds.queue_id)
        store.refresh()

    assert snapshot(tmp_path) == before


def test_a_read_only_folder_is_enough(read_only_folder: Path) -> None:
    if os.geteuid() == 0:
        # Root may write anyway; what counts is that no file is opened for writing.
        flags: list[int] = []
        original = os.open

        def spying(path: object, flag: int, *rest: int) -> int:
            flags.append(flag)
            return original(path, flag, *rest)  # type: ignore[arg-type]  # passed on as it came

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "open", spying)
            with ReadOnlyStore(read_only_folder) as store:
                assert len(bodies(store, "topic0", 0)) == 250
        assert flags
        assert all(flag & os.O_ACCMODE == os.O_RDONLY for flag in flags)
        assert not any(flag & os.O_CREAT for flag in flags)
    else:
        with ReadOnlyStore(read_only_folder) as store:
            assert len(bodies(store, "topic0", 0)) == 250


def test_a_reader_in_the_process_of_the_broker_does_not_take_its_lock_away(tmp_path: Path) -> None:
    from orbitmq.store.tools.inspection import inspect, lock_holder

    with open_store(tmp_path) as store:
        store.put(draft(0))
        with ReadOnlyStore(tmp_path) as reader:
            inspect(reader)

        assert lock_holder(tmp_path) == os.getpid()


@pytest.mark.parametrize("flush_mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_reader_follows_a_running_writer(tmp_path: Path, flush_mode: str) -> None:
    # Queues are written once a minute, so that what is newest is in the log only.
    with (
        WriterProcess(tmp_path, queue_flush_interval_ms=60_000, flush_mode=flush_mode) as writer,
        ReadOnlyStore(tmp_path) as store,
    ):
        for first in range(0, 1000, 100):
            end = writer.ask(first=first, count=100)["end"]

            assert store.refresh() == end
            assert bodies(store, "topic1", 1) == expected(0, first + 100, 1, 1)
            assert sum(1 for _ in store.records()) == first + 100
        assert not store.state.is_clean
        assert store.on_disk("topic1", 1).end < 250
    with ReadOnlyStore(tmp_path) as store:
        assert store.on_disk("topic1", 1).end == 250


def test_what_was_read_stays_the_same_until_the_reader_looks_again(tmp_path: Path) -> None:
    with WriterProcess(tmp_path) as writer:
        writer.ask(first=0, count=100)
        with ReadOnlyStore(tmp_path) as store:
            before = store.queues()

            writer.ask(first=100, count=100)

            assert store.queues() == before
            store.refresh()
            assert store.queues() != before


def test_a_writer_that_was_killed_leaves_a_readable_store(tmp_path: Path) -> None:
    with WriterProcess(tmp_path, queue_flush_interval_ms=60_000) as writer:
        writer.ask(first=0, count=500)
        writer.kill()

    with ReadOnlyStore(tmp_path) as store:
        assert not store.state.is_clean
        assert bodies(store, "topic0", 1) == expected(0, 500, 0, 1)


def test_a_reader_learns_of_files_deleted_while_it_reads(tmp_path: Path) -> None:
    with WriterProcess(tmp_path) as writer:
        writer.ask(first=0, count=600)
        with ReadOnlyStore(tmp_path) as store:
            before = store.read("topic0", 0, 0, 10)

            writer.ask(first=600, count=1, delete_first=True)

            # What is being read stays, until the reader looks again.
            assert store.read("topic0", 0, 0, 10) == before
            store.refresh()
            with pytest.raises(RecordsDeletedError) as raised:
                list(store.records(0))
            assert raised.value.start == LOG_FILE_BYTES
            bounds = store.bounds("topic0", 0)
            with pytest.raises(RecordsDeletedError) as raised:
                store.read("topic0", 0, 0, 10)
            assert raised.value.start == bounds.start > 0
            assert len(store.read("topic0", 0, bounds.start, 1000)) == bounds.end - bounds.start
            assert next(iter(store.records()))[0] == LOG_FILE_BYTES


def test_an_open_rocketmq_store_is_read_up_to_what_is_known_flushed(tmp_path: Path) -> None:
    fill(tmp_path)
    as_rocketmq(tmp_path, unclean=True, flushed_ms=T0 + 5000)

    with ReadOnlyStore(tmp_path) as store:
        # Message n was stored at 10 n; the first 500 are older than 5000.
        assert bodies(store, "topic0", 0) == expected(0, 500, 0, 0)
        assert bodies(store, "topic1", 1) == expected(0, 500, 1, 1)
        assert sum(1 for _ in store.records()) == 500


def test_entries_that_rocketmq_has_not_written_yet_are_found_in_the_log(tmp_path: Path) -> None:
    fill(tmp_path)
    # The last file of each queue loses what its broker would have dispatched last.
    for folder in (tmp_path / "consumequeue").glob("*/*"):
        change(folder / f"{4000:020d}", 25 * 20, bytes(25 * 20))
    as_rocketmq(tmp_path, unclean=True, flushed_ms=T0 + 9950)

    with ReadOnlyStore(tmp_path) as store:
        assert store.on_disk("topic0", 0).end == 225
        assert bodies(store, "topic0", 0) == expected(0, 995, 0, 0)
        assert bodies(store, "topic1", 1) == expected(0, 995, 1, 1)


def test_entries_that_rocketmq_left_after_the_end_of_a_queue_are_ignored(tmp_path: Path) -> None:
    fill(tmp_path, 400)
    as_rocketmq(tmp_path)
    folder = tmp_path / "consumequeue" / "topic0" / "0"
    # Entries 100 and on lead to records that are now of another queue.
    stale = (tmp_path / "consumequeue" / "topic0" / "1" / f"{0:020d}").read_bytes()[:200]
    (folder / f"{2000:020d}").write_bytes(stale.ljust(1000, b"\0"))

    with ReadOnlyStore(tmp_path) as store:
        assert store.on_disk("topic0", 0).end == 110
        assert store.bounds("topic0", 0).end == 100
        assert bodies(store, "topic0", 0) == expected(0, 400, 0, 0)


def test_a_queue_begins_with_the_first_message_that_is_left(tmp_path: Path) -> None:
    fill(tmp_path, 1000)
    for path in (tmp_path / "commitlog").iterdir():
        if int(path.name) < 5 * LOG_FILE_BYTES:
            path.unlink()
    with ReadOnlyStore(tmp_path) as store:
        bounds = store.bounds("topic0", 0)

        assert 225 < bounds.start < bounds.end == 250
        assert len(bodies(store, "topic0", 0)) == 250 - bounds.start


def test_a_topic_made_again_shows_its_new_messages(tmp_path: Path) -> None:
    with open_store(tmp_path, queue_flush_interval_ms=60_000) as store:
        store.put_batch([Draft(topic="one", body=b"old %d" % n) for n in range(10)])
        store.delete_topic("one")
        store.put_batch([Draft(topic="one", body=b"new %d" % n) for n in range(3)])

        with ReadOnlyStore(tmp_path) as reader:
            assert bodies(reader, "one", 0) == [b"new 0", b"new 1", b"new 2"]


def test_half_messages_are_in_the_log_and_in_no_queue(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(Draft(topic="one", body=b"half", system_flag=int(SystemFlag.PREPARED)))
        store.put(Draft(topic="one", body=b"whole"))

    with ReadOnlyStore(tmp_path) as reader:
        assert bodies(reader, "one", 0) == [b"whole"]
        assert len(list(reader.records())) == 2


def test_an_entry_that_points_nowhere_is_reported(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    change(tmp_path / "consumequeue" / "topic0" / "0" / f"{0:020d}", 5 * 20, (7).to_bytes(8))

    with ReadOnlyStore(tmp_path) as store, pytest.raises(StoreDamagedError, match="verify"):
        store.read("topic0", 0, 0, 10)


def test_logs_in_several_folders_are_read_as_one(tmp_path: Path) -> None:
    log_path = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    fill(tmp_path / "root", log_path=log_path)

    with ReadOnlyStore(tmp_path / "root", log_path=log_path) as store:
        assert sum(1 for _ in store.records()) == 1000
        assert len({file.path.parent for file in store.log_files()}) == 2


def test_what_cannot_be_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a folder"):
        ReadOnlyStore(tmp_path / "none")
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "CURRENT").write_text("MANIFEST")
    with pytest.raises(StoreFormatError, match="RocksDB"):
        ReadOnlyStore(tmp_path)


def test_an_empty_folder_is_an_empty_store(tmp_path: Path) -> None:
    with ReadOnlyStore(tmp_path) as store:
        assert (store.start, store.end, store.topics()) == (0, 0, [])
        assert list(store.records()) == []
        assert store.refresh() == 0


@pytest.mark.parametrize("number", [0, 1, 60, 99])
@pytest.mark.parametrize("bit", [0, 17, 50, 64, 90])
def test_a_flipped_bit_in_an_entry_hides_no_message(tmp_path: Path, number: int, bit: int) -> None:
    with open_store(tmp_path, queue_file_bytes=300 * 20) as writing:
        for body in range(100):
            writing.put(Draft(topic="orders", body=b"%d" % body))
    path = tmp_path / "consumequeue/orders/0" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[number * 20 + bit // 8] ^= 0x80 >> bit % 8
    path.write_bytes(content)

    with ReadOnlyStore(tmp_path) as store:
        bounds = store.bounds("orders", 0)
        assert (bounds.start, bounds.end) == (0, 100)
        with pytest.raises(StoreError):
            store.read("orders", 0, number, 1)
        for other in {0, 1, 2, 59, 61, 98} - {number}:
            assert len(store.read("orders", 0, other, 1)) == 1
