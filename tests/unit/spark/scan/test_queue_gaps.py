from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from orbitmq.spark.scan.queue_gaps import Gap, find_gaps, spans_to_check
from orbitmq.store.files.file_names import file_name
from orbitmq.store.log.draft import Draft
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    WriterProcess,
    as_rocketmq,
    change,
    fill,
    open_store,
)

# A store of two topics with two queues, of which each has five files.
MESSAGES = 1_000
TOPICS = frozenset({"topic0", "topic1"})


def gaps(
    root: Path, *, configured: Collection[str] = TOPICS, check_bytes_max: int = 1 << 26
) -> list[Gap]:
    with ReadOnlyStore(root) as store:
        return find_gaps(
            store,
            lambda topic, _: topic.startswith("topic"),
            configured_topics=configured,
            check_bytes_max=check_bytes_max,
        )


def spans_of(found: list[Gap]) -> list[tuple[str, int, int, int]]:
    return [(gap.topic, gap.queue_id, gap.first, gap.last) for gap in found]


def put(root: Path, *queues: tuple[str, int]) -> None:
    with open_store(root) as store:
        for topic, queue_id in queues:
            store.put(Draft(topic=topic, queue_id=queue_id, body=b"x", properties=b""))


@pytest.mark.parametrize("check_bytes_max", [1 << 26, 1 << 16])
@pytest.mark.parametrize("of_rocketmq", [False, True])
def test_a_complete_store_has_none(
    tmp_path: Path, *, of_rocketmq: bool, check_bytes_max: int
) -> None:
    fill(tmp_path, MESSAGES)
    if of_rocketmq:
        as_rocketmq(tmp_path)

    assert gaps(tmp_path, check_bytes_max=check_bytes_max) == []


def test_what_retention_deleted_is_not_a_gap(tmp_path: Path) -> None:
    fill(tmp_path, MESSAGES)
    with open_store(tmp_path) as store:
        for _ in range(2):
            store.parts.queues.raise_starts(store.parts.log.delete_first())

    with ReadOnlyStore(tmp_path) as left:
        assert left.bounds("topic0", 0).start > 0
    assert gaps(tmp_path) == []


def test_an_empty_store_has_none(tmp_path: Path) -> None:
    fill(tmp_path, 0)

    assert gaps(tmp_path) == []


@pytest.mark.parametrize("of_rocketmq", [False, True])
def test_a_queue_without_its_folder_is_one(tmp_path: Path, *, of_rocketmq: bool) -> None:
    fill(tmp_path, MESSAGES)
    if of_rocketmq:
        as_rocketmq(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "topic0" / "1")

    assert spans_of(gaps(tmp_path)) == [("topic0", 1, 0, 249)]
    # The other queue shows that the topic exists.
    assert spans_of(gaps(tmp_path, configured=())) == [("topic0", 1, 0, 249)]


def test_a_queue_written_before_the_others_is_one(tmp_path: Path) -> None:
    put(tmp_path, ("topic0", 0), ("topic0", 0), ("topic0", 1))
    shutil.rmtree(tmp_path / "consumequeue" / "topic0" / "0")

    assert spans_of(gaps(tmp_path)) == [("topic0", 0, 0, 1)]


def test_a_topic_without_its_folder_is_one_unless_it_was_deleted(tmp_path: Path) -> None:
    fill(tmp_path, MESSAGES)
    shutil.rmtree(tmp_path / "consumequeue" / "topic0")

    assert spans_of(gaps(tmp_path)) == [("topic0", 0, 0, 249), ("topic0", 1, 0, 249)]
    assert gaps(tmp_path, configured={"topic1"}) == []


def test_unwanted_queues_are_not_checked(tmp_path: Path) -> None:
    put(tmp_path, ("topic0", 0), ("orders", 0))
    shutil.rmtree(tmp_path / "consumequeue" / "orders")

    assert gaps(tmp_path, configured={"topic0", "orders"}) == []


