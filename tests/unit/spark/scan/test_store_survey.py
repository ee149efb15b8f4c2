from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import RecordsDeletedError, StoreDamagedError, StoreError, StoreFormatError
from orbitmq.spark.reading.filters import Pruning
from orbitmq.spark.scan.store_partitions import StoreLocation, StorePartition
from orbitmq.spark.scan.store_survey import StoreSelection, StoreSurvey, plan, survey_store
from orbitmq.store.files.file_names import file_name
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    T0,
    WriterProcess,
    as_rocketmq,
    fill,
)


def survey(root: Path, *, fail_on_data_loss: bool = True, **wanted: Any) -> StoreSurvey:
    location = StoreLocation(str(root), "broker-a")
    return survey_store(location, StoreSelection(**wanted), fail_on_data_loss=fail_on_data_loss)


def found(root: Path, **wanted: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """The ranges of queues."""
    made = survey(root, **wanted)
    return {
        (made.queues[one.queue].topic, made.queues[one.queue].queue_id): (one.first, one.end)
        for one in made.ranges
    }


def test_everything_visible_is_found(tmp_path: Path) -> None:
    fill(tmp_path, 1_000)

    made = survey(tmp_path)

    assert made.rows == 1_000
    assert made.topics == ["topic0", "topic1"]
    assert 250 * 1_000 < made.row_bytes < 450 * 1_000


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"topics": frozenset({"topic1"})}, {("topic1", 0), ("topic1", 1)}),
        ({"topic_pattern": "topic."}, {("topic0", 0), ("topic0", 1), ("topic1", 0), ("topic1", 1)}),
        ({"topic_pattern": "topic"}, set()),
        ({"pruning": Pruning(queue_ids=frozenset({1}))}, {("topic0", 1), ("topic1", 1)}),
        ({"queues": frozenset({("topic0", "broker-a", 1)})}, {("topic0", 1)}),
        ({"queues": frozenset({("topic0", "broker-b", 1)})}, set()),
        ({"pruning": Pruning(brokers=frozenset({"broker-b"}))}, set()),
        ({"pruning": Pruning(topics=frozenset({"topic1", "x"}))}, {("topic1", 0), ("topic1", 1)}),
        (
            {
                "topics": frozenset({"topic0"}),
                "pruning": Pruning(topics=frozenset({"topic1"})),
            },
            set(),
        ),
    ],
)
def test_topics_and_queues_are_chosen(
    tmp_path: Path, wanted: dict[str, Any], expected: set[tuple[str, int]]
) -> None:
    fill(tmp_path, 100)

    assert set(found(tmp_path, **wanted)) == expected


@pytest.mark.parametrize(
    ("topic", "with_system", "taken"),
    [
        ("orders", False, True),
        ("SCHEDULE_TOPIC_XXXX", False, False),
        ("SCHEDULE_TOPIC_XXXX", True, True),
        ("rmq_sys_wheel_timer", False, False),
        ("%RETRY%group", False, False),
        ("%DLQ%group", True, True),
        ("%LMQ%x", True, False),
    ],
)
def test_system_topics_are_optional(
    topic: str,
    *,
    with_system: bool,
    taken: bool,
) -> None:
    assert StoreSelection(with_system_topics=with_system).takes_topic(topic) is taken


def test_a_system_topic_given_by_name_is_read() -> None:
    assert StoreSelection(topics=frozenset({"%RETRY%group"})).takes_topic("%RETRY%group")


def test_times_and_offsets_become_ranges_of_entries(tmp_path: Path) -> None:
    fill(tmp_path, 1_000, step_ms=10)

    # Queue 0 of topic0 has every fourth message, one every 40 ms.
    ranges = found(tmp_path, start_ms=T0 + 401, end_ms=T0 + 1_000)

    assert ranges["topic0", 0] == (11, 25)
    some = Pruning(first_offset=5, end_offset=9)
    assert found(tmp_path, pruning=some)["topic1", 1] == (5, 9)
    assert found(tmp_path, pruning=Pruning(first_offset=250)) == {}
    later = Pruning(first_ms=T0 + 401, end_ms=T0 + 5_000)
    assert found(tmp_path, pruning=later, start_ms=T0, end_ms=T0 + 1_000)["topic0", 0] == (11, 25)
    assert found(tmp_path, start_ms=T0 + 10**9) == {}


