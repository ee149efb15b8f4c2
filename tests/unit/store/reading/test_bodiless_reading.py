"""Reading a queue in bulk without bodies."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import QueueDamagedError
from orbitmq.record.bodiless import without_bodies
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reading.bodiless_reading import READ_FACTOR
from orbitmq.store.reading.queue_reader import ReadStatus
from tests.unit.store.stores import message, open_store

TOPIC = "orders"
COUNT = 300


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]  # a generator fixture
    with open_store(tmp_path, queue_file_bytes=400 * 20) as opened:
        for number in range(COUNT):
            opened.put(message(b"%d" % number + bytes(500)))
        yield opened


def test_everything_but_bodies_is_read(store: MessageStore) -> None:
    whole = store.read_bulk(TOPIC, 0, 5, 10_000, 1 << 24)

    found = store.read_bulk(TOPIC, 0, 5, 10_000, 1 << 24, with_bodies=False)

    assert found.records == without_bodies(whole.records)
    assert found.record_bytes == sum(map(len, found.records)) < whole.record_bytes // 3
    assert (found.status, found.next_offset) == (ReadStatus.FOUND, COUNT)
    assert (found.start, found.end) == (0, COUNT)


def test_a_reply_is_filled_with_several_pieces_and_never_beyond_its_limits(
    store: MessageStore,
) -> None:
    bytes_max = 20_000
    with_bodies = store.read_bulk(TOPIC, 0, 0, 10_000, bytes_max)

    found = store.read_bulk(TOPIC, 0, 0, 10_000, bytes_max, with_bodies=False)

    assert len(found.records) > 2 * len(with_bodies.records)
    assert found.record_bytes <= bytes_max
    assert len(found.records) <= READ_FACTOR * len(with_bodies.records) + 1
    assert found.next_offset == len(found.records)
    few = store.read_bulk(TOPIC, 0, 0, 7, bytes_max, with_bodies=False)
    assert (len(few.records), few.next_offset) == (7, 7)


def test_a_queue_read_in_steps_has_every_record_once(store: MessageStore) -> None:
    expected = without_bodies(store.read_bulk(TOPIC, 0, 0, 10_000, 1 << 24).records)
    for bytes_max in (1, 700, 5_000, 60_000):
        offset, came = 0, list[bytes]()
        while offset < COUNT:
            found = store.read_bulk(TOPIC, 0, offset, 10_000, bytes_max, with_bodies=False)
            assert found.next_offset > offset
            came += found.records
            offset = found.next_offset

        assert came == expected


def test_an_offset_outside_the_queue_has_its_usual_status(store: MessageStore) -> None:
    for offset in (-1, COUNT, COUNT + 7):
        found = store.read_bulk(TOPIC, 0, offset, 100, 10_000, with_bodies=False)
        assert found == store.read(TOPIC, 0, offset)


def test_damage_further_on_is_reported_by_the_read_that_begins_with_it(store: MessageStore) -> None:
    bytes_max = 20_000
    ((physical_offset, _, _),) = store.entries(TOPIC, 0, 80, 1)
    file = store.parts.log.file_at(physical_offset)
    assert file is not None
    file.view[physical_offset - file.first_offset + 4] ^= 0xFF

    before = store.read_bulk(TOPIC, 0, 0, 10_000, bytes_max, with_bodies=False)
    while before.next_offset < 80:
        offset = before.next_offset
        before = store.read_bulk(TOPIC, 0, offset, 10_000, bytes_max, with_bodies=False)
        assert before.next_offset == offset + len(before.records)

    assert before.next_offset == 80
    with pytest.raises(QueueDamagedError, match="message 80 of topic"):
        store.read_bulk(TOPIC, 0, 80, 10_000, bytes_max, with_bodies=False)
