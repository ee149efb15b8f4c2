from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import pytest

from orbitmq.record.properties import encode_properties
from orbitmq.store.log.draft import Draft
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.findings import FindingKind
from orbitmq.store.tools.verification import Verification, verify
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    WriterProcess,
    as_rocketmq,
    change,
    draft,
    fill,
    open_store,
    snapshot,
)


def verified(root: Path, *, delay_levels: str | None = None) -> Verification:
    with ReadOnlyStore(root) as store:
        return verify(store, delay_levels=delay_levels)


def kinds(found: Verification) -> dict[FindingKind, int]:
    return dict(found.findings.counts)


def log_file(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * LOG_FILE_BYTES:020d}"


def record_offsets(root: Path) -> list[int]:
    with ReadOnlyStore(root) as store:
        return [offset for offset, _ in store.records()]


def damage(root: Path, offset: int, at: int, content: bytes) -> None:
    """Change bytes of the record at a physical offset."""
    number, position = divmod(offset, LOG_FILE_BYTES)
    change(log_file(root, number), position + at, content)


def test_a_store_that_was_stopped_cleanly_is_fine(tmp_path: Path) -> None:
    fill(tmp_path)
    before = snapshot(tmp_path)
    progress: list[tuple[int, int]] = []

    with ReadOnlyStore(tmp_path) as store:
        found = verify(store, on_progress=lambda done, total: progress.append((done, total)))

    assert found.is_fine
    assert (found.records, found.queues, found.entries, found.keys) == (1000, 4, 1000, 3000)
    assert found.findings.notes == []
    assert progress[-1] == (found.end, found.end)
    assert snapshot(tmp_path) == before


def test_a_store_is_fine_while_it_is_written_and_after_a_crash(tmp_path: Path) -> None:
    with WriterProcess(tmp_path, queue_flush_interval_ms=60_000) as writer:
        writer.ask(first=0, count=600)
        live = verified(tmp_path)
        writer.kill()
    crashed = verified(tmp_path)

    assert live.is_fine
    assert live.records == 600
    assert crashed.is_fine
    assert "recovers" in crashed.findings.notes[0]


def test_a_rocketmq_store_is_fine(tmp_path: Path) -> None:
    fill(tmp_path)
    as_rocketmq(tmp_path)
    assert verified(tmp_path).is_fine

    (tmp_path / "abort").write_text("1")
    assert verified(tmp_path).is_fine