def test_the_end_is_frozen_when_the_scan_is_planned(tmp_path: Path) -> None:
    with WriterProcess(tmp_path, queue_flush_interval_ms=10**6) as writer:
        writer.ask(first=0, count=300)
        made = survey(tmp_path)
        writer.ask(first=300, count=300)

        assert made.rows == 300
        partitions = plan([made], parallelism=1, min_partitions=3, records_max=None)
        assert sum(partition.count for partition in partitions) == 300
        tails = [len(one.tail) for partition in partitions for one in partition.slices]
        assert sum(tails) == 300 * 20


def test_slices_know_which_entries_are_on_disk(tmp_path: Path) -> None:
    fill(tmp_path, 400)
    with WriterProcess(tmp_path, queue_flush_interval_ms=10**6) as writer:
        writer.ask(first=400, count=400)
        partitions = plan([survey(tmp_path)], parallelism=1, min_partitions=4, records_max=None)

    slices = [one for partition in partitions for one in partition.slices]
    assert {one.disk_end for one in slices} == {100}
    for one in slices:
        assert len(one.tail) == 20 * max(0, one.end - max(one.first, 100))


def test_stores_are_cut_in_proportion(tmp_path: Path) -> None:
    fill(tmp_path / "small", 100)
    fill(tmp_path / "large", 700)
    surveys = [survey(tmp_path / name) for name in ("small", "large")]

    partitions = plan(surveys, parallelism=2, min_partitions=8, records_max=None)

    roots = [Path(partition.location.root).name for partition in partitions]
    assert (roots.count("small"), roots.count("large")) == (1, 7)


def test_no_task_exceeds_the_limit_of_rows(tmp_path: Path) -> None:
    fill(tmp_path, 1_000)

    partitions = plan([survey(tmp_path)], parallelism=2, min_partitions=None, records_max=60)

    assert max(partition.count for partition in partitions) <= 60
    assert sum(partition.count for partition in partitions) == 1_000


def test_an_empty_store_has_no_tasks(tmp_path: Path) -> None:
    fill(tmp_path, 0)

    assert plan([survey(tmp_path)], parallelism=2, min_partitions=5, records_max=1) == []


def test_a_store_of_rocketmq_is_read(tmp_path: Path) -> None:
    fill(tmp_path, 1_000)
    as_rocketmq(tmp_path)

    assert survey(tmp_path).rows == 1_000


# --- what is no store, or not all of one ----------------------------------------------------------


def test_a_folder_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match=r"is not a store: .*commitlog does not exist"):
        survey(tmp_path)
    with pytest.raises(StoreError, match="is not a folder"):
        survey(tmp_path / "none")


def test_a_store_without_read_access_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, 10)
    # The user that runs the tests may have access to everything.
    monkeypatch.setattr(os, "access", lambda *_: False)

    with pytest.raises(StoreError, match="this user may not read"):
        survey(tmp_path)


def test_the_parent_folder_of_a_store_leads_to_it(tmp_path: Path) -> None:
    fill(tmp_path / "broker-a" / "store", 10)

    with pytest.raises(StoreFormatError, match=r"did you mean .*broker-a/store\?"):
        survey(tmp_path)
    with pytest.raises(StoreFormatError, match=r"did you mean .*broker-a/store\?"):
        survey(tmp_path / "broker-a")


def test_a_copy_without_queues_or_log_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    shutil.move(tmp_path / "consumequeue", tmp_path / "elsewhere")
    with pytest.raises(StoreFormatError, match="has a log and no queues"):
        survey(tmp_path)

    shutil.move(tmp_path / "elsewhere", tmp_path / "consumequeue")
    for file in (tmp_path / "commitlog").iterdir():
        file.unlink()
    with pytest.raises(StoreFormatError, match="has queues and no log"):
        survey(tmp_path)


