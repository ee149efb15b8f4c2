from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orbitmq.record.scan import KEY
from orbitmq.store.index.key_indexes import KeyIndexes
from orbitmq.store.tools.findings import FindingKind, Findings, Scope
from orbitmq.store.tools.index_agreement import IndexAgreement
from tests.unit.store.written_stores import change

SLOTS, ENTRIES = 5, 20
ENTRIES_AT = 40 + 4 * SLOTS


def keys(*offsets: int) -> bytes:
    """Two keys for a record at each offset."""
    return b"".join(
        KEY.pack(offset * 31 + which, offset, 1_700_000_000_000 + offset)
        for offset in offsets
        for which in (0, 1)
    )


def write(folder: Path, *offsets: int) -> None:
    indexes = KeyIndexes(folder, slots=SLOTS, entries_max=ENTRIES)
    indexes.put(keys(*offsets), now_ms=lambda: 1_700_000_000_000)
    indexes.sync()
    indexes.close()


def agreement(
    folder: Path,
    findings: Findings,
    *,
    required_until: int = 1 << 40,
    is_clean: bool = True,
    is_expected: bool = True,
    slots: int | None = None,
) -> IndexAgreement:
    return IndexAgreement(
        folder,
        findings,
        scope=Scope(
            log_start=100,
            log_end=1 << 40,
            required_until=required_until,
            is_lost=lambda offset: 700 <= offset < 800,
        ),
        slots=slots,
        is_clean=is_clean,
        is_expected=is_expected,
    )


def found(findings: Findings) -> list[tuple[FindingKind, int]]:
    return [(problem.kind, problem.offset) for problem in findings.problems]


def test_an_index_with_every_key_is_fine(tmp_path: Path) -> None:
    offsets = [*range(100, 2100, 50)]
    # Keys of deleted records, and of those in a damaged part of the log, may be there.
    write(tmp_path, 10, 20, *offsets)
    findings = Findings()
    compared = agreement(tmp_path, findings)

    compared.compare(keys(*[offset for offset in offsets if not 700 <= offset < 800][:20]))
    compared.compare(keys(*[offset for offset in offsets if not 700 <= offset < 800][20:]))
    compared.finish()

    assert found(findings) == []
    assert len(list(tmp_path.iterdir())) > 2
    assert compared.keys == 76


def test_missing_and_stray_keys_are_found(tmp_path: Path) -> None:
    write(tmp_path, 100, 200, 300, 500)
    findings = Findings()
    compared = agreement(tmp_path, findings)

    compared.compare(keys(100, 150, 300, 500))
    compared.finish()

    assert found(findings) == [
        (FindingKind.MISSING_KEY, 150),
        (FindingKind.MISSING_KEY, 150),
        (FindingKind.STRAY_KEY, 200),
        (FindingKind.STRAY_KEY, 200),
    ]


def test_keys_that_a_broker_has_not_written_yet_are_not_missing(tmp_path: Path) -> None:
    write(tmp_path, 100)
    findings = Findings()
    compared = agreement(tmp_path, findings, required_until=200, is_clean=False)

    compared.compare(keys(100, 200, 300))
    compared.finish()

    assert found(findings) == []


def test_a_changed_hash_is_found(tmp_path: Path) -> None:
    write(tmp_path, 100, 200)
    (path,) = tmp_path.iterdir()
    change(path, ENTRIES_AT + 20, struct.pack(">i", 12345))
    findings = Findings()
    compared = agreement(tmp_path, findings)

    compared.compare(keys(100, 200))
    compared.finish()

    assert (FindingKind.MISSING_KEY, 100) in found(findings)


def test_a_broken_chain_is_found(tmp_path: Path) -> None:
    write(tmp_path, 100, 200, 300, 400)
    (path,) = tmp_path.iterdir()
    for at, findings_expected in ((40, 1), (ENTRIES_AT + 5 * 20 + 16, 2)):
        change(path, at, struct.pack(">i", 0x7000))
        findings = Findings()
        compared = agreement(tmp_path, findings)
        compared.compare(keys(100, 200, 300, 400))
        compared.finish()

        assert [problem.kind for problem in findings.problems] == [FindingKind.BAD_INDEX_FILE]
        assert f"{findings_expected} links" in findings.problems[0].text


def test_a_header_that_does_not_fit_its_entries_is_found(tmp_path: Path) -> None:
    write(tmp_path, 100, 200)
    (path,) = tmp_path.iterdir()
    change(path, 24, struct.pack(">q", 999))
    findings = Findings()
    compared = agreement(tmp_path, findings)

    compared.compare(keys(100, 200))
    compared.finish()

    assert "has offsets 100 to 999" in findings.problems[0].text


@pytest.mark.parametrize(
    ("at", "content"),
    [
        (0, struct.pack(">q", 1_600_000_000_000)),
        (8, struct.pack(">q", 1_800_000_000_000)),
        (ENTRIES_AT + 20 + 12, struct.pack(">i", -1)),
        (ENTRIES_AT + 40 + 12, struct.pack(">i", 1)),
    ],
    ids=["begin", "end", "first entry", "entry"],
)
def test_a_wrong_time_by_which_look_ups_would_miss_a_key_is_found(
    tmp_path: Path, at: int, content: bytes
) -> None:
    write(tmp_path, 100, 200)
    (path,) = tmp_path.iterdir()
    change(path, at, content)
    findings = Findings()
    compared = agreement(tmp_path, findings)

    compared.compare(keys(100, 200))
    compared.finish()

    assert [problem.kind for problem in findings.problems] == [FindingKind.BAD_INDEX_FILE]
    assert "not those of the records" in findings.problems[0].text


def test_an_index_that_should_be_there_is_missed(tmp_path: Path) -> None:
    expected, unexpected = Findings(), Findings()

    agreement(tmp_path, expected).finish()
    other = agreement(tmp_path, unexpected, is_expected=False)
    other.compare(keys(100))

    assert [problem.kind for problem in expected.problems] == [FindingKind.BAD_INDEX_FILE]
    assert unexpected.problems == []
    assert unexpected.notes == ["there is no key index"]


def test_unreadable_and_strange_files_are_reported(tmp_path: Path) -> None:
    write(tmp_path, 100)
    (tmp_path / "00000000000000001").write_bytes(b"short")
    (tmp_path / "notes").write_bytes(b"")
    findings = Findings()
    compared = agreement(tmp_path, findings, slots=7)

    compared.compare(keys(100))
    compared.finish()

    texts = " ".join(problem.text for problem in findings.problems)
    assert "too few" in texts
    assert "--index-slots" in texts
    assert FindingKind.STRANGE_FILE in findings.counts


def test_many_problems_are_counted(tmp_path: Path) -> None:
    write(tmp_path, 10)
    findings = Findings()
    compared = agreement(tmp_path, findings)

    compared.compare(keys(*range(1000, 2000)))

    assert findings.counts[FindingKind.MISSING_KEY] == 2000
    assert len(findings.problems) == 100
