"""Damaged entries are repaired from the log; what cannot be repaired is reported, and logged once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.errors import QueueDamagedError
from orbitmq.model.queues import QueueOffset
from orbitmq.record.decode import decode_record
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reading.queue_reader import ReadStatus
from tests.unit.store.stores import message, open_store

TOPIC = "orders"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        for number in range(30):
            opened.put(message(b"%02d" % number))
            opened.put(message(b"other", queue_id=1))
        for queue in opened.parts.queues:
            queue.write()
        yield opened


def _overwrite(store: MessageStore, number: int, entry: bytes) -> None:
    queue = store.parts.queues.find(TOPIC, 0)
    assert queue is not None
    with (queue.folder / f"{0:020d}").open("r+b") as file:
        file.seek(number * ENTRY_BYTES)
        file.write(entry)


def _entry(store: MessageStore, number: int) -> tuple[int, int, int]:
    return store.entries(TOPIC, 0, number, 1)[0]


def _numbers(store: MessageStore) -> list[int]:
    return [decode_record(record).queue_offset for record in store.read(TOPIC, 0, 0, 32).records]


def test_an_entry_is_written_again_as_it_was(store: MessageStore) -> None:
    before = _entry(store, 7)
    _overwrite(store, 7, ENTRY.pack(2**40, 100, 5))

    store.read(TOPIC, 0, 7)

    assert _entry(store, 7) == before


def test_64_kib_of_lost_entries_are_repaired(tmp_path: Path) -> None:
    with open_store(tmp_path, queue_file_bytes=20 * 10_000, log_file_bytes=2**20) as store:
        store.put_batch([message(b"%d" % number) for number in range(4000)])
        for queue in store.parts.queues:
            queue.write()
        _overwrite(store, 100, bytes(65536 // ENTRY_BYTES * ENTRY_BYTES))

        read: list[int] = []
        while len(read) < 4000:
            found = store.read(TOPIC, 0, len(read), 32)
            read += [decode_record(record).queue_offset for record in found.records]

    assert read == list(range(4000))


def test_an_entry_that_leads_to_the_record_of_another_is_repaired(store: MessageStore) -> None:
    _overwrite(store, 7, ENTRY.pack(*_entry(store, 9)))

    assert _numbers(store) == list(range(7))
    assert decode_record(store.read(TOPIC, 0, 7, 1).records[0]).queue_offset == 7
    assert _numbers(store) == list(range(30))


def test_neighbours_that_are_damaged_too_are_repaired_with_it(store: MessageStore) -> None:
    _overwrite(store, 0, bytes(10 * ENTRY_BYTES))

    assert _numbers(store) == list(range(30))


def test_a_repair_is_left_to_a_thread_that_may_wait(store: MessageStore) -> None:
    _overwrite(store, 7, bytes(ENTRY_BYTES))

    with pytest.raises(BlockingIOError):
        store.read(TOPIC, 0, 7, may_wait=False)

    assert store.read(TOPIC, 0, 7).records


def test_damage_that_the_log_cannot_repair_is_raised_each_time_and_logged_once(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    physical_offset, record_bytes, _ = _entry(store, 7)
    view = store.parts.log.files[0].view
    view[physical_offset + 4] ^= 0xFF
    caplog.set_level(logging.WARNING)

    for may_wait in (True, False, True):
        with pytest.raises(QueueDamagedError, match="message 7 of topic 'orders' queue 0") as error:
            store.read(TOPIC, 0, 7, may_wait=may_wait)
        assert error.value.queue_offset == 7

    assert caplog.text.count("queue cannot be read beyond damage topic=orders queue=0") == 1
    assert _entry(store, 7)[:2] == (physical_offset, record_bytes)


def test_a_record_that_now_names_another_topic_is_not_taken_for_deleted(
    store: MessageStore,
) -> None:
    physical_offset, record_bytes, _ = _entry(store, 0)
    view = store.parts.log.files[0].view
    at = bytes(view[physical_offset : physical_offset + record_bytes]).index(b"orders")
    view[physical_offset + at] ^= 1

    with pytest.raises(QueueDamagedError, match="message 0 of topic 'orders' queue 0"):
        store.read(TOPIC, 0, 0)

    assert store.start_of(TOPIC, 0) == QueueOffset(0)


def test_an_entry_whose_message_was_deleted_meanwhile_needs_no_repair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(tmp_path / "store") as store:
        for _ in range(30):
            store.put(message(bytes(8000)))
        queue = store.parts.queues.find(TOPIC, 0)
        assert queue is not None
        damage = QueueDamagedError("entry 0 of topic 'orders'", queue_offset=0)
        store.parts.queues.raise_starts(store.parts.log.delete_first())

        assert store._repair.repair(queue, damage)

        assert not store._repair.was_tried(queue, damage)
        assert "damage" not in caplog.text
        assert store.read(TOPIC, 0, 0).status is ReadStatus.OFFSET_TOO_SMALL
