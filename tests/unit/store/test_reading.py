"""Reading a queue by RocketMQ's rules."""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import QueueOffset
from orbitmq.record import codec, scan
from orbitmq.record.decode import decode_record
from orbitmq.record.scan import hash_tag
from orbitmq.store import reading
from orbitmq.store.consume_queue import ENTRY, ConsumeQueue
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reading import Boundary, QueueReader, Read, ReadStatus
from orbitmq.store.stand_ins import stand_in_for_message
from tests.unit.store.stores import LOG_FILE_BYTES, config_at, message, open_store

TOPIC = "orders"


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]  # a generator fixture
    with open_store(tmp_path) as opened:
        yield opened


def _bodies(found: Read) -> list[bytes]:
    return [decode_record(record).body for record in found.records]


def _fill(store: MessageStore, count: int, **fields: object) -> None:
    store.put_batch([message(b"%d" % number, **fields) for number in range(count)])


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
        (5, ReadStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, ReadStatus.OFFSET_OVERFLOW_BADLY, 5),
        (99, ReadStatus.OFFSET_OVERFLOW_BADLY, 5),
    ],
)
def test_an_offset_outside_says_where_to_go_on(
    store: MessageStore, offset: int, status: ReadStatus, next_offset: int
) -> None:
    _fill(store, 5)

    found = store.read(TOPIC, 0, offset)

    assert (found.status, found.next_offset, found.records) == (status, next_offset, [])
    assert (found.start, found.end) == (0, 5)


def test_a_queue_that_nobody_knows_is_empty(store: MessageStore) -> None:
    found = store.read("nobody", 0, 7)

    assert (found.status, found.next_offset) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_messages_come_in_order_up_to_the_count(store: MessageStore) -> None:
    _fill(store, 50)

    assert _bodies(store.read(TOPIC, 0, 3, 4)) == [b"3", b"4", b"5", b"6"]
    found = store.read(TOPIC, 0, 3, 1000)
    assert (found.status, len(found.records)) == (ReadStatus.FOUND, 32)
    assert found.next_offset == 35
    assert found.record_bytes == sum(len(record) for record in found.records)
    assert not found.far_behind


def test_one_read_ends_with_the_file_of_the_queue(store: MessageStore) -> None:
    _fill(store, 50)

    assert len(store.read(TOPIC, 0, 35).records) == 5
    assert len(store.read(TOPIC, 0, 40).records) == 10


def test_the_first_message_comes_however_large_it_is(tmp_path: Path) -> None:
    with open_store(tmp_path, memory_bytes_max=500) as store:
        store.put(message(bytes(5000)))
        store.put_batch([message(bytes(100))] * 4)

        assert len(store.read(TOPIC, 0, 0).records) == 1
        assert len(store.read(TOPIC, 0, 1).records) == 2


