"""Scrubbing: what reading does not notice is found and repaired in the background."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.record.decode import decode_record
from orbitmq.record.scan import hash_tag
from orbitmq.store.index.consume_queue import ENTRY_BYTES
from orbitmq.store.log.stand_ins import stand_in_for_message
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reading.scrubbing import FIRST_AFTER_MS, PAUSE_MS
from tests.unit.store.stores import message, open_store, put_odd_messages

TOPIC = "orders"
COUNT = 30


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", clock=clock) as opened:
        for number in range(COUNT):
            opened.put(message(b"%d" % number + bytes(3000), properties={"TAGS": "paid"}))
            opened.put(message(b"other", queue_id=1))
        opened.parts.queues.write()
        yield opened


def _flip(store: MessageStore, number: int, bit: int) -> None:
    """Flip a bit of an entry on disk."""
    queue = store.parts.queues.find(TOPIC, 0)
    assert queue is not None
    with (queue.folder / f"{0:020d}").open("r+b") as file:
        file.seek(number * ENTRY_BYTES + bit // 8)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x80 >> bit % 8]))


def _paid(store: MessageStore) -> list[int]:
    """The messages that a filter by tag finds."""
    wanted = hash_tag(b"paid")
    found: list[int] = []
    offset = 0
    while offset < COUNT:
        read = store.read(TOPIC, 0, offset, 32, tag_filter=lambda tag_hash: tag_hash == wanted)
        found += [decode_record(record).queue_offset for record in read.records]
        offset = read.next_offset
    return found


@pytest.mark.parametrize("bit", [96, 100, 127, 128, 140, 159])
def test_a_message_that_a_tag_filter_missed_is_found_again(
    store: MessageStore, bit: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = store.entries(TOPIC, 0, 0, COUNT)
    _flip(store, 7, bit)
    assert _paid(store) == [number for number in range(COUNT) if number != 7]

    store.scrub.check_all()

    assert _paid(store) == list(range(COUNT))
    assert store.entries(TOPIC, 0, 0, COUNT) == before
    assert "queue entry repaired topic=orders queue=0 entry=7" in caplog.text


def test_every_bit_of_an_entry_is_repaired(store: MessageStore) -> None:
    before = store.encoded_entries(TOPIC, 0, 0, COUNT)
    for bit in range(0, 8 * ENTRY_BYTES, 7):
        _flip(store, bit % COUNT, bit)

    store.scrub.check_all()

    assert store.encoded_entries(TOPIC, 0, 0, COUNT) == before


def test_sound_stores_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_store(tmp_path, log_file_bytes=1 << 20) as store:
        store.put(message(properties={"TAGS": "paid"}))
        store.delete_topic(TOPIC)
        for number in range(100):
            # Larger than a piece, now and then.
            size = 3000 if number % 30 else 600_000
            store.put(message(bytes(size), properties={"TAGS": f"t{number}"}, queue_id=number % 3))
        store.put(message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties={"DELAY": "3"}))
        store.parts.queues.raise_starts(store.parts.log.delete_first())
        before = [store.encoded_entries(TOPIC, n, store.start_of(TOPIC, n), 40) for n in range(3)]

        store.scrub.check_all()

        after = [store.encoded_entries(TOPIC, n, store.start_of(TOPIC, n), 40) for n in range(3)]
        assert after == before
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_damaged_record_is_reported_once_and_its_entry_kept(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    physical_offset, record_bytes, _ = store.entries(TOPIC, 0, 3, 1)[0]
    file = store.parts.log.file_at(physical_offset)
    assert file is not None
    file.view[physical_offset - file.first_offset + record_bytes - 100] ^= 0xFF
    _flip(store, 7, 159)

    store.scrub.check_all()
    store.scrub.check_all()

    assert caplog.text.count("the log is damaged") == 1
    assert f"offset={physical_offset} damage=a record whose body does not match" in caplog.text
    assert store.entries(TOPIC, 0, 3, 1)[0][:2] == (physical_offset, record_bytes)
    # What comes after it is checked, too.
    assert store.entries(TOPIC, 0, 7, 1)[0][2] == hash_tag(b"paid")


def test_the_entry_of_a_lost_message_keeps_its_tag(store: MessageStore) -> None:
    physical_offset, record_bytes, _ = before = store.entries(TOPIC, 0, 3, 1)[0]
    file = store.parts.log.file_at(physical_offset)
    assert file is not None
    at = physical_offset - file.first_offset
    file.view[at : at + record_bytes] = stand_in_for_message(
        record_bytes,
        topic=TOPIC.encode(),
        queue_id=0,
        queue_offset=3,
        physical_offset=physical_offset,
        store_ms=1,
    )

    store.scrub.check_all()

    assert store.entries(TOPIC, 0, 3, 1)[0] == before


async def test_a_pass_takes_its_time(store: MessageStore, clock: ManualClock) -> None:
    store.scrub._bytes_per_second = 10_000
    _flip(store, COUNT - 1, 159)
    await clock.advance(FIRST_AFTER_MS - 1)
    store.scrub.step()
    assert not store.scrub._left

    await clock.advance(1)
    seconds = 0
    for _ in range(60):
        if len(_paid(store)) == COUNT:
            break
        await clock.advance(1000)
        store.scrub.step()
        seconds += 1

    # A piece is a whole file of this small log.
    assert 2 <= seconds <= store.log_end / 10_000 + 2
    _flip(store, 0, 159)
    await clock.advance(PAUSE_MS / 2)
    store.scrub.step()
    assert len(_paid(store)) == COUNT - 1


def test_an_odd_store_survives_a_pass(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_odd_messages(random.Random(5), store)

        store.scrub.check_all()
