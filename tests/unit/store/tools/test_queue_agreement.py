from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.record.scan import EntryRun
from orbitmq.store.files.open_files import OpenFiles
from orbitmq.store.index.consume_queue import ENTRY, FILLER
from orbitmq.store.readonly.queue_files import ReadOnlyQueue
from orbitmq.store.tools.findings import FindingKind, Findings, Scope
from orbitmq.store.tools.queue_agreement import QueueAgreement

FILE_BYTES = 200


def entries(*numbers: int, tag: int = 5) -> bytearray:
    """Entries of records of 100 bytes, record n at byte 1000 + 100 n."""
    return bytearray().join(ENTRY.pack(1000 + 100 * number, 100, tag) for number in numbers)


class Queues:
    """Queue folders written by hand, and the findings of a comparison with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = OpenFiles(8, writable=False)
        self.findings = Findings()

    def write(self, content: bytes | bytearray, *, first: int = 0, queue_id: int = 0) -> None:
        folder = self.folder / "t" / str(queue_id)
        folder.mkdir(parents=True, exist_ok=True)
        at = first * 20
        content = bytes(at % FILE_BYTES) + bytes(content)
        at -= at % FILE_BYTES
        while content:
            part, content = content[:FILE_BYTES], content[FILE_BYTES:]
            (folder / f"{at:020d}").write_bytes(part.ljust(FILE_BYTES, b"\0"))
            at += FILE_BYTES

    def agreement(
        self,
        *,
        required_until: int = 1 << 40,
        lost: Callable[[int], bool] = lambda _: False,
        topics: frozenset[str] | None = None,
        has_extensions: bool = False,
    ) -> QueueAgreement:
        return QueueAgreement(
            lambda topic, queue_id: ReadOnlyQueue(self.folder / topic / str(queue_id), self.files),
            self.findings,
            scope=Scope(
                log_start=1000, log_end=1 << 40, required_until=required_until, is_lost=lost
            ),
            topics=topics,
            has_extensions=has_extensions,
        )

    @property
    def found(self) -> list[tuple[FindingKind, int, int]]:
        return [(p.kind, p.first_number, p.last_number) for p in self.findings.problems]


@pytest.fixture
def queues(tmp_path: Path) -> Queues:
    return Queues(tmp_path)


def test_entries_that_are_as_their_records_say_are_fine(queues: Queues) -> None:
    queues.write(entries(*range(25)))
    agreement = queues.agreement()

    agreement.compare("t", 0, EntryRun(0, entries(*range(12))))
    agreement.compare("t", 0, EntryRun(12, entries(*range(12, 25))))
    agreement.finish([("t", 0)])

    assert queues.found == []
    assert agreement.entries == 25


def test_fillers_and_entries_of_deleted_records_are_fine(queues: Queues) -> None:
    deleted = ENTRY.pack(900, 100, 0)
    queues.write(FILLER * 10 + deleted * 2 + bytes(entries(0, 1)))
    queues.write(FILLER * 4 + deleted, queue_id=1)
    agreement = queues.agreement()

    agreement.compare("t", 0, EntryRun(12, entries(0, 1)))
    agreement.finish([("t", 0), ("t", 1)])

    assert queues.found == []


def test_missing_entries_are_found(queues: Queues) -> None:
    queues.write(entries(*range(5)))
    agreement = queues.agreement()

    agreement.compare("t", 0, EntryRun(0, entries(*range(8))))
    agreement.compare("t", 7, EntryRun(3, entries(20, 21)))
    agreement.finish([("t", 0)])

    assert queues.found == [(FindingKind.MISSING_ENTRY, 5, 7), (FindingKind.MISSING_ENTRY, 3, 4)]
    assert queues.findings.counts[FindingKind.MISSING_ENTRY] == 5
    assert queues.findings.problems[0].offset == 1500


def test_entries_that_a_broker_has_not_written_yet_are_not_missing(queues: Queues) -> None:
    queues.write(entries(*range(5)))
    agreement = queues.agreement(required_until=1600)

    agreement.compare("t", 0, EntryRun(0, entries(*range(8))))
    agreement.finish([("t", 0)])

    assert queues.found == [(FindingKind.MISSING_ENTRY, 5, 5)]


def test_wrong_entries_are_found(queues: Queues) -> None:
    queues.write(
        bytes(entries(0, 1))
        + ENTRY.pack(7777, 100, 5)
        + ENTRY.pack(1300, 99, 5)
        + bytes(entries(4, tag=6))
        + bytes(entries(5))
    )
    agreement = queues.agreement()

    agreement.compare("t", 0, EntryRun(0, entries(*range(6))))
    agreement.finish([("t", 0)])

    assert queues.found == [(FindingKind.WRONG_ENTRY, 2, 3), (FindingKind.WRONG_ENTRY, 4, 4)]
    assert "tag hash" in queues.findings.problems[1].text


@pytest.mark.parametrize("has_extensions", [True, False])
def test_a_tag_hash_kept_in_an_extension_is_not_compared(
    queues: Queues, *, has_extensions: bool
) -> None:
    queues.write(entries(0, tag=-(2**63)))
    agreement = queues.agreement(has_extensions=has_extensions)

    agreement.compare("t", 0, EntryRun(0, entries(0)))
    agreement.finish([])

    assert bool(queues.found) is not has_extensions


def test_entries_without_a_record_are_found(queues: Queues) -> None:
    queues.write(entries(*range(10)))
    queues.write(entries(50, 51), queue_id=1)
    agreement = queues.agreement()

    agreement.compare("t", 0, EntryRun(2, entries(2, 3)))
    agreement.compare("t", 0, EntryRun(6, entries(6)))
    agreement.finish([("t", 0), ("t", 1)])

    assert queues.found == [
        (FindingKind.STRAY_ENTRY, 0, 1),
        (FindingKind.STRAY_ENTRY, 4, 5),
        (FindingKind.STRAY_ENTRY, 7, 9),
        (FindingKind.STRAY_ENTRY, 0, 1),
    ]


def test_entries_of_records_in_a_damaged_part_tell_what_was_lost(queues: Queues) -> None:
    queues.write(entries(*range(10)))
    agreement = queues.agreement(lost=lambda offset: 1300 <= offset < 1500)

    agreement.compare("t", 0, EntryRun(0, entries(0, 1, 2)))
    agreement.compare("t", 0, EntryRun(5, entries(5, 6, 7, 8, 9)))
    agreement.finish([("t", 0)])

    assert queues.found == [(FindingKind.LOST_RECORDS, 3, 4)]


def test_a_topic_made_again_is_judged_by_its_newer_records(queues: Queues) -> None:
    queues.write(entries(20, 21, 22))
    agreement = queues.agreement()

    agreement.compare("t", 0, EntryRun(0, entries(*range(10))))
    agreement.compare("t", 0, EntryRun(0, entries(20, 21, 22)))
    agreement.finish([("t", 0)])

    assert queues.found == []


def test_a_deleted_topic_is_worth_a_note_when_the_broker_does_not_have_it(queues: Queues) -> None:
    deleted = queues.agreement(topics=frozenset({"other"}))
    deleted.compare("t", 0, EntryRun(0, entries(0, 1)))
    deleted.finish([])
    assert queues.found == []
    assert "was deleted; 2 of its records" in queues.findings.notes[0]

    lost = queues.agreement(topics=frozenset({"t"}))
    lost.compare("t", 0, EntryRun(0, entries(0, 1)))
    lost.finish([])
    assert queues.found == [(FindingKind.MISSING_ENTRY, 0, 1)]


def test_a_missing_or_odd_file_of_a_queue_is_found(queues: Queues) -> None:
    queues.write(entries(*range(30)))
    (queues.folder / "t" / "0" / f"{FILE_BYTES:020d}").unlink()
    queues.write(entries(40), queue_id=1)
    (queues.folder / "t" / "1" / f"{FILE_BYTES:020d}").write_bytes(b"odd")
    (queues.folder / "t" / "0" / "notes").write_text("mine")
    agreement = queues.agreement()

    agreement.compare("t", 0, EntryRun(0, entries(*range(30))))
    agreement.compare("t", 1, EntryRun(0, entries(40)))
    agreement.finish([("t", 0), ("t", 1)])

    kinds = [kind for kind, _, _ in queues.found]
    assert (FindingKind.MISSING_ENTRY, 10, 19) in queues.found
    assert FindingKind.BAD_QUEUE_FILES in kinds
    assert FindingKind.STRANGE_FILE in kinds


def test_many_problems_of_one_queue_are_counted_together(queues: Queues) -> None:
    queues.write(entries(*range(1000)))
    agreement = queues.agreement()

    for number in range(0, 1000, 2):
        agreement.compare("t", 0, EntryRun(number, entries(number)))
    agreement.finish([("t", 0)])

    assert len(queues.found) == 100
    assert queues.findings.counts[FindingKind.STRAY_ENTRY] == 500


def test_queues_that_share_records_of_other_topics_are_left_alone(queues: Queues) -> None:
    folder = queues.folder / "%LMQ%x" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(entries(0, 1)).ljust(FILE_BYTES, b"\0"))
    agreement = queues.agreement()

    agreement.finish([("%LMQ%x", 0)])

    assert queues.found == []
