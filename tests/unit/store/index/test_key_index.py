"""One index file: Java's layout, Java's chains."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from orbitmq.java_hash import java_hash
from orbitmq.record.scan import KEY
from orbitmq.store.index.key_index import KeyIndex, key_hash
from orbitmq.store.index.key_table import HEADER_BYTES

SLOTS, ENTRIES = 4, 10
EVER = (0, 2**62)


def _index(folder: Path) -> KeyIndex:
    return KeyIndex.create(folder / "20260101000000000", SLOTS, ENTRIES)


def _put(index: KeyIndex, hashed: int, offset: int, store_ms: int = 5_000) -> None:
    assert index.put(KEY.pack(hashed, offset, store_ms), 0) == KEY.size


def test_the_hash_is_javas_over_utf16_units_and_never_negative() -> None:
    assert key_hash("T", "k") == ord("T") * 31 * 31 + ord("#") * 31 + ord("k")
    pair = "\U0001f600"
    high, low = 0xD83D, 0xDE00
    assert key_hash("T", pair) == (((84 * 31 + 35) * 31 + high) * 31 + low) % 2**32
    # Java's hash of this text is the lowest number, which has no positive counterpart.
    assert java_hash("T#jirdjyuxr") == -(2**31)
    assert key_hash("T", "jirdjyuxr") == 0
    assert java_hash("topic#key1") < 0
    assert key_hash("topic", "key1") == -java_hash("topic#key1")


def test_the_file_has_javas_layout(tmp_path: Path) -> None:
    index = _index(tmp_path)
    _put(index, 6, 100, 5_000)
    _put(index, 2, 200, 8_500)

    content = index.path.read_bytes()
    assert len(content) == 40 + 4 * SLOTS + 20 * ENTRIES
    assert struct.unpack_from(">qqqqii", content) == (5_000, 8_500, 100, 200, 1, 3)
    assert struct.unpack_from(">4i", content, HEADER_BYTES) == (0, 0, 2, 0)
    entries_at = HEADER_BYTES + 4 * SLOTS
    assert struct.unpack_from(">iqii", content, entries_at + 20) == (6, 100, 0, 0)
    assert struct.unpack_from(">iqii", content, entries_at + 40) == (2, 200, 3, 1)


def test_keys_are_found_newest_first_and_only_with_their_hash(tmp_path: Path) -> None:
    index = _index(tmp_path)
    for number in range(6):
        _put(index, 1 if number % 2 else 5, number * 100, 1000 + number * 1000)

    assert list(index.find(1, *EVER)) == [500, 300, 100]
    assert list(index.find(5, *EVER)) == [400, 200, 0]
    assert list(index.find(9, *EVER)) == []
    assert list(index.find(2, *EVER)) == []
    assert list(index.find(1, 4_000, 5_999)) == [300]


def test_a_file_is_full_one_entry_before_its_size_says(tmp_path: Path) -> None:
    index = _index(tmp_path)
    assert index.is_empty
    for number in range(ENTRIES - 1):
        assert not index.is_full
        _put(index, number, number)

    assert index.is_full
    assert list(index.find(8, *EVER)) == [8]


def test_a_file_that_follows_begins_where_the_other_ended(tmp_path: Path) -> None:
    first = _index(tmp_path)
    _put(first, 1, 100, 5_000)
    second = KeyIndex.create(tmp_path / "20260101000000001", SLOTS, ENTRIES)

    second.continue_from(first)
    assert (second.begin_ms, second.end_offset) == (5_000, 100)
    _put(second, 1, 200, 65_000)

    # Compat: the first entry's seconds count from the end of the previous file.
    content = second.path.read_bytes()
    assert struct.unpack_from(">iqii", content, HEADER_BYTES + 4 * SLOTS + 20)[2] == 60
    assert second.begin_ms == 65_000
    assert list(second.find(1, 65_000, 65_000)) == [200]


def test_an_entry_whose_number_is_not_counted_yet_is_found(tmp_path: Path) -> None:
    index = _index(tmp_path)
    _put(index, 1, 100)
    _put(index, 1, 200)
    struct.pack_into(">i", index._view, 36, 2)  # as a reader sees it before the writer has counted

    assert list(index.find(1, *EVER)) == [200, 100]


def test_a_chain_that_points_at_itself_ends(tmp_path: Path) -> None:
    index = _index(tmp_path)
    _put(index, 1, 100)
    at = HEADER_BYTES + 4 * SLOTS + 20
    struct.pack_into(">iqii", index._view, at, 1, 100, 0, 1)

    assert list(index.find(1, *EVER)) == [100]


def test_header_and_slots_are_rebuilt_from_entries(tmp_path: Path) -> None:
    index = _index(tmp_path)
    times = {offset: 1000 + offset * 10 for offset in range(0, 900, 100)}
    for number in range(5):
        _put(index, number % 3, number * 100, times[number * 100])
    expected = index.path.read_bytes()
    for number in range(5, 9):
        _put(index, number % 3, number * 100, times[number * 100])
    index._view[HEADER_BYTES : HEADER_BYTES + 8] = b"\xff" * 8

    assert index.restore(6, times.get)

    content = index.path.read_bytes()
    kept = HEADER_BYTES + 4 * SLOTS + 6 * 20
    assert content[:kept] == expected[:kept]
    assert list(index.find(1, *EVER)) == [400, 100]


@pytest.mark.parametrize("next_entry", [0, 1, 8, 99])
def test_missing_entries_are_not_trusted(tmp_path: Path, next_entry: int) -> None:
    index = _index(tmp_path)
    for number in range(5):
        _put(index, 1, number * 100)

    assert not index.restore(next_entry, lambda _: 1)


def test_a_file_is_restored_although_its_records_are_deleted(tmp_path: Path) -> None:
    index = _index(tmp_path)
    _put(index, 1, 100, 5_000)
    _put(index, 1, 200, 9_000)

    assert index.restore(3, lambda _: None)

    assert (index.begin_ms, index.end_ms) == (5_000, 9_999)
    assert index.header.overlaps(9_000, 10_000)
    assert not index.header.overlaps(20_000, 30_000)


def test_readers_of_a_file_can_finish_when_it_is_deleted(tmp_path: Path) -> None:
    index = _index(tmp_path)
    for number in range(3):
        _put(index, 1, number * 100)
    found = index.find(1, *EVER)
    assert next(found) == 200

    index.delete()

    assert list(found) == [100, 0]
    assert list(index.find(1, *EVER)) == []
