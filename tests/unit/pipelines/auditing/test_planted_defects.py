"""Every planted defect is found, and nothing else; as by a pass over the whole store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.findings import FindingKind
from orbitmq.store.tools.verification import verify
from tests.unit.pipelines.auditing.audits import audited, audited_store, found_in
from tests.unit.store.written_stores import (
    INDEX_SLOTS,
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    as_rocketmq,
    change,
    fill,
)

COUNT = 1000
PER_FILE = QUEUE_FILE_BYTES // 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "store"
    fill(root, COUNT)
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "store")


def offsets(root: Path) -> list[int]:
    with ReadOnlyStore(root) as store:
        return [offset for offset, _ in store.records()]


def log_file(root: Path, offset: int) -> Path:
    return root / "commitlog" / f"{offset // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"


def damage(root: Path, offset: int, at: int, content: bytes) -> None:
    change(log_file(root, offset), offset % LOG_FILE_BYTES + at, content)


def queue_file(root: Path, number: int, *, queue: str = "topic0/0") -> Path:
    return root / "consumequeue" / queue / f"{number * QUEUE_FILE_BYTES:020d}"


def index_file(root: Path, number: int) -> Path:
    return sorted((root / "index").iterdir())[number]


def flip_body(root: Path) -> None:
    damage(root, offsets(root)[401], 100, b"X")


def flip_head(root: Path) -> None:
    damage(root, offsets(root)[402], 30, b"X")


def flip_size(root: Path) -> None:
    damage(root, offsets(root)[500], 0, b"\x7f")


def lose_log_file(root: Path) -> None:
    log_file(root, 2 * LOG_FILE_BYTES).unlink()


def lose_queue_file(root: Path) -> None:
    queue_file(root, 2).unlink()


def lose_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "topic1" / "1")


def cut_queue(root: Path) -> None:
    change(queue_file(root, 4), 20 * 30, bytes(20 * 20))


def change_entry(root: Path) -> None:
    change(queue_file(root, 1), 20 * 7, ENTRY.pack(offsets(root)[900], 300, 5))


def change_tag(root: Path) -> None:
    change(queue_file(root, 1), 20 * 7 + 12, b"\1")


def add_entry(root: Path) -> None:
    queue_file(root, 5).write_bytes(
        ENTRY.pack(offsets(root)[999], 300, 5).ljust(QUEUE_FILE_BYTES, b"\0")
    )


def change_key(root: Path) -> None:
    change(index_file(root, 1), 40 + 4 * INDEX_SLOTS + 20 * 50, b"\1\2\3\4")


def lose_index_file(root: Path) -> None:
    index_file(root, 1).unlink()


DEFECTS: dict[Callable[[Path], None], set[FindingKind]] = {
    flip_body: {FindingKind.BAD_RECORD},
    flip_head: {FindingKind.BAD_RECORD},
    flip_size: {FindingKind.LOST_RECORDS},
    lose_log_file: {FindingKind.MISSING_LOG_FILE, FindingKind.LOST_RECORDS},
    lose_queue_file: {FindingKind.MISSING_ENTRY},
    lose_queue: {FindingKind.MISSING_ENTRY},
    cut_queue: {FindingKind.MISSING_ENTRY},
    change_entry: {FindingKind.WRONG_ENTRY},
    change_tag: {FindingKind.WRONG_ENTRY},
    add_entry: {FindingKind.STRAY_ENTRY},
    change_key: {FindingKind.MISSING_KEY, FindingKind.BAD_INDEX_FILE},
    lose_index_file: {FindingKind.MISSING_KEY},
}


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_found_as_in_one_pass(
    root: Path, plant: Callable[[Path], None], *, is_ours: bool
) -> None:
    if not is_ours:
        as_rocketmq(root)
    plant(root)

    found = audited_store(root)

    assert set(found.counts) == DEFECTS[plant]
    with ReadOnlyStore(root) as store:
        assert found.counts == verify(store).findings.counts
    assert found.advice


def test_what_goes_on_in_the_next_range_is_one_finding(root: Path) -> None:
    lose_queue(root)

    found = audited_store(root, range_bytes=5000)

    assert found_in(found) == [(FindingKind.MISSING_ENTRY, "topic1", 1, 0, COUNT // 4 - 1)]
    assert found.counts == {FindingKind.MISSING_ENTRY: COUNT // 4}
    assert found.advice == [
        f"queues and index can be rebuilt: stop the broker, run: orbitmq store rebuild {root}"
    ]


def test_an_entry_that_leads_into_another_range_is_found_once(root: Path) -> None:
    change_entry(root)

    found = audited_store(root, range_bytes=5000)

    assert found_in(found) == [(FindingKind.WRONG_ENTRY, "topic0", 0, PER_FILE + 7, PER_FILE + 7)]
    assert found.counts == {FindingKind.WRONG_ENTRY: 1}


def test_a_bad_record_can_be_copied_from_a_replica(root: Path, tmp_path: Path) -> None:
    replica = shutil.copytree(root, tmp_path / "replica")
    flip_body(root)

    first, second = audited(root, replica)

    name = log_file(root, offsets(replica)[401]).name
    assert set(first.counts) == {FindingKind.BAD_RECORD}
    assert first.advice == [
        "stop the broker, keep the old file elsewhere, then: "
        f"cp {replica}/commitlog/{name} {root}/commitlog/{name}",
        f"then: orbitmq store verify {root}",
    ]
    (differs,) = second.findings
    assert differs.kind is FindingKind.REPLICA_DIFFERS
    assert "is damaged in" in differs.text
    assert (differs.topic, differs.queue_id, differs.first_number) == ("topic1", 0, 100)


def test_a_bad_record_in_a_replica_is_found_in_it(root: Path, tmp_path: Path) -> None:
    replica = shutil.copytree(root, tmp_path / "replica")
    flip_body(replica)

    first, second = audited(root, replica)

    assert first.findings == []
    assert second.counts == {FindingKind.BAD_RECORD: 1, FindingKind.REPLICA_DIFFERS: 1}
    assert "damaged here" in second.findings[-1].text
    assert second.advice[0].partition(": ")[2].startswith(f"cp {root}/commitlog/")


def test_the_first_record_is_named_where_a_replica_went_on_differently(tmp_path: Path) -> None:
    root, replica = tmp_path / "master", tmp_path / "slave"
    fill(root, 500)
    shutil.copytree(root, replica)
    fill(root, 300, first=500)
    fill(replica, 300, first=501)

    first, second = audited(root, replica)

    assert first.findings == []
    (differs,) = second.findings
    assert differs.kind is FindingKind.REPLICA_DIFFERS
    assert differs.offset == offsets(root)[500]
    assert (differs.topic, differs.queue_id, differs.first_number) == ("topic0", 0, 125)
    assert "go on differently" in differs.text
    assert "not the master" in second.advice[0]


def test_a_missing_file_of_a_replica_is_a_missing_file_only(root: Path, tmp_path: Path) -> None:
    replica = shutil.copytree(root, tmp_path / "replica")
    lose_log_file(replica)

    first, second = audited(root, replica)

    assert first.findings == []
    assert set(second.counts) == DEFECTS[lose_log_file]
    assert second.advice[0].partition(": ")[2].startswith(f"cp {root}/commitlog/")


def test_a_directory_without_a_store_is_not_examined(root: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    first, second = audited(root, empty)

    assert (first.findings, first.errors) == ([], [])
    assert "holds no store" in second.errors[0]
    assert not second.counts
