"""The front door: putting in and getting out."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import MessageError, StateError
from orbitmq.record.decode import decode_record
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import MAGIC_V1, MAGIC_V2, SystemFlag
from orbitmq.store.config import FlushMode
from orbitmq.store.log.draft import Draft, StoreDurability
from tests.leftovers import no_threads_since, threads
from tests.unit.store.stores import LOG_FILE_BYTES, message, open_store

TOPIC = "orders"


def test_a_message_is_read_back_with_every_field(tmp_path: Path) -> None:
    draft = Draft(
        topic=TOPIC,
        queue_id=3,
        body=b"body",
        properties=b"KEYS\x01k\x02TAGS\x01a\x02",
        flag=5,
        system_flag=SystemFlag.MULTI_TAGS,
        born_ms=123,
        born_host=encode_host("10.1.2.3", 4567),
        reconsume_times=2,
        prepared_offset=99,
    )
    with open_store(tmp_path, store_host=("10.9.8.7", 10911)) as store:
        receipt = store.put(draft)
        found = store.message_by_id(receipt.message_id)

    assert found is not None
    assert (found.topic, found.queue_id, found.body) == (TOPIC, 3, b"body")
    assert found.properties == {"KEYS": "k", "TAGS": "a"}
    assert (found.flag, found.system_flag, found.born_ms) == (5, SystemFlag.MULTI_TAGS, 123)
    assert (found.born_host, found.store_host) == (("10.1.2.3", 4567), ("10.9.8.7", 10911))
    assert (found.reconsume_times, found.prepared_offset) == (2, 99)
    assert (found.queue_offset, found.physical_offset) == (0, receipt.physical_offset)
    assert found.message_id == receipt.message_id
    assert found.store_ms == receipt.store_ms


@pytest.mark.parametrize("born", ["10.0.0.1", "2001:db8::1"])
@pytest.mark.parametrize("stored", ["10.0.0.2", "2001:db8::2"])
def test_hosts_of_both_kinds_are_kept(tmp_path: Path, born: str, stored: str) -> None:
    with open_store(tmp_path, store_host=(stored, 10911)) as store:
        receipt = store.put(message(born_host=encode_host(born, 1)))
        found = store.message_by_id(receipt.message_id)

    assert found is not None
    assert (found.born_host[0], found.store_host[0]) == (born, stored)
    assert len(receipt.message_id) == (56 if ":" in stored else 32)


@pytest.mark.parametrize(("length", "magic"), [(127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)])
def test_a_long_topic_makes_a_record_of_the_second_version(
    tmp_path: Path, length: int, magic: int
) -> None:
    topic = "t" * length
    with open_store(tmp_path) as store:
        store.put(message(topic=topic))
        record = store.read(topic, 0, 0).records[0]
    with open_store(tmp_path) as store:
        assert store.read(topic, 0, 0).records == [record]

    assert int.from_bytes(record[4:8]) == magic
    assert decode_record(record).topic == topic


def test_receipts_say_which_durability_was_reached(tmp_path: Path) -> None:
    with open_store(tmp_path / "sync") as store:
        assert store.append(message()).durability is StoreDurability.MEMORY
        assert store.put(message()).durability is StoreDurability.DISK
        assert store.flushed == store.log_end
    with open_store(tmp_path / "async", flush_mode=FlushMode.ASYNC) as store:
        assert store.put(message()).durability is StoreDurability.MEMORY


def test_under_sync_flush_nothing_is_visible_before_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as store:
        released = threading.Event()
        monkeypatch.setattr("os.fdatasync", lambda _: released.wait(60))
        receipt = store.append(message(properties={"KEYS": "k"}))
        store.request_flush()

        assert store.end_of(TOPIC, 0) == 0
        assert store.end_of(TOPIC, 0, committed=False) == 1
        assert store.message_at(receipt.physical_offset) is None
        assert store.find(TOPIC, "k") == []
        released.set()
        monkeypatch.undo()
        store.confirm([receipt])
        assert store.end_of(TOPIC, 0) == 1
        assert store.message_at(receipt.physical_offset) is not None


def test_the_watermark_never_falls_over_a_restart(tmp_path: Path) -> None:
    seen: list[int] = []
    for mode in (FlushMode.SYNC, FlushMode.ASYNC, FlushMode.SYNC):
        with open_store(tmp_path, flush_mode=mode) as store:
            seen.append(store.visible)
            for _ in range(20):
                store.put(message(bytes(3000)))
                seen.append(store.visible)

    assert seen == sorted(seen)
    assert seen[-1] > LOG_FILE_BYTES


def test_queue_offsets_count_per_queue_and_half_messages_take_none(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        offsets = [
            store.put(message(queue_id=queue_id, system_flag=flag)).queue_offset
            for queue_id, flag in [
                (0, 0),
                (1, 0),
                (0, SystemFlag.PREPARED),
                (0, SystemFlag.COMMITTED),
                (0, SystemFlag.ROLLED_BACK),
                (0, 0),
            ]
        ]

        assert offsets == [0, 0, 1, 1, 2, 2]
        assert store.end_of(TOPIC, 0) == 3
    with open_store(tmp_path) as store:
        assert store.put(message()).queue_offset == 3


def test_a_batch_is_contiguous_with_one_store_time(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(message(bytes(40_000)))
        receipts = store.put_batch([message(bytes(6_000)) for _ in range(5)])

        assert [r.queue_offset for r in receipts] == [1, 2, 3, 4, 5]
        assert receipts[0].physical_offset == LOG_FILE_BYTES, "all of it in one file"
        assert len({r.store_ms for r in receipts}) == 1
        assert all(a.end == b.physical_offset for a, b in pairwise(receipts))
        assert all(r.durability is StoreDurability.DISK for r in receipts)


def test_an_empty_batch_stores_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.put_batch([]) == []
        assert store.log_end == 0


def test_a_batch_that_fits_no_file_is_refused_as_a_whole(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(MessageError, match="do not fit a log file"):
            store.put_batch([message(bytes(10_000)) for _ in range(7)])

        assert store.log_end == 0
        assert store.put(message()).queue_offset == 0


def test_a_batch_with_a_bad_message_leaves_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(message())
        end = store.log_end
        for bad in (
            message(topic="others"),
            message(queue_id=1),
            message(flag=2**40),
            message(born_host=b"12345"),
            message(properties={"a": "\0"}),
        ):
            with pytest.raises(MessageError):
                store.put_batch([message(), message(), bad])

        assert store.log_end == end
        assert not any(store.parts.log.files[-1].view[end:])
        assert store.put(message()).queue_offset == 1


def test_store_times_never_fall_whatever_the_clock_does(tmp_path: Path) -> None:
    clock = ManualClock(10_000)
    with open_store(tmp_path, clock=clock) as store:
        times = [store.put(message()).store_ms]
        clock._now_ms = 4_000
        times.append(store.put(message()).store_ms)
    with open_store(tmp_path, clock=ManualClock(2_000)) as store:
        times.append(store.put(message()).store_ms)
    with open_store(tmp_path, clock=ManualClock(20_000)) as store:
        times.append(store.put(message()).store_ms)

    assert times == [10_000, 10_000, 10_000, 20_000]


def test_a_deleted_topic_restarts_at_0_and_stays_deleted_after_a_crash(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        for number in range(5):
            store.put(message(b"old %d" % number))
        store.append(message(b"on its way"))
        store.delete_topic(TOPIC)
        assert store.end_of(TOPIC, 0) == store.end_of(TOPIC, 0, committed=False) == 0
        assert store.put(message(b"new")).queue_offset == 0
    (tmp_path / "store" / "abort").write_text("1")
    for name in ("consumequeue", "index"):
        path = tmp_path / "store" / name
        if path.exists():
            path.rename(tmp_path / name)

    with open_store(tmp_path / "store") as store:
        assert [decode_record(r).body for r in store.read(TOPIC, 0, 0).records] == [b"new"]
        assert store.end_of(TOPIC, 0) == 1


def test_many_threads_put_concurrently_and_every_message_is_stored(tmp_path: Path) -> None:
    receipts: list[int] = []
    with open_store(tmp_path, queue_flush_interval_ms=1) as store:

        def put() -> None:
            receipts.extend(store.put(message(bytes(500))).queue_offset for _ in range(40))

        threads = [threading.Thread(target=put) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(receipts) == list(range(320))
        assert store.end_of(TOPIC, 0) == 320


def test_a_closed_store_refuses_messages_and_closing_twice_is_fine(tmp_path: Path) -> None:
    before = threads()
    store = open_store(tmp_path)
    store.put(message())
    store.close()
    store.close()

    with pytest.raises(StateError, match="the store is closed"):
        store.put(message())
    no_threads_since(before)


def test_closing_puts_appended_messages_on_disk(tmp_path: Path) -> None:
    for number, mode in enumerate(FlushMode):
        with open_store(tmp_path / str(number), flush_mode=mode) as store:
            for _ in range(10):
                store.append(message())
        with open_store(tmp_path / str(number)) as store:
            assert store.end_of(TOPIC, 0) == 10


def test_threads_that_cannot_start_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "store upkeep":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr("threading.Thread.start", fail)
    with pytest.raises(RuntimeError):
        open_store(tmp_path)
    monkeypatch.undo()

    with open_store(tmp_path) as store:
        store.put(message())
