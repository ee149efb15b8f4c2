"""The whole store with topics in memory beside those on disk."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import MessageError, StateError, StoreDamagedError
from orbitmq.model.queues import QueueOffset
from orbitmq.record.decode import decode_record
from orbitmq.record.layout import SystemFlag
from orbitmq.store.config import FlushMode
from orbitmq.store.log.draft import Draft, StoreDurability
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reading.memory_log import FIRST_OFFSET
from orbitmq.store.reading.queue_reader import ReadStatus
from orbitmq.store.reading.queue_times import Boundary
from orbitmq.store.reading.reserved_offsets import EPOCH_STEP, STEP, first_number
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.rebuilding import RebuildOptions, rebuild
from orbitmq.store.tools.verification import verify
from tests.leftovers import is_in
from tests.unit.store.stores import message, open_store

TOPIC = "prices"
DISK = "orders"


def price(body: bytes = b"body", **fields: Any) -> Draft:
    return message(body, **({"topic": TOPIC} | fields))


def open_with_prices(root: Path, **options: Any) -> MessageStore:
    store = open_store(root, **options)
    store.keep_in_memory(TOPIC)
    return store


def open_copy(root: Path) -> MessageStore:
    return open_store(root, is_copy=True)


def bodies(store: MessageStore, topic: str = TOPIC, offset: int = 0) -> list[bytes]:
    found = store.read(topic, 0, offset)
    return [decode_record(record).body for record in found.records]


def numbers(store: MessageStore, drafts: Iterable[Draft]) -> list[int]:
    return [store.put(draft).queue_offset for draft in drafts]


def crashed(root: Path) -> Path:
    """A copy of a store that is open, as a crash would leave it."""
    return shutil.copytree(root, root.with_name(root.name + "-crashed"), dirs_exist_ok=True)


# --- putting and reading ----------------------------------------------------------------------


@pytest.mark.parametrize("mode", FlushMode)
def test_a_message_in_memory_is_readable_immediately(
    tmp_path: Path, mode: FlushMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_with_prices(tmp_path, flush_mode=mode) as store:
        log_end = store.log_end
        synced: list[int] = []

        def spy(descriptor: int) -> None:
            # Upkeep writes now and then; that does not count.
            if is_in(tmp_path, descriptor) and threading.current_thread().name != "store upkeep":
                synced.append(descriptor)

        monkeypatch.setattr("os.fdatasync", spy)

        receipt = store.put(price(b"1", properties={"KEYS": "k"}))
        (second, third) = store.put_batch([price(b"2"), price(b"3")])

        assert receipt.durability is second.durability is third.durability is StoreDurability.MEMORY
        assert [receipt.queue_offset, second.queue_offset, third.queue_offset] == [0, 1, 2]
        assert receipt.physical_offset == FIRST_OFFSET
        assert third.physical_offset == second.end
        assert bodies(store) == [b"1", b"2", b"3"]
        assert (store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)) == (0, 3)
        assert store.end_of(TOPIC, 0, committed=False) == 3
        found = store.message_by_id(receipt.message_id)
        assert found is not None
        assert (found.body, found.message_id) == (b"1", receipt.message_id)
        assert [found.body for found in store.find(TOPIC, "k")] == [b"1"]
        assert (store.log_end, store.visible) == (log_end, log_end)
        monkeypatch.undo()
        assert synced == []


def test_receipts_of_both_kinds_are_confirmed_together(tmp_path: Path) -> None:
    with open_with_prices(tmp_path) as store:
        receipts = store.confirm(
            [store.append(draft) for draft in (message(), price(), message(), price())]
        )

        assert [receipt.durability for receipt in receipts] == [
            StoreDurability.DISK,
            StoreDurability.MEMORY,
            StoreDurability.DISK,
            StoreDurability.MEMORY,
        ]
        assert store.flushed == store.log_end
        assert store.end_of(DISK, 0) == 2


@pytest.mark.parametrize("mode", FlushMode)
def test_listeners_are_notified_of_queues_in_memory(tmp_path: Path, mode: FlushMode) -> None:
    with open_with_prices(tmp_path, flush_mode=mode) as store:
        heard: list[tuple[str, int, int, int]] = []
        store.on_visible(
            lambda queues: heard.extend((q.topic, q.queue_id, q.start, q.end) for q in queues)
        )

        store.put(price(queue_id=2))
        assert heard == [(TOPIC, 2, 0, 1)]
        heard.clear()
        store.append(price(queue_id=2))
        store.append(price(queue_id=2))
        store.request_flush() if mode is FlushMode.SYNC else store.publish()

        assert heard == [(TOPIC, 2, 0, 3)]


def test_a_read_has_the_same_statuses_as_on_disk(tmp_path: Path) -> None:
    with open_with_prices(tmp_path, memory_log_bytes_max=1024 * 1024) as store:
        assert store.read(TOPIC, 0, 0).status is ReadStatus.NO_MESSAGE_IN_QUEUE
        tags = ["a", "b"] * 3
        for number, tag in enumerate(tags):
            store.put(price(bytes(300_000), properties={"TAGS": tag}, born_ms=number))

        start, end = store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)
        assert (start, end) == (3, 6)
        for offset, status, next_offset in (
            (0, ReadStatus.OFFSET_TOO_SMALL, 3),
            (6, ReadStatus.OFFSET_OVERFLOW_ONE, 6),
            (7, ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
        ):
            found = store.read(TOPIC, 0, offset)
            assert (found.status, found.next_offset) == (status, next_offset)
            assert (found.start, found.end) == (3, 6)
        found = store.read(TOPIC, 0, 3, tag_filter=lambda tag: tag == ord("a"))
        assert (found.status, found.next_offset, found.filtered_count) == (ReadStatus.FOUND, 5, 1)
        assert not found.far_behind
        missed = store.read(TOPIC, 0, 3, record_filter=lambda _: False)
        assert missed.status is ReadStatus.NO_MATCHED_MESSAGE


def test_messages_are_found_by_time(tmp_path: Path) -> None:
    clock = ManualClock(1000)
    with open_with_prices(tmp_path, clock=clock) as store:
        for _ in range(4):
            store.put(price())
            clock._now_ms += 10

        assert store.earliest_ms(TOPIC, 0) == 1000
        assert store.offset_at(TOPIC, 0, 1015) == 2
        assert store.offset_at(TOPIC, 0, 1015, Boundary.UPPER) == 1
        assert store.offset_at(TOPIC, 0, 9999) == 4
        assert store.earliest_ms(TOPIC, 1) == -1


def test_messages_are_found_by_key_and_tag_oldest_first(tmp_path: Path) -> None:
    with open_with_prices(tmp_path) as store:
        for number in range(5):
            store.put(price(b"%d" % number, properties={"KEYS": f"k{number % 2} all"}))
        store.put(price(b"all", queue_id=1, properties={"UNIQ_KEY": "k0", "TAGS": "t"}))
        store.put(message(properties={"KEYS": "k0"}))

        assert [found.body for found in store.find(TOPIC, "k0")] == [b"0", b"2", b"4", b"all"]
        assert [found.body for found in store.find(TOPIC, "all", count_max=2)] == [b"3", b"4"]
        assert [found.body for found in store.find_tagged(TOPIC, "t")] == [b"all"]
        assert store.find(TOPIC, "al") == []
        assert store.find(TOPIC, "k1", end_ms=1) == []


@pytest.mark.parametrize(
    "fields",
    [{"properties": {"DELAY": "1"}}, {"system_flag": int(SystemFlag.PREPARED)}, {"queue_id": -1}],
)
def test_messages_that_memory_cannot_keep_are_refused(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    with open_with_prices(tmp_path) as store:
        with pytest.raises(MessageError):
            store.put(price(**fields))
        with pytest.raises(MessageError):
            store.put_batch([price(), price(**fields)])

        assert store.end_of(TOPIC, 0) == 0


def test_ipv6_hosts_are_kept(tmp_path: Path) -> None:
    with open_store(tmp_path, store_host=("2001:db8::2", 10911)) as store:
        store.keep_in_memory(TOPIC)
        found = store.message_by_id(store.put(price()).message_id)

    assert found is not None
    assert found.store_host == ("2001:db8::2", 10911)


def test_a_closed_store_refuses_messages(tmp_path: Path) -> None:
    store = open_with_prices(tmp_path)
    store.close()

    with pytest.raises(StateError, match="closed"):
        store.put(price())


def test_queues_of_both_kinds_are_listed(tmp_path: Path) -> None:
    with open_with_prices(tmp_path) as store:
        numbers(store, [price(), price(queue_id=1), message(), message()])

        assert sorted(store.queues()) == [(DISK, 0, 0, 2), (TOPIC, 0, 0, 1), (TOPIC, 1, 0, 1)]


def test_concurrent_puts_and_reads_lose_and_double_nothing(tmp_path: Path) -> None:
    each, writers = 1500, 2
    with open_with_prices(tmp_path, flush_mode=FlushMode.ASYNC) as store:
        read: list[int] = []
        statuses: set[ReadStatus] = set()

        def write(writer: int) -> None:
            for number in range(each):
                store.put(price(b"%d" % number, properties={"KEYS": f"w{writer}"}))
                if number % 10 == 0:
                    store.put(message())

        def consume() -> None:
            offset = 0
            while offset < each * writers:
                found = store.read(TOPIC, 0, offset)
                read.extend(decode_record(record).queue_offset for record in found.records)
                statuses.add(found.status)
                offset = found.next_offset

        threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
        threads.append(threading.Thread(target=consume))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(150)

        assert not any(thread.is_alive() for thread in threads)
        assert statuses <= {
            ReadStatus.FOUND,
            ReadStatus.NO_MESSAGE_IN_QUEUE,
            ReadStatus.OFFSET_OVERFLOW_ONE,
        }
        assert read == list(range(each * writers))
        assert store.end_of(DISK, 0) == writers * each // 10


# --- restarts ---------------------------------------------------------------------------------


def test_after_a_clean_stop_numbers_continue_and_messages_are_gone(tmp_path: Path) -> None:
    with open_with_prices(tmp_path) as store:
        receipts = [store.put(price()) for _ in range(3)]

    # The store remembers which topics were in memory, so that nothing changes on a restart.
    with open_store(tmp_path) as store:
        assert (store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)) == (3, 3)
        assert store.memory_topics == {TOPIC}
        assert store.message_by_id(receipts[0].message_id) is None
        assert store.read(TOPIC, 0, 1).status is ReadStatus.OFFSET_TOO_SMALL
        assert store.read(TOPIC, 0, 3).status is ReadStatus.OFFSET_OVERFLOW_ONE
        receipt = store.put(price(b"new"))
        assert (receipt.queue_offset, bodies(store, offset=3)) == (3, [b"new"])
        assert receipt.physical_offset == receipts[-1].end


def test_after_a_crash_numbers_continue_at_the_reserved_bound(tmp_path: Path) -> None:
    with open_with_prices(tmp_path / "store") as store:
        before = [store.put(price()).queue_offset for _ in range(3)]
        copy = crashed(tmp_path / "store")

    with open_store(copy) as store:
        start, end = store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)
        assert before == [0, 1, 2]
        assert start == end >= STEP
        assert store.put(price()).queue_offset == end


def test_a_damaged_file_of_reservations_stops_the_opening_before_anything_changes(
    tmp_path: Path,
) -> None:
    with open_with_prices(tmp_path) as store:
        store.put(price())
    path = tmp_path / "orbitmq" / "reserved_offsets"
    path.write_bytes(path.read_bytes().replace(b"prices", b"pricks"))

    with pytest.raises(StoreDamagedError, match="reserved_offsets is damaged"):
        open_store(tmp_path)

    assert not (tmp_path / "abort").exists()
    path.unlink()
    with open_store(tmp_path) as store:
        assert store.memory_topics == set()


def test_nothing_of_them_is_in_files(tmp_path: Path) -> None:
    with open_with_prices(tmp_path) as store:
        numbers(store, [price(b"secret" * 10), message()])
        held = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert not any(b"secret" in path.read_bytes() for path in held)

    with ReadOnlyStore(tmp_path) as reader:
        assert reader.topics() == [DISK]
        assert verify(reader).is_fine
    assert not (tmp_path / "consumequeue" / TOPIC).exists()


def test_a_store_without_such_topics_has_no_file_for_them(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(message())

    assert not (tmp_path / "orbitmq" / "reserved_offsets").exists()


# --- copies and promotions -------------------------------------------------------------------


def test_a_promoted_copy_numbers_above_everything_that_its_master_gave(tmp_path: Path) -> None:
    with open_with_prices(tmp_path / "master") as master, open_copy(tmp_path / "slave") as slave:
        master.put(price())
        slave.follow_reserved_offsets(master.reserved_offsets())
        # The slave does not hear of this reservation any more.
        given = max(numbers(master, [price(), price(queue_id=1)]))

    with open_store(tmp_path / "slave") as promoted:
        promoted.begin_reign(1, {TOPIC})
        after = numbers(promoted, [price(b"new"), price(queue_id=1), price(queue_id=2)])

        assert min(after) > given
        assert after == [EPOCH_STEP, EPOCH_STEP, EPOCH_STEP]
        assert bodies(promoted, offset=EPOCH_STEP) == [b"new"]


def test_a_promoted_copy_numbers_above_a_reservation_that_its_epoch_does_not_cover(
    tmp_path: Path,
) -> None:
    reserved = QueueOffset(EPOCH_STEP * 7)
    with open_copy(tmp_path) as slave:
        slave.follow_reserved_offsets({(TOPIC, 0): reserved})

    with open_store(tmp_path) as promoted:
        promoted.begin_reign(1, {TOPIC})

        assert numbers(promoted, [price(), price(queue_id=1)]) == [reserved, EPOCH_STEP]


def test_a_promoted_copy_leads_readers_to_its_first_number_before_it_has_a_message(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path) as promoted:
        promoted.begin_reign(3, {TOPIC})
        promoted.keep_in_memory(TOPIC)

        first = first_number(3)
        assert (promoted.start_of(TOPIC, 0), promoted.end_of(TOPIC, 0)) == (first, first)
        found = promoted.read(TOPIC, 0, 500)
        assert (found.status, found.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, first)
        assert promoted.read(TOPIC, 0, first).status is ReadStatus.OFFSET_OVERFLOW_ONE
        assert promoted.put(price()).queue_offset == first


def test_numbers_go_on_after_a_restart_of_a_promoted_copy(tmp_path: Path) -> None:
    for expected in (EPOCH_STEP, EPOCH_STEP + 1):
        with open_store(tmp_path) as promoted:
            promoted.begin_reign(1, {TOPIC})
            promoted.keep_in_memory(TOPIC)

            assert promoted.put(price()).queue_offset == expected


def test_numbers_rise_when_a_master_becomes_a_copy_and_the_master_again(tmp_path: Path) -> None:
    with open_with_prices(tmp_path) as store:
        first = store.put(price()).queue_offset
    with open_copy(tmp_path) as slave:
        # The master in between gave no number in the second queue.
        slave.follow_reserved_offsets({(TOPIC, 1): QueueOffset(EPOCH_STEP + 5)})
    with open_store(tmp_path) as store:
        store.begin_reign(2, {TOPIC})
        store.keep_in_memory(TOPIC)

        again = numbers(store, [price(), price(queue_id=1)])
    assert first == 0
    assert again == [2 * EPOCH_STEP, 2 * EPOCH_STEP]


def test_a_copy_shows_readers_no_queue_in_memory(tmp_path: Path) -> None:
    with open_copy(tmp_path) as slave:
        slave.follow_reserved_offsets({(TOPIC, 0): QueueOffset(STEP)})

        assert slave.queues() == []
        assert (slave.start_of(TOPIC, 0), slave.end_of(TOPIC, 0)) == (0, 0)
        assert slave.read(TOPIC, 0, 5).status is ReadStatus.NO_MESSAGE_IN_QUEUE
        assert slave.memory_topics == {TOPIC}


def test_a_copy_keeps_numbers_across_restarts_and_forgets_deleted_topics(tmp_path: Path) -> None:
    with open_copy(tmp_path) as slave:
        slave.follow_reserved_offsets({(TOPIC, 0): QueueOffset(9), ("gone", 0): QueueOffset(5)})
        # A number never falls, even if the master says so.
        slave.follow_reserved_offsets({(TOPIC, 0): QueueOffset(7), ("gone", 0): QueueOffset(5)})
        slave.delete_topic("gone")
    with open_copy(tmp_path) as slave:
        assert slave.reserved_offsets() == {(TOPIC, 0): 9}
        slave.follow_reserved_offsets({})
        assert slave.reserved_offsets() == {}


def test_a_promoted_copy_keeps_messages_on_disk_of_a_topic_that_was_in_memory(
    tmp_path: Path,
) -> None:
    # The topic was deleted and created again on disk, just before the master died.
    with open_copy(tmp_path) as slave:
        slave.follow_reserved_offsets({(DISK, 0): QueueOffset(STEP)})
        with open_store(tmp_path.with_name("master")) as master:
            master.put(message(b"on disk"))
            content = master.parts.log.pread(0, master.log_end) or b""
        slave.copy.begin(0)
        slave.copy.room()[: len(content)] = content
        slave.copy.take(len(content))

    with open_store(tmp_path) as promoted:
        promoted.begin_reign(1, set())
        promoted.keep_on_disk(DISK)

        assert bodies(promoted, topic=DISK) == [b"on disk"]
        assert promoted.put(message()).queue_offset == 1


def test_numbers_stay_within_63_bits_whatever_the_epoch() -> None:
    assert first_number(0) == 0
    assert first_number(8191) < 2**53
    assert first_number(2**63 - 1) == 2**62


# --- moving and deleting ----------------------------------------------------------------------


def test_a_deleted_topic_leaves_nothing_and_begins_at_0(tmp_path: Path) -> None:
    with open_with_prices(tmp_path) as store:
        receipt = store.put(price())
        store.delete_topic(TOPIC)

        assert store.memory_topics == set()
        assert store.message_by_id(receipt.message_id) is None
        assert store.end_of(TOPIC, 0) == 0
        store.keep_in_memory(TOPIC)
        assert store.put(price()).queue_offset == 0
        store.delete_topic(TOPIC)
    with open_store(tmp_path) as store:
        assert store.memory_topics == set()
        assert store.end_of(TOPIC, 0) == 0
        assert store.queues() == []


def test_a_topic_with_messages_on_disk_moves_to_memory(tmp_path: Path) -> None:
    clock = ManualClock(1000)
    with open_store(tmp_path, clock=clock) as store:
        store.put(price(b"0", properties={"KEYS": "k", "TAGS": "t"}))
        store.append(price(b"1"))
        clock._now_ms = 1010

        store.keep_in_memory(TOPIC)
        assert (store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)) == (0, 2)
        assert store.put(price(b"2", properties={"KEYS": "k", "TAGS": "t"})).queue_offset == 2

        assert (bodies(store), bodies(store, offset=2)) == ([b"0", b"1"], [b"2"])
        found = store.read(TOPIC, 0, 0)
        assert (found.next_offset, found.start, found.end) == (2, 0, 3)
        assert (store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)) == (0, 3)
        assert [found.body for found in store.find(TOPIC, "k")] == [b"0", b"2"]
        assert [found.body for found in store.find_tagged(TOPIC, "t")] == [b"0", b"2"]
        assert store.earliest_ms(TOPIC, 0) == 1000
        times = (999, 1005, 1010, 1011)
        assert [store.offset_at(TOPIC, 0, time) for time in times] == [0, 2, 2, 3]
        assert [store.offset_at(TOPIC, 0, time, Boundary.UPPER) for time in times] == [0, 1, 2, 2]
        assert sorted(store.queues()) == [(TOPIC, 0, 0, 3)]
    with open_store(tmp_path) as store:
        assert (store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)) == (0, 3)
        assert bodies(store) == [b"0", b"1"]
        # The messages in memory are gone: a consumer is moved past them.
        found = store.read(TOPIC, 0, 2)
        assert (found.status, found.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, 3)
        assert store.put(price()).queue_offset == 3


def test_a_queue_begins_in_memory_once_retention_deleted_the_rest(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(price(b"0"))
        while store.log_end < 2 * 64 * 1024:
            store.put(message(bytes(10_000)))
        store.keep_in_memory(TOPIC)
        store.put(price(b"1"))
        parts = store.parts
        parts.queues.raise_starts(parts.log.delete_first())

        assert (store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)) == (1, 2)
        assert bodies(store, offset=1) == [b"1"]
        assert store.read(TOPIC, 0, 0).next_offset == 1
        assert store.earliest_ms(TOPIC, 0) > 0


def test_a_topic_in_memory_moves_to_disk_and_keeps_its_numbers(tmp_path: Path) -> None:
    with open_with_prices(tmp_path / "store") as store:
        numbers(store, [price(), price(), price(queue_id=1)])

        store.keep_on_disk(TOPIC)

        assert store.memory_topics == set()
        assert (store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)) == (2, 2)
        assert store.end_of(TOPIC, 1, committed=False) == 1
        copy = crashed(tmp_path / "store")
        receipt = store.put(price(b"on disk"))
        assert (receipt.queue_offset, receipt.durability) == (2, StoreDurability.DISK)
        assert bodies(store, offset=2) == [b"on disk"]
        assert (store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)) == (2, 3)
    for root in (tmp_path / "store", copy):
        with open_store(root) as store:
            assert store.put(price()).durability is StoreDurability.DISK
            assert store.end_of(TOPIC, 0) == (4 if root != copy else 3)
            assert store.put(price(queue_id=1)).queue_offset == 1
        with ReadOnlyStore(root) as reader:
            assert verify(reader).is_fine
        rebuild(root, RebuildOptions())
        with open_store(root) as store:
            assert store.start_of(TOPIC, 0) == 2
            assert store.put(price(queue_id=1)).queue_offset == 2


def test_a_topic_that_moves_back_loses_what_it_had_on_disk_but_no_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path) as store:
        store.put(price(b"0"))
        store.keep_in_memory(TOPIC)
        store.put(price(b"1"))

        store.keep_on_disk(TOPIC)

        assert "messages on disk dropped" in caplog.text
        assert store.put(price(b"2")).queue_offset == 2
        assert (store.start_of(TOPIC, 0), store.end_of(TOPIC, 0)) == (2, 3)
        assert bodies(store, offset=2) == [b"2"]
    with open_store(tmp_path) as store:
        assert (store.start_of(TOPIC, 0), bodies(store, offset=2)) == (2, [b"2"])
        assert store.put(price()).queue_offset == 3


def test_a_topic_that_got_no_message_in_memory_moves_back_with_all_it_had(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(price(b"0"))
        for _ in range(2):
            store.keep_in_memory(TOPIC)
            store.keep_on_disk(TOPIC)

        store.put(price(b"1"))

        assert bodies(store) == [b"0", b"1"]


def test_moving_a_topic_where_it_is_already_changes_nothing(tmp_path: Path) -> None:
    with open_with_prices(tmp_path) as store:
        numbers(store, [price(), message()])

        store.keep_in_memory(TOPIC)
        store.keep_on_disk(DISK)
        store.keep_on_disk("unknown")

        assert numbers(store, [price(), message()]) == [1, 1]
        assert bodies(store) == [b"body", b"body"]


def test_a_topic_of_no_name_cannot_be_kept(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, pytest.raises(MessageError):
        store.keep_in_memory("a/b")


def test_moving_while_messages_arrive_gives_no_number_twice(tmp_path: Path) -> None:
    with open_store(tmp_path, flush_mode=FlushMode.ASYNC) as store:
        got: list[int] = []
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                got.append(store.put(price()).queue_offset)

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(10):
            store.keep_in_memory(TOPIC)
            store.keep_on_disk(TOPIC)
        done.set()
        writer.join(120)

        assert not writer.is_alive()
        assert got == list(range(len(got)))
        assert store.end_of(TOPIC, 0) == len(got)
