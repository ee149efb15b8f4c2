"""Reading a queue in bulk."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import QueueOffset
from orbitmq.record.decode import decode_record
from orbitmq.record.scan import hash_tag
from orbitmq.store.index.consume_queue import ConsumeQueue
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reading import bulk_reading
from orbitmq.store.reading.bulk_reading import read_bulk
from orbitmq.store.reading.queue_reader import QueueReader, Read, ReadStatus
from tests.unit.store.stores import config_at, message, open_store, put_odd_messages

TOPIC = "orders"


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]  # a generator fixture
    with open_store(tmp_path) as opened:
        yield opened


def test_as_much_is_read_as_requested(tmp_path: Path) -> None:
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


def test_an_offset_outside_a_queue_has_the_status_of_an_ordinary_read(store: MessageStore) -> None:
    store.put_batch([message()] * 5)

    for offset in (-1, 5, 6, 99):
        assert store.read_bulk(TOPIC, 0, offset, 100, 10_000) == store.read(TOPIC, 0, offset)
    assert store.read_bulk("nobody", 0, 7, 100, 10_000) == store.read("nobody", 0, 7)


def test_a_lost_file_of_entries_is_written_again_from_the_log(store: MessageStore) -> None:
    store.put_batch([message()] * 50)
    (queue,) = store.parts.queues
    queue.write()
    queue._files.forget(queue.folder / f"{0:020d}")
    (queue.folder / f"{0:020d}").unlink()

    found = store.read_bulk(TOPIC, 0, 7, 100, 10_000)

    assert [decode_record(record).queue_offset for record in found.records] == list(range(7, 40))


def _drain(
    read: Callable[..., Read], queue: ConsumeQueue, limits: tuple[int, int], **filters: object
) -> list[object]:
    """Read a queue to its end; return its records and the damaged offsets."""
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
def test_bulk_reads_return_what_ordinary_reads_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    with open_store(tmp_path, queue_file_bytes=400 * 20) as store:
        put_odd_messages(rng, store)
        reader = QueueReader(store.parts.log, config_at(tmp_path), memory_bytes=50_000)
        for queue in store.parts.queues:
            for _ in range(10):
                monkeypatch.setattr(
                    bulk_reading, "SPAN_BYTES_MAX", rng.choice([0, 1000, 512 * 1024])
                )
                limits = rng.choice([-1, 0, 1, 5, 100]), rng.choice([-1, 50, 1000, 1 << 30])
                filters = {
                    "tag_filter": rng.choice([None, {hash_tag(b"a")}.__contains__]),
                    "record_filter": rng.choice([None, None, lambda record: len(record) > 200]),
                }

                bulk = _drain(partial(read_bulk, reader), queue, limits, **filters)

                assert bulk == _drain(reader.read, queue, (32, 1 << 30), **filters)