def test_messages_far_behind_come_in_smaller_portions_and_past_the_mapping(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _fill(store, 50)
        log, config = store.parts.log, config_at(tmp_path)
        pread, reads = log.pread, list[tuple[int, int]]()

        def spy(offset: int, size: int) -> bytes | None:
            reads.append((offset, size))
            return pread(offset, size)

        log.pread = spy  # type: ignore[method-assign]  # a spy
        reader = QueueReader(log, config, memory_bytes=1000)
        (queue,) = store.parts.queues

        found = reader.read(queue, queue.start, 32)

        assert len(found.records) == 8
        assert found.far_behind
        assert reads == [(0, found.record_bytes)], "records side by side are read together"


def test_records_far_behind_and_far_apart_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_SPAN_BYTES_MAX", 500)
    with open_store(tmp_path) as store:
        _fill(store, 50)
        log = store.parts.log
        pread, offsets = log.pread, list[int]()

        def spy(offset: int, size: int) -> bytes | None:
            offsets.append(offset)
            return pread(offset, size)

        log.pread = spy  # type: ignore[method-assign]  # a spy
        reader = QueueReader(log, config_at(tmp_path), memory_bytes=1000)
        (queue,) = store.parts.queues

        found = reader.read(queue, queue.start, 32)

        assert len(found.records) == 8
        assert offsets == [decode_record(record).physical_offset for record in found.records]


@pytest.mark.parametrize("span_bytes_max", [0, 512 * 1024])
def test_a_read_that_may_not_wait_says_when_it_would(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, span_bytes_max: int
) -> None:
    _fill(store, 50)
    monkeypatch.setattr(reading, "_SPAN_BYTES_MAX", span_bytes_max)
    assert len(store.read(TOPIC, 0, 0, may_wait=False).records) == 32, "mapped"
    monkeypatch.setattr(reading, "MAPPED_READ_BYTES", 0)

    def not_there(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr("os.preadv", not_there)

    with pytest.raises(BlockingIOError):
        store.read(TOPIC, 0, 0, may_wait=False)
    assert len(store.read(TOPIC, 0, 0).records) == 32
    monkeypatch.setattr("os.preadv", _in_memory)
    assert store.read(TOPIC, 0, 0, may_wait=False) == store.read(TOPIC, 0, 0)


def _in_memory(descriptor: int, buffers: list[bytearray], at: int, _flags: int) -> int:
    """Read as if every page were in memory, and every file system could tell."""
    (buffer,) = buffers
    buffer[:] = os.pread(descriptor, len(buffer), at)
    return len(buffer)


# --- the usual way and the one that knows every rule ----------------------------------------------


def _outcome(reader: QueueReader, *arguments: object, **named: object) -> object:
    try:
        return reader.read(*arguments, **named)  # type: ignore[arg-type]  # any arguments
    except StoreDamagedError as error:
        return str(error)


def _spoil(rng: random.Random, store: MessageStore) -> None:
    """Damage, or put a stand-in in the place of, some records; delete some of them at times."""
    log = store.parts.log
    for queue in store.parts.queues:
        for physical_offset, record_bytes, _ in ENTRY.iter_unpack(queue.entries(queue.start, 40)):
            file = log.file_at(physical_offset)
            assert file is not None
            at = physical_offset - file.first_offset
            chance = rng.random()
            if chance < 0.02:
                file.view[at + rng.randrange(record_bytes)] ^= 1 << rng.randrange(8)
            elif chance < 0.06:
                file.view[at : at + record_bytes] = stand_in_for_message(
                    record_bytes,
                    topic=queue.topic.encode(),
                    queue_id=queue.queue_id,
                    queue_offset=0,
                    physical_offset=physical_offset,
                    store_ms=1,
                )
            elif chance < 0.08:
                # A user may set the flag that stand-ins have.
                file.view[at + 16 : at + 20] = b"LOST"
    if rng.random() < 0.3 and len(log.files) > 1:
        log.delete_first()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("find", [codec.sound_records, scan.sound_records])
def test_what_is_usual_is_read_as_by_every_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Callable[..., object], seed: int
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(reading, "sound_records", find)
    statuses, passed_usual = set[object](), 0
    with open_store(tmp_path, queue_file_bytes=400 * 20) as store:
        for number in range(300):
            tag = rng.choice(["", "a", "b"])
            store.put(
                message(
                    rng.randbytes(rng.choice([0, 10, 300, 2000])) + b"%d" % number,
                    queue_id=rng.randrange(3),
                    properties={"TAGS": tag} if tag else {},
                )
            )
        _spoil(rng, store)
        config = config_at(tmp_path, scan_bytes_max=20 * rng.choice([1, 10, 100]))
        monkeypatch.setattr(reading, "_SPAN_BYTES_MAX", rng.choice([0, 1000, 512 * 1024]))
        for _ in range(150):
            monkeypatch.setattr(
                reading, "MAPPED_READ_BYTES", rng.choice([0, 20_000, 100_000, 1 << 30])
            )
            reader = QueueReader(
                store.parts.log, config, memory_bytes=rng.choice([0, 50_000, 200_000, 1 << 30])
            )
            queue = rng.choice(list(store.parts.queues))
            arguments = (queue, rng.randrange(queue.end), rng.choice([-1, 0, 1, 5, 32, 100]))
            named = {
                "bytes_max": rng.choice([-1, 0, 50, 1000, 10_000, 1 << 30]),
                "tag_filter": rng.choice([None, {hash_tag(b"a")}.__contains__]),
                "record_filter": rng.choice([None, None, None, lambda record: len(record) > 200]),
            }

            found = _outcome(reader, *arguments, **named)

            with monkeypatch.context() as context:
                context.setattr(QueueReader, "_collect_usual", lambda *_: 0)
                assert found == _outcome(reader, *arguments, **named), (arguments, named)
            statuses.add(found.status if isinstance(found, Read) else "damaged")
            passed_usual += isinstance(found, Read) and len(found.records)

    assert ReadStatus.FOUND in statuses
    assert passed_usual > 150


# --- in bulk --------------------------------------------------------------------------------------


def test_a_read_in_bulk_takes_as_much_as_it_is_asked_for(tmp_path: Path) -> None:
    with open_store(tmp_path, queue_file_bytes=400 * 20) as store:
        for number in range(300):
            store.put(message(b"%d" % number + bytes(500)))
        assert len(store.parts.log.files) > 1
        size = len(store.read(TOPIC, 0, 0, 1).records[0])

        found = store.read_bulk(TOPIC, 0, 5, 10_000, 1 << 24)

        assert found.status is ReadStatus.FOUND
        assert [decode_record(record).queue_offset for record in found.records] == [*range(5, 300)]
        assert (found.next_offset, found.start, found.end) == (300, 0, 300)
        assert found.record_bytes == sum(map(len, found.records))
        assert len(store.read_bulk(TOPIC, 0, 5, 100, 1 << 24).records) == 100
        assert len(store.read_bulk(TOPIC, 0, 5, 10_000, 50 * size).records) in {49, 50}
        assert len(store.read_bulk(TOPIC, 0, 5, 0, 0).records) == 1


def test_a_read_in_bulk_outside_a_queue_is_told_as_any_other(store: MessageStore) -> None:
    _fill(store, 5)

    for offset in (-1, 5, 6, 99):
        assert store.read_bulk(TOPIC, 0, offset, 100, 10_000) == store.read(TOPIC, 0, offset)
    assert store.read_bulk("nobody", 0, 7, 100, 10_000) == store.read("nobody", 0, 7)


def test_a_read_in_bulk_of_entries_that_are_not_there_leads_to_the_next_file(
    store: MessageStore,
) -> None:
    _fill(store, 50)
    (queue,) = store.parts.queues
    queue.write()
    queue._files.forget(queue.folder / f"{0:020d}")
    (queue.folder / f"{0:020d}").unlink()

    found = store.read_bulk(TOPIC, 0, 7, 100, 10_000)

    assert (found.status, found.next_offset) == (ReadStatus.OFFSET_FOUND_NULL, 40)


def _drain(
    read: Callable[..., Read], queue: ConsumeQueue, limits: tuple[int, int], **filters: object
) -> list[object]:
    """Read a queue to its end, and tell what came and what was damaged."""
    count_max, bytes_max = limits
    came: list[object] = []
    offset = queue.start
    while offset < queue.end:
        try:
            found = read(queue, offset, count_max, bytes_max=bytes_max, **filters)
        except StoreDamagedError as error:
            came.append(str(error))
            (damaged,) = re.findall(r"^message (\d+) of", str(error))
            offset = QueueOffset(int(damaged) + 1)
            continue
        assert found.next_offset > offset
        assert len(found.records) <= max(count_max, 1)
        assert len(found.records) <= 1 or found.record_bytes <= bytes_max
        assert found.record_bytes == sum(map(len, found.records))
        came += found.records
        offset = found.next_offset
    return came


@pytest.mark.parametrize("seed", range(12))
def test_what_is_read_in_bulk_is_what_other_reads_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    with open_store(tmp_path, queue_file_bytes=400 * 20) as store:
        for number in range(300):
            tag = rng.choice(["", "a", "b"])
            store.put(
                message(
                    rng.randbytes(rng.choice([0, 10, 300, 2000])) + b"%d" % number,
                    queue_id=rng.randrange(3),
                    properties={"TAGS": tag} if tag else {},
                )
            )
        _spoil(rng, store)
        reader = QueueReader(store.parts.log, config_at(tmp_path), memory_bytes=50_000)
        for queue in store.parts.queues:
            for _ in range(10):
                monkeypatch.setattr(reading, "_SPAN_BYTES_MAX", rng.choice([0, 1000, 512 * 1024]))
                limits = rng.choice([-1, 0, 1, 5, 100]), rng.choice([-1, 50, 1000, 1 << 30])
                filters = {
                    "tag_filter": rng.choice([None, {hash_tag(b"a")}.__contains__]),
                    "record_filter": rng.choice([None, None, lambda record: len(record) > 200]),
                }

                bulk = _drain(reader.read_bulk, queue, limits, **filters)

                assert bulk == _drain(reader.read, queue, (32, 1 << 30), **filters)


def test_bytes_asked_for_are_a_limit_from_the_second_message_on(store: MessageStore) -> None:
    _fill(store, 5)
    (queue,) = store.parts.queues
    size = len(store.read(TOPIC, 0, 0, 1).records[0])

    def count(bytes_max: int) -> int:
        return len(store._reader.read(queue, queue.start, 32, bytes_max=bytes_max).records)

    assert [count(n) for n in (1, size, 2 * size - 1, 2 * size, 99_999)] == [1, 1, 1, 2, 5]


def test_tags_are_compared_before_the_record_is_read(store: MessageStore) -> None:
    for number in range(10):
        tag = "even" if number % 2 == 0 else "odd"
        store.put(message(b"%d" % number, properties={"TAGS": tag}))

    def only(tag: bytes) -> Callable[[int], bool]:
        return lambda hashed: hashed == hash_tag(tag)

    found = store.read(TOPIC, 0, 0, 3, tag_filter=only(b"odd"))
    assert _bodies(found) == [b"1", b"3", b"5"]
    assert (found.next_offset, found.filtered_count) == (6, 3)
    nothing = store.read(TOPIC, 0, 0, tag_filter=only(b"none"))
    assert (nothing.status, nothing.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 10)


def test_a_filter_looks_at_so_many_entries_and_no_more(tmp_path: Path) -> None:
    with open_store(tmp_path, scan_bytes_max=10 * 20) as store:
        _fill(store, 30)

        found = store.read(TOPIC, 0, 0, 3, record_filter=lambda _: False)
        assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 10)
        wide = store.read(TOPIC, 0, 0, 20, record_filter=lambda _: False)
        assert wide.next_offset == 20


def test_records_that_are_deleted_are_said_to_be_removing(store: MessageStore) -> None:
    for number in range(30):
        store.put(message(b"%d" % number + bytes(8000)))
    store.parts.log.delete_first()
    first_kept = LOG_FILE_BYTES // 8100  # so many records of 8 KB lay in the first file

    gone = store.read(TOPIC, 0, 0, 1, record_filter=lambda _: True)

    assert gone.status is ReadStatus.FOUND
    assert decode_record(gone.records[0]).physical_offset >= LOG_FILE_BYTES
    assert gone.next_offset == first_kept + 1
    only_gone = QueueReader(store.parts.log, config_at(Path(), scan_bytes_max=20), memory_bytes=1)
    (queue,) = store.parts.queues
    found = only_gone.read(queue, queue.start, 1)
    assert (found.status, found.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 1)


def test_entries_that_cannot_be_read_lead_to_the_next_file(store: MessageStore) -> None:
    _fill(store, 50)
    (queue,) = store.parts.queues
    queue.write()
    queue._files.forget(queue.folder / f"{0:020d}")
    (queue.folder / f"{0:020d}").unlink()

    found = store.read(TOPIC, 0, 7)

    assert (found.status, found.next_offset) == (ReadStatus.OFFSET_FOUND_NULL, 40)


def test_a_damaged_record_is_never_returned_and_those_before_it_are(store: MessageStore) -> None:
    _fill(store, 5)
    place = decode_record(store.read(TOPIC, 0, 2, 1).records[0]).physical_offset
    view = store.parts.log.files[0].view
    view[place + 88] ^= 1

    before = store.read(TOPIC, 0, 0)
    assert _bodies(before) == [b"0", b"1"]
    assert before.next_offset == 2
    with pytest.raises(StoreDamagedError, match=r"message 2 of topic 'orders' queue 0, in .*00000"):
        store.read(TOPIC, 0, 2)
    assert _bodies(store.read(TOPIC, 0, 3)) == [b"3", b"4"]
    assert store.message_at(place) is None


def test_a_record_that_moved_to_another_topic_is_damage(store: MessageStore) -> None:
    _fill(store, 1)
    record = store.read(TOPIC, 0, 0).records[0]
    at = record.index(b"orders")
    store.parts.log.files[0].view[at : at + 6] = b"Orders"

    with pytest.raises(StoreDamagedError, match="its topic is 'Orders'"):
        store.read(TOPIC, 0, 0)


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [(0, 0, 0), (1000, 0, 2), (1500, 3, 2), (2000, 3, 3), (3000, 4, 5), (3001, 6, 5), (9999, 6, 5)],
)
def test_a_time_means_the_first_after_or_the_last_before(
    tmp_path: Path, time_ms: int, lower: int, upper: int
) -> None:
    clock = ManualClock(0)
    with open_store(tmp_path, clock=clock) as store:
        for store_ms in (1000, 1000, 1000, 2000, 3000, 3000):
            clock._now_ms = store_ms
            store.put(message())

        assert store.offset_at(TOPIC, 0, time_ms) == lower
        assert store.offset_at(TOPIC, 0, time_ms, Boundary.UPPER) == upper
        assert store.earliest_ms(TOPIC, 0) == 1000