@pytest.mark.parametrize("check_bytes_max", [1 << 26, 1 << 16])
def test_a_queue_that_ends_early_is_one(tmp_path: Path, check_bytes_max: int) -> None:
    fill(tmp_path, MESSAGES)
    (tmp_path / "consumequeue" / "topic1" / "0" / file_name(4 * QUEUE_FILE_BYTES)).unlink()

    (gap,) = gaps(tmp_path, check_bytes_max=check_bytes_max)

    assert (gap.topic, gap.queue_id, gap.first, gap.start, gap.end) == ("topic1", 0, 200, 0, 200)
    with ReadOnlyStore(tmp_path) as store:
        message = store.message_at(gap.physical_offset)
    assert message is not None
    assert (message.topic, message.queue_offset) == ("topic1", 200)


@pytest.mark.parametrize("check_bytes_max", [1 << 26, 1 << 16])
def test_a_queue_that_starts_late_is_one(tmp_path: Path, check_bytes_max: int) -> None:
    fill(tmp_path, MESSAGES)
    (tmp_path / "consumequeue" / "topic1" / "0" / file_name(0)).unlink()

    (gap,) = gaps(tmp_path, check_bytes_max=check_bytes_max)

    assert (gap.topic, gap.queue_id, gap.first, gap.start) == ("topic1", 0, 0, 50)


def test_a_recreated_topic_does_not_miss_its_old_messages(tmp_path: Path) -> None:
    put(tmp_path, *[("topic0", 0)] * 5, *[("topic0", 1)] * 5)
    with open_store(tmp_path) as store:
        store.delete_topic("topic0")

    # Nothing in queue 1 yet, and less in queue 0 than before.
    put(tmp_path, ("topic0", 0), ("topic0", 0))
    assert gaps(tmp_path) == []

    put(tmp_path, ("topic0", 1))
    assert gaps(tmp_path) == []
    shutil.rmtree(tmp_path / "consumequeue" / "topic0" / "1")
    assert spans_of(gaps(tmp_path)) == [("topic0", 1, 0, 0)]


def test_entries_not_yet_on_disk_are_not_missing(tmp_path: Path) -> None:
    fill(tmp_path, 400)
    with WriterProcess(tmp_path, queue_flush_interval_ms=10**6) as writer:
        writer.ask(first=400, count=400)

        assert gaps(tmp_path) == []


def test_a_file_missing_before_entries_that_are_not_on_disk_is_one(tmp_path: Path) -> None:
    fill(tmp_path, 400)
    with WriterProcess(tmp_path, queue_flush_interval_ms=10**6) as writer:
        writer.ask(first=400, count=400)
        writer.kill()
    (tmp_path / "consumequeue" / "topic0" / "0" / file_name(QUEUE_FILE_BYTES)).unlink()

    (gap,) = gaps(tmp_path)

    assert (gap.topic, gap.queue_id, gap.first) == ("topic0", 0, 50)


def test_damage_and_missing_log_files_are_reported_elsewhere(tmp_path: Path) -> None:
    fill(tmp_path, MESSAGES)
    change(tmp_path / "commitlog" / file_name(0), LOG_FILE_BYTES // 2, b"?" * 5_000)
    (tmp_path / "commitlog" / file_name(2 * LOG_FILE_BYTES)).unlink()

    assert gaps(tmp_path) == []

    shutil.rmtree(tmp_path / "consumequeue" / "topic0" / "1")
    assert [(gap.topic, gap.queue_id) for gap in gaps(tmp_path)] == [("topic0", 1)]


def test_of_a_large_log_only_spans_are_checked(tmp_path: Path) -> None:
    fill(tmp_path, MESSAGES)
    with ReadOnlyStore(tmp_path) as store:
        wanted = store.queue_keys()

        spans = spans_to_check(store, wanted, 1 << 16)

        assert sum(end - start for start, end in spans) <= 1 << 16
        assert spans[0][0] == store.start
        assert spans[-1][1] == store.end
        assert len(spans) > 20
        begins = {offset for offset, _ in store.records()} | {
            file.first_offset for file in store.log.files
        }
        assert {start for start, _ in spans} <= begins


def test_without_queues_spans_start_at_files(tmp_path: Path) -> None:
    fill(tmp_path, MESSAGES)
    shutil.rmtree(tmp_path / "consumequeue")

    found = gaps(tmp_path, check_bytes_max=1 << 17)

    assert len(found) == 4
