"""Whether entries of a queue are in the order of the log."""

from __future__ import annotations

from pathlib import Path

from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.readonly.queue_files import ReadOnlyQueue
from orbitmq.store.tools.findings import FindingKind, Findings
from orbitmq.store.tools.queue_order import QueueOrder
from tests.unit.store.written_stores import QUEUE_FILE_BYTES, change, fill

PER_FILE = QUEUE_FILE_BYTES // 20


def checked(root: Path, first: int = 0, end: int = 10_000) -> list[tuple[FindingKind, int, int]]:
    findings = Findings()
    queue = ReadOnlyQueue(root / "consumequeue" / "topic0" / "0", OpenFiles(8, writable=False))
    QueueOrder(queue, findings, topic="topic0", queue_id=0, log_start=0, log_end=1 << 40).check(
        first, end
    )
    return [(one.kind, one.first_number, one.last_number) for one in findings.problems]


def queue_file(root: Path, number: int) -> Path:
    return root / "consumequeue" / "topic0" / "0" / f"{number * QUEUE_FILE_BYTES:020d}"


def test_entries_that_lead_forward_are_fine(tmp_path: Path) -> None:
    fill(tmp_path, 600)

    assert checked(tmp_path) == []
    assert checked(tmp_path, PER_FILE, PER_FILE + 1) == []


def test_an_entry_that_leads_back_is_found_also_at_the_start_of_a_range(tmp_path: Path) -> None:
    fill(tmp_path, 600)
    change(queue_file(tmp_path, 1), 0, ENTRY.pack(0, 300, 5))
    wrong = [(FindingKind.WRONG_ENTRY, PER_FILE - 1, PER_FILE)]

    assert checked(tmp_path) == wrong
    assert checked(tmp_path, PER_FILE) == wrong
    assert checked(tmp_path, 0, PER_FILE) == []


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    fill(tmp_path, 600)
    queue_file(tmp_path, 1).unlink()

    assert checked(tmp_path) == [(FindingKind.MISSING_ENTRY, PER_FILE, 2 * PER_FILE - 1)]
