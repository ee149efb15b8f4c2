"""Nothing is found in stores that are as brokers leave them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from orbitmq.pipelines.auditing.directories import BrokerDirectories
from orbitmq.pipelines.auditing.results import join
from orbitmq.pipelines.auditing.tasks import ItemOptions, examine
from orbitmq.pipelines.auditing.work import plan
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.accepting_loss import accept_loss
from tests.interop.record_kinds import EveryKind
from tests.unit.pipelines.auditing.audits import audited, audited_store
from tests.unit.store.stores import message
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    T0,
    WriterProcess,
    as_rocketmq,
    change,
    draft,
    fill,
    open_store,
    snapshot,
)
from tests.waiting import WAIT_SECONDS, wait_until


@pytest.mark.parametrize("range_bytes", [1300, 20_000, 1 << 30])
def test_a_stopped_store_is_fine_however_it_is_cut_into_ranges(
    tmp_path: Path, range_bytes: int
) -> None:
    fill(tmp_path)
    before = snapshot(tmp_path)

    store = audited_store(tmp_path, range_bytes=range_bytes)

    assert store.findings == []
    assert not store.counts
    assert (store.records, store.entries, store.keys) == (1000, 1000, 3000)
    assert (store.plan.queues, store.notes, store.advice) == (4, [], [])
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("is_ours", [True, False])
def test_records_of_every_kind_are_fine(tmp_path: Path, *, is_ours: bool) -> None:
    kinds = EveryKind("kinds", group="heirs", born_ms=T0, with_v2=True)
    with open_store(tmp_path) as store:
        kinds.put(store, kinds.batches)
    if not is_ours:
        as_rocketmq(tmp_path)

    found = audited_store(tmp_path)

    assert found.findings == []
    assert found.records == len(list(kinds))


def test_an_open_store_and_a_crashed_one_are_fine(tmp_path: Path) -> None:
    with WriterProcess(tmp_path, queue_flush_interval_ms=60_000) as writer:
        writer.ask(first=0, count=600)
        live = audited_store(tmp_path)
        writer.kill()
    crashed = audited_store(tmp_path)

    assert (live.findings, crashed.findings) == ([], [])
    assert (live.records, crashed.records) == (600, 600)
    assert "not examined" in crashed.notes[0]


def test_what_retention_deletes_between_plan_and_task_is_no_loss(tmp_path: Path) -> None:
    with open_store(tmp_path, queue_flush_interval_ms=10) as store:
        store.confirm([store.append(draft(number)) for number in range(900)])
        work = plan([BrokerDirectories("a", (str(tmp_path),))], range_bytes=20_000)
        for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
            os.utime(path, (0, 0))
        # Once their queue entries are on disk.
        wait_until(
            lambda: bool(store.delete_expired()), timeout_s=WAIT_SECONDS, what="a deleted file"
        )
        (found,) = join(work.stores, [examine(item, ItemOptions()) for item in work.items])
        again = audited_store(tmp_path)

    assert (found.findings, found.errors) == ([], [])
    assert again.findings == []
    assert 0 < found.records == again.records < 900


@pytest.mark.parametrize("knows_deletion", [True, False])
def test_topics_that_were_deleted_and_created_again_are_fine(
    tmp_path: Path, *, knows_deletion: bool
) -> None:
    with open_store(tmp_path) as store:
        for number in range(300):
            store.append(draft(number))
        store.publish()
        store.delete_topic("topic0")
        for number in range(300, 500):
            store.append(draft(number))
        store.publish()
    if not knows_deletion:
        # A RocketMQ broker does not note it.
        as_rocketmq(tmp_path)

    found = audited_store(tmp_path, range_bytes=5000)

    assert found.findings == []
    assert found.records == 500


def test_topics_in_memory_and_empty_queues_are_fine(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.keep_in_memory("prices")
        store.put(message(b"here", topic="prices"))
        store.put(message(b"there", topic="orders"))

    assert audited_store(tmp_path).findings == []


def test_queues_with_records_of_other_topics_are_fine(tmp_path: Path) -> None:
    fill(tmp_path, 200)
    folder = tmp_path / "consumequeue" / "%LMQ%x" / "0"
    folder.mkdir(parents=True)
    entries = (tmp_path / "consumequeue" / "topic0" / "0" / f"{0:020d}").read_bytes()
    # Those of a queue that is not the only one, and of lower numbers.
    (folder / f"{0:020d}").write_bytes(entries[200:].ljust(QUEUE_FILE_BYTES, b"\0"))

    assert audited_store(tmp_path).findings == []


def test_an_accepted_loss_is_a_note_in_the_store_and_beside_its_replica(tmp_path: Path) -> None:
    root, replica = tmp_path / "master", tmp_path / "slave"
    fill(root)
    shutil.copytree(root, replica)
    with ReadOnlyStore(root) as opened:
        offset = [at for at, _ in opened.records()][300]
    change(
        root / "commitlog" / f"{offset // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}",
        offset % LOG_FILE_BYTES,
        b"\xff" * 8,
    )
    accept_loss(root, offset, confirmed=True)

    first, second = audited(root, replica)

    assert (first.findings, second.findings) == ([], [])
    assert first.notes == ["1 records replace bytes whose loss was accepted"]


def test_a_replica_that_lags_is_a_note(tmp_path: Path) -> None:
    root, replica = tmp_path / "master", tmp_path / "slave"
    fill(root, 500)
    shutil.copytree(root, replica)
    fill(root, 300, first=500)

    first, second = audited(root, replica)

    assert (first.findings, second.findings) == ([], [])
    assert second.notes == [
        f"its log ends {first.plan.end - second.plan.end} bytes before that of {root}"
    ]
    assert second.compared_bytes == second.plan.end


def test_what_follows_the_last_record_of_a_file_is_not_compared(tmp_path: Path) -> None:
    root, replica = tmp_path / "master", tmp_path / "slave"
    fill(root, 500)
    shutil.copytree(root, replica)
    change(replica / "commitlog" / f"{0:020d}", LOG_FILE_BYTES - 4, b"left")

    assert [store.findings for store in audited(root, replica)] == [[], []]