def test_a_changed_body_is_reported_with_file_position_and_topic(tmp_path: Path) -> None:
    fill(tmp_path)
    offset = record_offsets(tmp_path)[401]
    damage(tmp_path, offset, 100, b"X")

    found = verified(tmp_path)

    (problem,) = found.findings.problems
    assert problem.kind is FindingKind.BAD_RECORD
    assert problem.file == str(log_file(tmp_path, offset // LOG_FILE_BYTES))
    assert (problem.position, problem.offset) == (offset % LOG_FILE_BYTES, offset)
    assert (problem.topic, problem.queue_id, problem.first_number) == ("topic1", 0, 100)
    assert "checksum" in problem.text
    assert found.records == 1000
    assert any("replica" in line for line in found.findings.advice("x"))


def test_a_record_that_contains_another_offset_is_reported(tmp_path: Path) -> None:
    fill(tmp_path)
    damage(tmp_path, record_offsets(tmp_path)[10], 28, (5).to_bytes(8))

    (problem,) = verified(tmp_path).findings.problems

    assert "written for offset 5" in problem.text


@pytest.mark.parametrize("content", [b"\0" * 8, b"\xff" * 8, b"\0\0\0\7", b"\x7f\0\0\0"])
def test_damage_is_skipped_and_its_cost_is_reported(tmp_path: Path, content: bytes) -> None:
    fill(tmp_path)
    offsets = record_offsets(tmp_path)
    damage(tmp_path, offsets[500], 0, content)

    found = verified(tmp_path)

    first, *lost = found.findings.problems
    assert first.kind is FindingKind.LOST_RECORDS
    assert f"{offsets[501] - offsets[500]} bytes are not records" in first.text
    assert first.offset == offsets[500]
    assert [(p.kind, p.topic, p.queue_id, p.first_number) for p in lost] == [
        (FindingKind.LOST_RECORDS, "topic0", 0, 125)
    ]
    assert found.records == 999


def test_damage_of_many_records_up_to_the_end_of_a_file_is_one_problem(tmp_path: Path) -> None:
    fill(tmp_path)
    offsets = record_offsets(tmp_path)
    behind = [offset for offset in offsets if offset < LOG_FILE_BYTES][-20:]
    change(log_file(tmp_path, 0), behind[0], bytes(LOG_FILE_BYTES - behind[0]))

    found = verified(tmp_path)

    in_log = [p for p in found.findings.problems if not p.topic]
    in_queues = [p for p in found.findings.problems if p.topic]
    assert [(p.kind, p.offset) for p in in_log] == [(FindingKind.LOST_RECORDS, behind[0])]
    assert sum(p.count for p in in_queues) == 20
    assert found.records == 980


def test_a_missing_file_of_the_log_is_reported(tmp_path: Path) -> None:
    fill(tmp_path)
    log_file(tmp_path, 2).unlink()

    found = verified(tmp_path)

    assert kinds(found)[FindingKind.MISSING_LOG_FILE] == 1
    assert set(kinds(found)) == {FindingKind.MISSING_LOG_FILE, FindingKind.LOST_RECORDS}
    assert found.records + kinds(found)[FindingKind.LOST_RECORDS] == 1000


def test_entries_that_are_missing_wrong_or_too_many_are_reported(tmp_path: Path) -> None:
    fill(tmp_path)
    queue = tmp_path / "consumequeue" / "topic0" / "0"
    change(queue / f"{1000:020d}", 7 * 20 + 12, b"\1")
    shutil.rmtree(tmp_path / "consumequeue" / "topic1" / "1")
    stray = (queue / f"{0:020d}").read_bytes()[:20]
    (queue / f"{5000:020d}").write_bytes(stray.ljust(1000, b"\0"))

    found = verified(tmp_path)

    assert kinds(found) == {
        FindingKind.WRONG_ENTRY: 1,
        FindingKind.MISSING_ENTRY: 250,
        FindingKind.STRAY_ENTRY: 1,
    }
    assert any("orbitmq store rebuild" in line for line in found.findings.advice("x"))


def test_an_index_that_lost_keys_is_reported(tmp_path: Path) -> None:
    fill(tmp_path)
    first = min((tmp_path / "index").iterdir())
    first.unlink()

    found = verified(tmp_path)

    assert set(kinds(found)) == {FindingKind.MISSING_KEY}

    shutil.rmtree(tmp_path / "index")
    assert kinds(verified(tmp_path)) == {FindingKind.BAD_INDEX_FILE: 1}


def test_strange_files_are_reported(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    (tmp_path / "commitlog" / "notes").write_text("mine")

    assert kinds(verified(tmp_path)) == {FindingKind.STRANGE_FILE: 1}


def test_a_deleted_topic_is_a_note_where_the_brokers_topics_are_known(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(10):
            store.put(draft(number))
        store.delete_topic("topic1")
    (tmp_path / "orbitmq" / "deleted_topics").unlink()
    assert kinds(verified(tmp_path)) == {FindingKind.MISSING_ENTRY: 5}

    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"topic0":{}}}')

    found = verified(tmp_path)
    assert found.is_fine
    assert len(found.findings.notes) == 2


def test_due_times_of_delayed_messages_are_checked_by_the_given_levels(tmp_path: Path) -> None:
    levels = "5s 7s"
    with open_store(tmp_path, delay_levels=levels) as store:
        properties = encode_properties({"DELAY": "2"})
        store.put(Draft(topic="SCHEDULE_TOPIC_XXXX", queue_id=1, body=b"x", properties=properties))

    assert verified(tmp_path, delay_levels=levels).is_fine
    assert kinds(verified(tmp_path)) == {FindingKind.WRONG_ENTRY: 1}


@pytest.mark.parametrize("is_right", [True, False])
def test_the_optional_checksum_of_a_whole_record_is_checked(
    tmp_path: Path, *, is_right: bool
) -> None:
    placeholder = b"a\x01b\x02__CRC32#\x010000000000\x02"
    with open_store(tmp_path) as store:
        receipt = store.put(Draft(topic="one", body=b"x", properties=placeholder))
    path = log_file(tmp_path, 0)
    content = path.read_bytes()[: receipt.record_bytes]
    crc = zlib.crc32(content[:-20]) & 0x7FFFFFFF
    digits = str(crc if is_right else crc ^ 1).encode()[::-1].ljust(10, b"0")
    change(path, receipt.record_bytes - 11, digits)

    found = verified(tmp_path)

    assert found.is_fine == is_right


def test_files_deleted_by_retention_meanwhile_are_a_note(tmp_path: Path) -> None:
    fill(tmp_path)
    with ReadOnlyStore(tmp_path) as store:
        assert store.end
        log_file(tmp_path, 0).unlink()
        log_file(tmp_path, 1).unlink()

        found = verify(store)

    assert "retention deleted" in found.findings.notes[0]
    assert found.records < 1000


def test_an_empty_store_is_fine(tmp_path: Path) -> None:
    assert verified(tmp_path).is_fine