def test_a_separate_log_is_read(tmp_path: Path) -> None:
    fill(tmp_path / "store", 100)
    shutil.move(tmp_path / "store" / "commitlog", tmp_path / "log")
    location = StoreLocation(str(tmp_path / "store"), "broker-a", str(tmp_path / "log"))

    assert survey_store(location, StoreSelection(), fail_on_data_loss=True).rows == 100


@pytest.mark.parametrize("of_rocketmq", [False, True])
def test_a_file_copied_in_part_is_loss(tmp_path: Path, *, of_rocketmq: bool) -> None:
    fill(tmp_path, 1_000)
    if of_rocketmq:
        as_rocketmq(tmp_path)
    last = sorted((tmp_path / "commitlog").iterdir())[-1]
    with last.open("r+b") as file:
        file.truncate(LOG_FILE_BYTES // 8)

    with pytest.raises(StoreDamagedError, match=r"ends at offset .*copy the whole store"):
        survey(tmp_path)
    left = survey(tmp_path, fail_on_data_loss=False)
    assert 0 < left.rows < 1_000


def test_messages_of_a_missing_file_are_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 1_000)
    with ReadOnlyStore(tmp_path) as store:
        gone = [o for o, _ in store.records() if LOG_FILE_BYTES <= o < 3 * LOG_FILE_BYTES]
    for number in (1, 2):
        (tmp_path / "commitlog" / file_name(number * LOG_FILE_BYTES)).unlink()

    with pytest.raises(RecordsDeletedError, match="of queue 0 of topic 'topic0' of broker"):
        survey(tmp_path)
    with caplog.at_level(logging.WARNING):
        left = survey(tmp_path, fail_on_data_loss=False)
    assert left.rows == 1_000 - len(gone)
    assert len(left.ranges) == 8
    assert "missing between others" in caplog.text


@pytest.mark.parametrize("gone", ["topic0/1", f"topic0/1/{file_name(4 * QUEUE_FILE_BYTES)}"])
def test_messages_that_queues_lack_are_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    fill(tmp_path, 1_000)
    lost = tmp_path / "consumequeue" / gone
    rows = 250 if lost.is_dir() else 50
    shutil.move(lost, tmp_path / "elsewhere")

    with pytest.raises(StoreDamagedError, match=r"of queue 1 of topic 'topic0' .*store rebuild"):
        survey(tmp_path)
    assert survey(tmp_path, topics=frozenset({"topic1"})).rows == 500
    with caplog.at_level(logging.WARNING):
        left = survey(tmp_path, fail_on_data_loss=False)
    assert left.rows == 1_000 - rows
    assert "has messages that its queues lack" in caplog.text


def test_a_topic_that_the_broker_has_and_queues_lack_is_loss(tmp_path: Path) -> None:
    fill(tmp_path, 1_000)
    shutil.rmtree(tmp_path / "consumequeue" / "topic0")
    (tmp_path / "config").mkdir(exist_ok=True)
    topics = tmp_path / "config" / "topics.json"

    topics.write_text('{"topicConfigTable":{"topic0":{"topicName":"topic0"}}}')
    with pytest.raises(StoreDamagedError, match=r"queue has no entries; incomplete queues: 2"):
        survey(tmp_path, topics=frozenset({"topic0"}))

    # It was deleted.
    topics.write_text('{"topicConfigTable":{"topic1":{"topicName":"topic1"}}}')
    assert survey(tmp_path).rows == 500


def test_earlier_deletions_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, 1_000)
    (tmp_path / "commitlog" / file_name(0)).unlink()

    with caplog.at_level(logging.WARNING):
        left = survey(tmp_path)

    assert 0 < left.rows < 1_000
    assert f"queues=4 messages={1_000 - left.rows}" in caplog.text


def test_partitions_name_their_store(tmp_path: Path) -> None:
    fill(tmp_path, 10)

    (partition,) = survey(tmp_path).partitions(1, None)

    assert isinstance(partition, StorePartition)
    assert partition.location.broker_name == "broker-a"
