"""From the log to queues and index."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.record.encode import encode_record
from orbitmq.record.layout import SystemFlag
from orbitmq.store.index.consume_queues import ConsumeQueues
from orbitmq.store.index.deleted_topics import DeletedTopics
from orbitmq.store.index.dispatcher import NO_INDEX, Dispatcher
from orbitmq.store.index.key_indexes import KeyIndexes
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.draft import NOWHERE
from tests.unit.store.stores import write

FILE_BYTES = 64 * 1024


class Bench:
    """A log, queues and an index, with a dispatcher between them."""

    def __init__(self, root: Path, *, with_index: bool = True) -> None:
        self.log = CommitLog([root / "commitlog"], FILE_BYTES)
        self.log.load()
        self.queues = ConsumeQueues(root / "consumequeue", 2000)
        self.indexes = KeyIndexes(root / "index", slots=8, entries_max=1000)
        self.deleted = DeletedTopics(root / "orbitmq")
        self.dispatcher = Dispatcher(
            self.log,
            self.queues,
            self.indexes if with_index else None,
            deleted_topics=self.deleted,
            delay_levels_ms=(1000, 5000),
            clock=ManualClock(),
        )

    def append(
        self,
        topic: bytes,
        number: int,
        *,
        properties: bytes = b"",
        system_flag: int = 0,
        body_bytes: int = 10,
    ) -> PhysicalOffset:
        record = bytearray(91 + body_bytes + len(topic) + len(properties))
        self.log.room(len(record))
        encode_record(
            record, 0, topic, 0, number, self.log.end, b"x" * body_bytes, properties, 0,
            system_flag, 1, NOWHERE, 50_000, NOWHERE, 0, 0,
        )  # fmt: skip
        return write(self.log, record)

    def entry(self, topic: str, number: int) -> tuple[int, int, int] | None:
        queue = self.queues.find(topic, 0)
        return queue.entry(QueueOffset(number)) if queue is not None else None


def test_records_reach_their_queues_and_the_index(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.append(b"orders", 0, properties=b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02")
    second = bench.append(b"orders", 1)

    grown = bench.dispatcher.advance(bench.log.end)

    assert {queue.topic for queue in grown} == {"orders"}
    assert bench.entry("orders", 0) == (0, second, ord("a"))
    assert bench.entry("orders", 1) == (second, bench.log.end - second, 0)
    for key in ("k1", "k2", "u"):
        assert list(bench.indexes.find("orders", key, begin_ms=0, end_ms=2**62)) == [0]
    assert bench.dispatcher.last_store_ms == 50_000


def test_nothing_beyond_the_end_is_dispatched_and_nothing_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.append(b"orders", 0)
    end = bench.log.end
    bench.append(b"orders", 1)

    bench.dispatcher.advance(end)
    assert bench.entry("orders", 1) is None
    assert bench.dispatcher.advance(end) == set()
    bench.dispatcher.advance(bench.log.end)

    assert bench.entry("orders", 1) is not None
    assert bench.entry("orders", 2) is None


def test_blanks_are_skipped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(5):
        bench.append(b"orders", number, body_bytes=20_000)

    bench.dispatcher.advance(bench.log.end)

    assert bench.dispatcher.position == bench.log.end
    assert bench.entry("orders", 4) is not None


def test_half_and_rolled_back_messages_are_in_no_queue(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    keys = b"KEYS\x01k\x02"
    bench.append(b"half", 0, system_flag=SystemFlag.PREPARED, properties=keys)
    bench.append(b"rolled", 0, system_flag=SystemFlag.ROLLED_BACK, properties=keys)
    bench.append(b"committed", 0, system_flag=SystemFlag.COMMITTED, properties=keys)

    bench.dispatcher.advance(bench.log.end)

    assert [queue.topic for queue in bench.queues] == ["committed"]
    found = {
        topic: len(list(bench.indexes.find(topic, "k", begin_ms=0, end_ms=2**62)))
        for topic in ("half", "rolled", "committed")
    }
    assert found == {"half": 1, "rolled": 0, "committed": 1}


@pytest.mark.parametrize(("level", "due_ms"), [(b"1", 51_000), (b"2", 55_000), (b"9", 55_000)])
def test_the_tag_of_a_delay_queue_is_the_due_time(
    tmp_path: Path, level: bytes, due_ms: int
) -> None:
    bench = Bench(tmp_path)
    bench.append(b"SCHEDULE_TOPIC_XXXX", 0, properties=b"DELAY\x01" + level + b"\x02")

    bench.dispatcher.advance(bench.log.end)

    entry = bench.entry("SCHEDULE_TOPIC_XXXX", 0)
    assert entry is not None
    assert entry[2] == due_ms


def test_records_of_deleted_topics_stay_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.append(b"orders", 0)
    bench.append(b"orders", 1)
    bench.deleted.add("orders", bench.log.end, log_start=PhysicalOffset(0))
    third = bench.append(b"orders", 0)

    bench.dispatcher.advance(bench.log.end)

    entry = bench.entry("orders", 0)
    assert entry is not None
    assert entry[0] == third
    assert bench.entry("orders", 1) is None


def test_files_that_retention_deleted_are_skipped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(8):
        bench.append(b"orders", number, body_bytes=30_000)
    bench.log.delete_first()

    bench.dispatcher.advance(bench.log.end)

    queue = bench.queues.find("orders", 0)
    assert queue is not None
    assert (queue.start, queue.end) == (2, 8)


def test_damage_stops_it_with_an_offset(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.append(b"orders", 0)
    second = bench.append(b"orders", 1)
    struct.pack_into(">I", bench.log.files[0].view, second + 4, 0xDEAD)

    with pytest.raises(StoreDamagedError, match=f"at offset {second}: "):
        bench.dispatcher.advance(bench.log.end)

    assert bench.entry("orders", 0) is not None
    assert bench.dispatcher.position == second


def test_a_snapshot_has_every_position(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.dispatcher.snapshot().index_name == 0
    bench.append(b"orders", 0, properties=b"KEYS\x01k\x02")
    bench.dispatcher.advance(bench.log.end)

    snapshot = bench.dispatcher.snapshot()

    assert snapshot.position == bench.log.end
    assert snapshot.queue_count == 1
    assert snapshot.index_name == bench.indexes.newest.name  # type: ignore[union-attr]  # it has one
    assert snapshot.index_next == 2
    assert Bench(tmp_path / "b", with_index=False).dispatcher.snapshot().index_name == NO_INDEX
