"""The message for a store time."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reading.queue_reader import ReadStatus
from orbitmq.store.reading.queue_times import Boundary
from tests.unit.store.stores import message, open_store

TOPIC = "orders"


@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [(0, 0, 0), (1000, 0, 2), (1500, 3, 2), (2000, 3, 3), (3000, 4, 5), (3001, 6, 5), (9999, 6, 5)],
)
def test_a_time_gives_the_first_after_or_the_last_before(
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


def test_times_of_queues_without_messages(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.offset_at("nobody", 0, 5) == 0
        assert store.earliest_ms("nobody", 0) == -1


def test_a_result_stays_within_the_queue(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("damaged", [0, 1, 7, 8, 14, 15])
@pytest.mark.parametrize("leads_to", ["nowhere", "another queue", "the first", "the last"])
def test_a_damaged_entry_changes_no_offset_at_a_time(
    tmp_path: Path, damaged: int, leads_to: str
) -> None:
    clock = ManualClock(0)
    with open_store(tmp_path, clock=clock) as store:
        for number in range(16):
            clock._now_ms = 1000 * (number + 1)
            store.put(message())
            store.put(message(queue_id=1))
        places = {
            "nowhere": (1 << 40, 100, 0),
            "another queue": store.entries(TOPIC, 1, 15 - damaged, 1)[0],
            "the first": store.entries(TOPIC, 0, 0, 1)[0],
            "the last": store.entries(TOPIC, 0, 15, 1)[0],
        }
        _overwrite(store, damaged, ENTRY.pack(*places[leads_to]))

        for number in range(16):
            assert store.offset_at(TOPIC, 0, 1000 * (number + 1)) == number
            assert store.offset_at(TOPIC, 0, 1000 * (number + 1), Boundary.UPPER) == number


@pytest.mark.parametrize("damaged", [0, 7])
def test_a_damaged_record_changes_no_offset_at_another_time(tmp_path: Path, damaged: int) -> None:
    clock = ManualClock(0)
    with open_store(tmp_path, clock=clock) as store:
        for number in range(16):
            clock._now_ms = 1000 * (number + 1)
            store.put(message())
        ((physical_offset, _, _),) = store.entries(TOPIC, 0, damaged, 1)
        view = store.parts.log.files[0].view
        view[physical_offset : physical_offset + 60] = b"\xff" * 60

        for number in set(range(16)) - {damaged, damaged + 1}:
            assert store.offset_at(TOPIC, 0, 1000 * (number + 1)) == number
            assert store.offset_at(TOPIC, 0, 1000 * (number + 1), Boundary.UPPER) == number
        # Nothing is skipped: reading begins with the damaged message, and reports it.
        assert store.offset_at(TOPIC, 0, 1000 * (damaged + 2)) <= damaged + 1
        assert store.earliest_ms(TOPIC, 0) == (1000 if damaged else 2000)


def _overwrite(store: MessageStore, number: int, entry: bytes) -> None:
    queue = store.parts.queues.find(TOPIC, 0)
    assert queue is not None
    queue.write()
    with (queue.folder / f"{0:020d}").open("r+b") as file:
        file.seek(number * ENTRY_BYTES)
        file.write(entry)
