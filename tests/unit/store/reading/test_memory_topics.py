"""Topics in memory: what they accept and refuse, and where their numbers continue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import DiskFullError, MessageError
from orbitmq.java_hash import java_hash
from orbitmq.model.queues import QueueOffset
from orbitmq.record.decode import decode_record
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import SystemFlag
from orbitmq.store.log.appender import Appended
from orbitmq.store.log.draft import NOWHERE
from orbitmq.store.reading.memory_log import FIRST_OFFSET
from orbitmq.store.reading.memory_topics import MemoryTopics
from orbitmq.store.reading.reserved_offsets import BYTES_STEP, STEP, ReservedOffsets
from tests.unit.store.stores import config_at

TOPIC = "orders"
HOST = encode_host("10.9.8.7", 10911)


def open_topics(
    folder: Path, disk_ends: Mapping[tuple[str, int], int] | None = None, **options: Any
) -> MemoryTopics:
    return MemoryTopics(
        ReservedOffsets(folder),
        config_at(folder, **options),
        store_host=HOST,
        last_store_ms=1000,
        disk_ends={key: QueueOffset(end) for key, end in (disk_ends or {}).items()},
    )


def put(
    topics: MemoryTopics,
    *bodies: bytes,
    topic: str = TOPIC,
    queue_id: int = 0,
    properties: bytes = b"",
    system_flag: int = 0,
    now_ms: int = 2000,
) -> list[Appended]:
    entries = [(body, properties, 5, system_flag, 123, NOWHERE, 2, 0) for body in bodies]
    return topics.append_batch(topic.encode(), queue_id, entries, now_ms)


def bounds_of(topics: MemoryTopics, topic: str = TOPIC, queue_id: int = 0) -> tuple[int, int]:
    queue = topics.find(topic, queue_id)
    assert queue is not None
    return queue.start, queue.end


def test_a_message_is_a_whole_record(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)

    ((offset, size, number, store_ms),) = put(
        topics, b"body", queue_id=3, properties=b"KEYS\x01k\x02TAGS\x01a\x02"
    )

    queue = topics.find(TOPIC, 3)
    assert queue is not None
    (record,) = topics.reader.read(queue, QueueOffset(0), 32).records
    assert (offset, number, store_ms, len(record)) == (FIRST_OFFSET, 0, 2000, size)
    found = decode_record(record)
    assert record == topics.record_at(offset)
    assert (found.topic, found.queue_id, found.queue_offset, found.body) == (TOPIC, 3, 0, b"body")
    assert (found.physical_offset, found.store_ms, found.born_ms) == (offset, 2000, 123)
    assert (found.flag, found.reconsume_times) == (5, 2)
    assert found.store_host == ("10.9.8.7", 10911)
    assert queue.entry(QueueOffset(0)) == (offset, size, java_hash("a"))


def test_store_times_never_fall(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)

    times = [put(topics, b"x", now_ms=now_ms)[0][3] for now_ms in (10, 3000, 2000)]

    assert times == [1000, 3000, 3000]


@pytest.mark.parametrize(
    "properties",
    [
        b"DELAY\x013\x02",
        b"DELAY\x01x\x02",
        b"TIMER_DELIVER_MS\x019\x02",
        b"TIMER_DELAY_SEC\x011\x02",
        b"KEYS\x01k\x02TIMER_DELAY_MS\x011\x02",
    ],
)
def test_a_delay_is_refused(tmp_path: Path, properties: bytes) -> None:
    topics = open_topics(tmp_path)

    with pytest.raises(MessageError, match=r"does not support delays.*kept on disk"):
        put(topics, b"x", properties=properties)

    assert topics.queues() == []


def test_a_message_whose_delay_is_over_is_accepted(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    over = b"DELAY\x013\x02REAL_TOPIC\x01" + TOPIC.encode() + b"\x02REAL_QID\x010\x02"

    assert put(topics, b"x", properties=over)

    with pytest.raises(MessageError, match="does not support delays"):
        put(topics, b"x", properties=over.replace(TOPIC.encode(), b"another"))


@pytest.mark.parametrize(
    ("flag", "properties"),
    [
        (SystemFlag.PREPARED, b""),
        (SystemFlag.COMMITTED, b""),
        (SystemFlag.ROLLED_BACK, b""),
        (SystemFlag(0), b"TRAN_MSG\x01true\x02"),
    ],
)
def test_a_transaction_is_refused(tmp_path: Path, flag: SystemFlag, properties: bytes) -> None:
    with pytest.raises(MessageError, match="does not support transactions"):
        put(open_topics(tmp_path), b"x", system_flag=int(flag), properties=properties)


def test_a_delay_of_level_0_is_accepted(tmp_path: Path) -> None:
    assert put(open_topics(tmp_path), b"x", properties=b"DELAY\x010\x02TRAN_MSG\x01false\x02")


def test_what_does_not_fit_is_refused_before_anything_is_reserved(tmp_path: Path) -> None:
    topics = open_topics(tmp_path, memory_log_bytes_max=1024 * 1024)

    with pytest.raises(MessageError, match="memoryLogBytesMax"):
        put(topics, bytes(1024 * 1024))

    assert list(tmp_path.iterdir()) == []


def test_one_write_reserves_for_all_queues(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    put(topics, b"x")
    put(topics, b"x", b"y", queue_id=1)
    written = (tmp_path / "reserved_offsets").stat().st_ino

    for number in range(STEP // 1000):
        put(topics, *[b"x"] * 1000, queue_id=number % 2)

    assert (tmp_path / "reserved_offsets").stat().st_ino == written
    assert ReservedOffsets(tmp_path).bounds[TOPIC, 0] >= STEP + 1


def test_after_a_stop_numbers_continue_exactly(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    put(topics, b"x", b"y")
    (last,) = put(topics, b"z", queue_id=1)
    topics.close()

    again = open_topics(tmp_path)

    assert again.topics == {TOPIC}
    assert (bounds_of(again), bounds_of(again, queue_id=1)) == ((2, 2), (1, 1))
    ((offset, _, number, _),) = put(again, b"new")
    assert (offset, number) == (last[0] + last[1], 2)


def test_after_a_crash_numbers_continue_at_the_bound(tmp_path: Path) -> None:
    places = put(open_topics(tmp_path), b"x", b"y")

    again = open_topics(tmp_path)
    ((offset, _, number, _),) = put(again, b"new")

    assert number >= STEP
    assert offset == FIRST_OFFSET + BYTES_STEP
    assert again.record_at(places[0][0]) is None
    assert put(open_topics(tmp_path), b"x")[0][2] > number


def test_numbers_never_fall_over_many_crashes_and_stops(tmp_path: Path) -> None:
    numbers: list[int] = []
    for run in range(10):
        topics = open_topics(tmp_path)
        numbers += [place[2] for place in put(topics, *[b"x"] * run * 7, b"x")]
        if run % 3:
            topics.close()

    assert numbers == sorted(set(numbers))


def test_a_message_whose_number_cannot_be_reserved_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = open_topics(tmp_path)

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(DiskFullError):
        put(topics, b"lost")
    monkeypatch.undo()

    assert bounds_of(topics) == (0, 0)
    assert [place[2] for place in put(topics, b"kept")] == [0]


def test_a_topic_continues_after_its_messages_on_disk(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)

    topics.keep(TOPIC, {0: QueueOffset(40)})

    assert put(topics, b"x")[0][2] == 40
    assert put(topics, b"x", queue_id=1)[0][2] == 0
    topics.keep(TOPIC, {0: QueueOffset(40)})
    assert bounds_of(topics) == (40, 41)


def test_a_queue_that_another_broker_filled_on_disk_continues_after_both(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    put(topics, b"x", b"y")
    topics.close()

    assert bounds_of(open_topics(tmp_path, {(TOPIC, 0): 1})) == (2, 2)
    assert bounds_of(open_topics(tmp_path, {(TOPIC, 0): 50})) == (50, 50)


def test_a_topic_moved_to_disk_keeps_its_numbers_until_it_has_messages_there(
    tmp_path: Path,
) -> None:
    topics = open_topics(tmp_path)
    topics.keep(TOPIC, {})
    place = put(topics, b"x", b"y")[0]

    assert topics.release(TOPIC) == {0: 2}

    assert (topics.topics, topics.record_at(place[0])) == (set(), None)
    for again in (topics, open_topics(tmp_path)):
        assert again.topics == set()
        assert again.moved_ends() == {(TOPIC, 0): 2}
        assert bounds_of(again) == (2, 2)
    later = open_topics(tmp_path, {(TOPIC, 0): 3})
    assert (later.topics, later.queues()) == (set(), [])


def test_a_queue_that_another_broker_restarted_counts_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics = open_topics(tmp_path)
    put(topics, b"x", b"y")
    topics.release(TOPIC)

    again = open_topics(tmp_path, {(TOPIC, 0): 1})

    assert again.moved_ends() == {}
    assert "another broker restarted a queue topic=orders queue=0 end=1 was=2" in caplog.text


def test_a_moved_topic_may_come_back(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    put(topics, b"x", b"y")
    topics.release(TOPIC)

    topics.keep(TOPIC, {0: QueueOffset(9)})
    put(topics, b"z")

    assert bounds_of(topics) == (9, 10)
    assert open_topics(tmp_path).topics == {TOPIC}


def test_queues_that_grew_are_reported_once(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    put(topics, b"x")
    put(topics, b"x", b"y", queue_id=1)
    put(topics, b"x")

    assert {(queue.queue_id, queue.end) for queue in topics.take_grown()} == {(0, 2), (1, 2)}
    assert topics.take_grown() == set()


def test_only_the_named_topics_are_in_memory(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    topics.keep("\N{REPLACEMENT CHARACTER}", {})

    assert topics.keeps("\N{REPLACEMENT CHARACTER}".encode())
    assert not topics.keeps(b"\xff")


def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    place = put(topics, b"x")[0]
    put(topics, b"x", topic="others")

    topics.forget(TOPIC)

    assert topics.record_at(place[0]) is None
    assert topics.find(TOPIC, 0) is None
    assert list(ReservedOffsets(tmp_path).bounds) == [("others", 0)]
    assert put(topics, b"x")[0][2] == 0


def test_messages_are_found_by_content_newest_first(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    put(topics, b"1", properties=b"KEYS\x01red\x02")
    put(topics, b"2", properties=b"KEYS\x01red blue\x02", queue_id=1)
    put(topics, b"3", properties=b"KEYS\x01blue\x02")
    put(topics, b"4", properties=b"KEYS\x01red\x02", topic="others")

    assert [message.body for message in topics.messages_with(TOPIC, "red")] == [b"2", b"1"]


def test_a_read_never_sends_a_consumer_to_a_slave(tmp_path: Path) -> None:
    topics = open_topics(tmp_path, memory_percent=1)
    while bounds_of(topics)[0] == 0 if topics.queues() else True:
        put(topics, *[bytes(1_000_000)] * 3)
    queue = topics.find(TOPIC, 0)

    assert queue is not None
    assert not topics.reader.read(queue, queue.start, 1).far_behind


def test_store_times_are_found_by_offset(tmp_path: Path) -> None:
    topics = open_topics(tmp_path)
    ((offset, *_),) = put(topics, b"x", now_ms=5000)

    assert topics.store_ms_at(offset) == 5000
    assert topics.store_ms_at(offset + 1) is None
