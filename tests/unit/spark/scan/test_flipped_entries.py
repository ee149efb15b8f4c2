"""A store scan never takes the record of another message for that of a damaged queue entry."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.errors import StoreError
from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.spark.options.store_options import StoreOptions
from orbitmq.spark.rows.schema import table_projection
from orbitmq.spark.scan.file_fetch import RecordFetch
from orbitmq.spark.scan.store_partitions import QueueSlice, StoreLocation
from orbitmq.spark.scan.store_reader import StoreReader
from orbitmq.store.index.consume_queue import ENTRY, ENTRY_BYTES
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.unit.store.written_stores import config

COUNT = 64
TOPICS = "one", "two"
# So that places of records differ by one bit.
RECORD_BYTES = 128
EXPECTED = [("one", queue_id, number) for queue_id in (0, 1) for number in range(COUNT)]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose queues are written in turns, with records of equal size."""
    root = tmp_path_factory.mktemp("store")
    with MessageStore(config(root, queue_file_bytes=100 * ENTRY_BYTES)) as store:
        drafts = [
            Draft(topic=topic, queue_id=queue_id, body=bytes(RECORD_BYTES - 91 - 3))
            for queue_id in (0, 1)
            for topic in TOPICS
        ]
        receipts = [store.append(drafts[number % 4]) for number in range(4 * COUNT)]
        store.confirm(receipts)
        assert {receipt.end - receipt.physical_offset for receipt in receipts} == {RECORD_BYTES}
    return root


@pytest.fixture
def entries(stopped: Path) -> Iterator[Path]:
    """The entries of the first queue, which are as before afterwards."""
    (path,) = (stopped / "consumequeue/one/0").iterdir()
    content = path.read_bytes()
    yield path
    path.write_bytes(content)


def scan(root: Path, *, fail_on_unreadable: bool = True) -> list[tuple[str, int, int]]:
    """The messages of a topic, read in three slices of each queue."""
    found: list[StoredMessage] = []
    with ReadOnlyStore(root) as store:
        bounds = [(queue_id, store.queue("one", queue_id)) for queue_id in (0, 1)]
        location = StoreLocation(str(root), "broker-a")
        for first, end in ((0, 20), (20, 50), (50, COUNT)):
            slices = [
                QueueSlice("one", queue_id, first, end, queue.disk_end, queue.on_disk.file_bytes)
                for queue_id, queue in bounds
            ]
            with RecordFetch(location, fail_on_unreadable=fail_on_unreadable) as fetch:
                for buffer, positions in fetch.batches(slices):
                    found += [decode_record(buffer, int(at)) for at in positions]
    return sorted((message.topic, message.queue_id, message.queue_offset) for message in found)


def lead(path: Path, number: int, to: int) -> None:
    """Let an entry lead to the record at a position, counted in records."""
    with path.open("r+b") as file:
        file.seek(number * ENTRY_BYTES)
        file.write(ENTRY.pack(to * RECORD_BYTES, RECORD_BYTES, 0))


@pytest.mark.parametrize(
    ("number", "to"),
    [(30, 30 * 4 + 1), (30, 30 * 4 + 2), (19, 21 * 4), (20, 18 * 4), (50, 49 * 4), (49, 50 * 4)],
    ids=["topic", "queue", "end of slice", "start of slice", "the one before", "the one after"],
)
def test_an_entry_that_leads_to_the_record_of_another_is_reported(
    stopped: Path, entries: Path, number: int, to: int
) -> None:
    lead(entries, number, to)

    with pytest.raises(StoreError, match=f"entry {number} of queue 0 of topic 'one'"):
        scan(stopped)

    assert scan(stopped, fail_on_unreadable=False) == [
        place for place in EXPECTED if place != ("one", 0, number)
    ]


@pytest.mark.parametrize("columns", [("topic", "queueId", "queueOffset"), ("queueOffset",)])
def test_a_row_of_a_topic_that_is_not_scanned_is_reported(
    stopped: Path, entries: Path, columns: tuple[str, ...]
) -> None:
    lead(entries, 30, 30 * 4 + 1)

    def rows(**options: str) -> int:
        asked = {"path": str(stopped), "subscribe": "one", **options}
        reader = StoreReader(StoreOptions.from_spark(asked), table_projection(columns))
        return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))

    with pytest.raises(StoreError, match=r"topic 'one' .*onUnreadable=skip"):
        rows()
    assert rows(onUnreadable="skip") == 2 * COUNT - 1


def test_two_entries_that_lead_to_one_record_are_reported(stopped: Path, entries: Path) -> None:
    lead(entries, 30, 30 * 4 + 1)
    reader = StoreReader(
        StoreOptions.from_spark({"path": str(stopped)}), table_projection(("topic",))
    )

    with pytest.raises(StoreError, match="entry 30 of queue 0 of topic 'one'"):
        list(itertools.chain.from_iterable(map(reader.read, reader.partitions())))


def test_every_message_is_read_or_damage_reported_whichever_bit_flips(
    stopped: Path, entries: Path
) -> None:
    rng = random.Random(11)
    content = entries.read_bytes()
    assert scan(stopped) == EXPECTED
    reported = 0

    for _ in range(80):
        bit = rng.randrange(COUNT * ENTRY_BYTES * 8)
        changed = bytearray(content)
        changed[bit // 8] ^= 0x80 >> bit % 8
        entries.write_bytes(changed)
        try:
            assert scan(stopped) == EXPECTED, f"bit {bit}"
        except StoreError:
            reported += 1

    assert 30 < reported < 80
