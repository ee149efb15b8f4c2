"""Reading a queue by RocketMQ's rules."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.record import codec, scan
from orbitmq.record.decode import decode_record
from orbitmq.record.scan import hash_tag
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reading import queue_reader
from orbitmq.store.reading.queue_reader import QueueReader, Read, ReadStatus
from tests.unit.store.stores import (
    LOG_FILE_BYTES,
    config_at,
    message,
    open_store,
    put_odd_messages,
)

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
        (6, ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
        (99, ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
def test_an_offset_outside_gets_the_next_offset(
    tmp_path: Path, offset: int, status: ReadStatus, next_offset: int
) -> None:
    with open_store(tmp_path) as store:
        _fill(store, 3)
    with open_store(tmp_path) as store:
        _fill(store, 2)

        found = store.read(TOPIC, 0, offset)

    assert (found.status, found.next_offset, found.records) == (status, next_offset, [])
    assert (found.start, found.end) == (0, 5)


def test_a_reader_of_a_topic_that_was_created_again_starts_at_its_first_message(
    store: MessageStore,
) -> None:
    _fill(store, 5)
    store.delete_topic(TOPIC)
    _fill(store, 2)

    found = store.read(TOPIC, 0, 5)

    assert (found.status, found.next_offset) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 0)


def test_an_unknown_queue_is_empty(store: MessageStore) -> None:
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


def test_the_first_message_is_returned_however_large_it_is(tmp_path: Path) -> None:
    with open_store(tmp_path, memory_bytes_max=500) as store:
        store.put(message(bytes(5000)))
        store.put_batch([message(bytes(100))] * 4)

        assert len(store.read(TOPIC, 0, 0).records) == 1
        assert len(store.read(TOPIC, 0, 1).records) == 2


def test_messages_far_from_the_end_come_in_smaller_portions_without_the_mapping(
    tmp_path: Path,
) -> None:
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


def test_scattered_records_far_from_the_end_are_read_singly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_reader, "SPAN_BYTES_MAX", 500)
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
def test_a_read_that_may_not_wait_raises_if_it_would(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, span_bytes_max: int
) -> None:
    _fill(store, 50)
    monkeypatch.setattr(queue_reader, "SPAN_BYTES_MAX", span_bytes_max)
    assert len(store.read(TOPIC, 0, 0, may_wait=False).records) == 32, "mapped"
    monkeypatch.setattr(queue_reader, "MAPPED_READ_BYTES", 0)

    def not_there(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr("os.preadv", not_there)

    with pytest.raises(BlockingIOError):
        store.read(TOPIC, 0, 0, may_wait=False)
    assert len(store.read(TOPIC, 0, 0).records) == 32
    monkeypatch.setattr("os.preadv", _in_memory)
    assert store.read(TOPIC, 0, 0, may_wait=False) == store.read(TOPIC, 0, 0)


def _in_memory(descriptor: int, buffers: list[bytearray], at: int, _flags: int) -> int:
    """Read as with every page in memory, and on a file system that supports RWF_NOWAIT."""
    (buffer,) = buffers
    buffer[:] = os.pread(descriptor, len(buffer), at)
    return len(buffer)


# --- the common case and every rule ---------------------------------------------------------------


def _outcome(reader: QueueReader, *arguments: object, **named: object) -> object:
    try:
        return reader.read(*arguments, **named)  # type: ignore[arg-type]  # any arguments
    except StoreDamagedError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("find", [codec.sound_records, scan.sound_records])
def test_the_common_case_reads_as_every_rule_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Callable[..., object], seed: int
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(queue_reader, "sound_records", find)
    statuses, passed_usual = set[object](), 0
    with open_store(tmp_path, queue_file_bytes=400 * 20) as store:
        put_odd_messages(rng, store)
        config = config_at(tmp_path, scan_bytes_max=20 * rng.choice([1, 10, 100]))
        monkeypatch.setattr(queue_reader, "SPAN_BYTES_MAX", rng.choice([0, 1000, 512 * 1024]))
        for _ in range(150):
            monkeypatch.setattr(
                queue_reader, "MAPPED_READ_BYTES", rng.choice([0, 20_000, 100_000, 1 << 30])
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
                context.setattr(QueueReader, "_collect_common", lambda *_: 0)
                assert found == _outcome(reader, *arguments, **named), (arguments, named)
            statuses.add(found.status if isinstance(found, Read) else "damaged")
            passed_usual += isinstance(found, Read) and len(found.records)

    assert ReadStatus.FOUND in statuses
    assert passed_usual > 150


def test_the_byte_limit_counts_from_the_second_message_on(store: MessageStore) -> None:
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


def test_a_filter_examines_a_limited_number_of_entries(tmp_path: Path) -> None:
    with open_store(tmp_path, scan_bytes_max=10 * 20) as store:
        _fill(store, 30)

        found = store.read(TOPIC, 0, 0, 3, record_filter=lambda _: False)
        assert (found.status, found.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 10)
        wide = store.read(TOPIC, 0, 0, 20, record_filter=lambda _: False)
        assert wide.next_offset == 20


def test_deleted_records_have_the_status_removing(store: MessageStore) -> None:
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


@pytest.mark.parametrize("how", ["ordinary", "filtered", "bulk"])
def test_the_record_at_the_start_of_the_log_counts_as_removed_while_its_file_is_deleted(
    store: MessageStore, how: str
) -> None:
    for number in range(30):
        store.put(message(b"%d" % number + bytes(8000)))
    store.parts.queues.raise_starts(store.parts.log.delete_first())
    first = store.start_of(TOPIC, 0)
    assert store.entries(TOPIC, 0, first, 1)[0][0] == store.log_start

    # The queues do not know of it yet.
    new_start = store.parts.log.delete_first()
    if how == "bulk":
        found = store.read_bulk(TOPIC, 0, first, 100, 1 << 20)
    else:
        record_filter = None if how == "ordinary" else lambda _: True
        found = store.read(TOPIC, 0, first, 30, record_filter=record_filter)

    assert found.status is ReadStatus.FOUND
    assert decode_record(found.records[0]).physical_offset == new_start
    assert store.store_ms_of(TOPIC, 0, first) is None
    store.parts.queues.raise_starts(new_start)
    assert store.read(TOPIC, 0, first).status is ReadStatus.OFFSET_TOO_SMALL


def test_a_lost_file_of_entries_is_written_again_from_the_log(store: MessageStore) -> None:
    _fill(store, 50)
    (queue,) = store.parts.queues
    queue.write()
    queue._files.forget(queue.folder / f"{0:020d}")
    (queue.folder / f"{0:020d}").unlink()

    found = store.read(TOPIC, 0, 7)

    assert [decode_record(record).queue_offset for record in found.records] == list(range(7, 39))


@pytest.mark.parametrize("field_bit", [0, 1, 30, 48, 52, 60, 64, 65, 80, 90])
def test_a_flipped_bit_in_an_entry_hides_no_message(store: MessageStore, field_bit: int) -> None:
    for number in range(30):
        store.put(message(b"%d" % number + bytes(8000)))
    store.parts.log.delete_first()
    (queue,) = store.parts.queues
    queue.raise_start(store.parts.log.start)
    queue.write()
    damaged = queue.start + 5
    _flip(queue.folder / f"{0:020d}", damaged * 160 + field_bit)

    found, offset = list[int](), int(queue.start)
    while offset < queue.end:
        read = store.read(TOPIC, 0, offset)
        found += [decode_record(record).queue_offset for record in read.records]
        assert read.next_offset > offset
        offset = read.next_offset

    assert found == list(range(queue.start, queue.end))


def _flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 0x80 >> bit % 8
    path.write_bytes(content)


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


def test_queues_that_share_records_of_other_topics_are_read(store: MessageStore) -> None:
    _fill(store, 1)
    record = store.read(TOPIC, 0, 0).records[0]
    with store.parts.queues.lock:
        store.parts.queues.append("%LMQ%x", 0, type(store.start_of(TOPIC, 0))(0), struct.pack(">qiq", 0, len(record), 0))  # fmt: skip

    assert store.read("%LMQ%x", 0, 0).records == [record]