def test_times_of_queues_without_messages(store: MessageStore) -> None:
    assert store.offset_at("nobody", 0, 5) == 0
    assert store.earliest_ms("nobody", 0) == -1


def test_a_result_stays_within_what_the_queue_has_left(tmp_path: Path) -> None:
    clock = ManualClock(1000)
    with open_store(tmp_path, clock=clock) as store:
        for _ in range(30):
            clock._now_ms += 1000
            store.put(message(bytes(8000)))
        start = store.parts.log.delete_first()
        store.parts.queues.raise_starts(start)
        first = store.start_of(TOPIC, 0)

        assert first > 0
        assert store.offset_at(TOPIC, 0, 0, Boundary.UPPER) == first
        assert store.offset_at(TOPIC, 0, 0) == first
        assert store.read(TOPIC, 0, 0).status is ReadStatus.OFFSET_TOO_SMALL
        assert store.earliest_ms(TOPIC, 0) == 1000 + (first + 1) * 1000


def test_queues_that_share_records_of_other_topics_are_read(store: MessageStore) -> None:
    _fill(store, 1)
    record = store.read(TOPIC, 0, 0).records[0]
    with store.parts.queues.lock:
        store.parts.queues.append("%LMQ%x", 0, type(store.start_of(TOPIC, 0))(0), struct.pack(">qiq", 0, len(record), 0))  # fmt: skip

    assert store.read("%LMQ%x", 0, 0).records == [record]
