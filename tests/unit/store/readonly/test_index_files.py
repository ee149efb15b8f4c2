from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreFormatError
from orbitmq.store.index.key_index import key_hash
from orbitmq.store.readonly.index_files import ReadOnlyIndexFile, is_index_name, list_index_files
from tests.unit.store.written_stores import INDEX_ENTRIES, INDEX_SLOTS, T0, change, fill


def first_file(root: Path) -> ReadOnlyIndexFile:
    return ReadOnlyIndexFile.open(list_index_files(root / "index")[0][0])


def test_header_and_entries_are_read(tmp_path: Path) -> None:
    fill(tmp_path, 100)

    file = first_file(tmp_path)
    entries = list(file.entries(INDEX_SLOTS))

    assert (file.begin_ms, file.end_ms) == (T0, T0 + 990)
    assert file.next_number == 301
    assert len(entries) == 300
    assert entries[0].key_hash == key_hash("topic0", "id0")
    assert entries[1].key_hash == key_hash("topic0", "key0")
    assert [entry.physical_offset for entry in entries[:4]].count(0) == 3
    assert len(file.slot_table(INDEX_SLOTS)) == 4 * INDEX_SLOTS


def test_four_entries_per_slot_are_assumed_by_default(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    file = first_file(tmp_path)

    assert file.slot_count(None) == INDEX_SLOTS
    assert file.slot_count(INDEX_SLOTS) == INDEX_SLOTS
    for wrong in (INDEX_SLOTS + 1, 10_000):
        with pytest.raises(StoreFormatError, match="--index-slots"):
            file.slot_count(wrong)


def test_other_ratios_must_be_configured(tmp_path: Path) -> None:
    fill(tmp_path, 10, index_slots=37, index_entries=500)
    file = first_file(tmp_path)

    with pytest.raises(StoreFormatError, match="--index-slots"):
        file.slot_count(None)
    assert len(list(file.entries(file.slot_count(37)))) == 30


def test_a_header_that_promises_too_much_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    path = first_file(tmp_path).path
    change(path, 36, (INDEX_ENTRIES * 3).to_bytes(4))

    with pytest.raises(StoreFormatError, match="shorter than its header says"):
        list(ReadOnlyIndexFile.open(path).entries(INDEX_SLOTS))


def test_a_file_too_short_for_a_header_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "20260101000000000").write_bytes(b"short")

    with pytest.raises(StoreFormatError, match="too few"):
        ReadOnlyIndexFile.open(tmp_path / "20260101000000000")


def test_other_files_in_the_folder_are_listed_separately(tmp_path: Path) -> None:
    (tmp_path / "20260101000000000").write_bytes(b"")
    (tmp_path / "notes").write_bytes(b"")

    ours, others = list_index_files(tmp_path)

    assert [path.name for path in ours] == ["20260101000000000"]
    assert [path.name for path in others] == ["notes"]
    assert list_index_files(tmp_path / "none") == ([], [])
    assert not is_index_name("2026")
