"""All index files: filled one after the other, searched newest first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.errors import StoreFormatError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.record.scan import KEY
from orbitmq.store.index.key_index import key_hash
from orbitmq.store.index.key_indexes import KeyIndexes

EVER = {"begin_ms": 0, "end_ms": 2**62}
NOW_MS = 1_700_000_000_000


def _indexes(folder: Path) -> KeyIndexes:
    indexes = KeyIndexes(folder / "index", slots=4, entries_max=5)
    indexes.load()
    return indexes


def _at(now_ms: int) -> Callable[[], int]:
    return lambda: now_ms


def _keys(*numbers: int, keys: int = 1) -> bytes:
    """Message n is at n * 100, was stored at second n and has the given number of keys."""
    return b"".join(
        KEY.pack(key_hash("T", f"k{n}-{k}"), n * 100, n * 1000)
        for n in numbers
        for k in range(keys)
    )


def _found(indexes: KeyIndexes, key: str, **times: int) -> list[int]:
    return list(indexes.find("T", key, **(EVER | times)))


def test_several_keys_of_a_message_may_fill_one_file_and_begin_the_next(tmp_path: Path) -> None:
    indexes = _indexes(tmp_path)

    indexes.put(_keys(1, 2, keys=3), now_ms=_at(NOW_MS))

    assert len(list((tmp_path / "index").iterdir())) == 2
    for number in (1, 2):
        for key in range(3):
            assert _found(indexes, f"k{number}-{key}") == [number * 100]


def test_names_are_local_time_and_rise_whatever_the_clock_does(tmp_path: Path) -> None:
    indexes = _indexes(tmp_path)

    for turn in range(4):
        indexes.put(_keys(*range(turn * 4, turn * 4 + 4)), now_ms=_at(NOW_MS - turn * 60_000))

    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert len(names) == 4
    assert all(len(name) == 17 for name in names)
    again = _indexes(tmp_path)
    assert [_found(again, f"k{n}-0") for n in range(16)] == [[n * 100] for n in range(16)]


def test_known_messages_are_not_added_again(tmp_path: Path) -> None:
    indexes = _indexes(tmp_path)
    indexes.put(_keys(1, 2, 3), now_ms=_at(NOW_MS))

    indexes.put(_keys(1, 2), now_ms=_at(NOW_MS))

    assert indexes.end_offset == 300
    assert _found(indexes, "k1-0") == [100]


def test_a_time_range_limits_the_files_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexes = _indexes(tmp_path)
    indexes.put(
        b"".join(KEY.pack(7, n * 100, n * 10_000) for n in range(1, 20)), now_ms=_at(NOW_MS)
    )

    monkeypatch.setattr("orbitmq.store.index.key_indexes.key_hash", lambda *_: 7)
    assert _found(indexes, "any", begin_ms=50_000, end_ms=70_000) == [700, 600, 500]


def test_a_full_file_counts_for_the_checkpoint_once_it_is_synced(tmp_path: Path) -> None:
    indexes = _indexes(tmp_path)
    indexes.put(_keys(1, 2, 3, 4), now_ms=_at(NOW_MS))
    assert indexes.full_until_ms == 0

    indexes.put(_keys(5), now_ms=_at(NOW_MS))
    indexes.sync()

    assert indexes.full_until_ms == 4000


def test_the_index_goes_back_to_the_saved_progress(tmp_path: Path) -> None:
    indexes = _indexes(tmp_path)
    indexes.put(_keys(*range(6)), now_ms=_at(NOW_MS))
    newest = indexes.newest
    assert newest is not None
    name, next_entry = newest.name, newest.next
    indexes.put(_keys(*range(6, 20)), now_ms=_at(NOW_MS))
    indexes.close()

    again = _indexes(tmp_path)
    assert again.restore(name, next_entry, lambda offset: offset * 10)

    assert [bool(_found(again, f"k{n}-0")) for n in range(20)] == [n < 6 for n in range(20)]
    again.put(_keys(*range(5, 20)), now_ms=_at(NOW_MS))
    assert all(_found(again, f"k{n}-0") for n in range(20))


def test_progress_for_missing_files_is_not_trusted(tmp_path: Path) -> None:
    indexes = _indexes(tmp_path)
    indexes.put(_keys(1), now_ms=_at(NOW_MS))
    newest = indexes.newest
    assert newest is not None

    assert not _indexes(tmp_path).restore(newest.name + 1, 2, lambda _: 1)
    assert _indexes(tmp_path).restore(0, 0, lambda _: 1)
    assert list((tmp_path / "index").iterdir()) == []


def test_only_full_files_that_a_checkpoint_knows_are_kept(tmp_path: Path) -> None:
    indexes = _indexes(tmp_path)
    indexes.put(_keys(*range(1, 15)), now_ms=_at(NOW_MS))

    indexes.keep_full(9_000)

    assert indexes.end_offset == 800
    assert [bool(_found(indexes, f"k{n}-0")) for n in range(1, 15)] == [
        n <= 8 for n in range(1, 15)
    ]


def test_no_full_file_is_kept_after_a_doubtful_one(tmp_path: Path) -> None:
    indexes = _indexes(tmp_path)
    # Many keys of one message fill two files, which end at the same time.
    indexes.put(_keys(1, keys=10) + _keys(*range(2, 15)), now_ms=_at(NOW_MS))

    indexes.keep_full(100_000)

    assert indexes.newest is None, "what follows the two is filled up from the log, too"


def test_files_of_deleted_messages_are_deleted_but_never_the_newest(tmp_path: Path) -> None:
    indexes = _indexes(tmp_path)
    indexes.put(_keys(*range(10)), now_ms=_at(NOW_MS))

    indexes.delete_before(PhysicalOffset(500))
    assert len(list((tmp_path / "index").iterdir())) == 2
    indexes.delete_before(PhysicalOffset(99_999))
    assert len(list((tmp_path / "index").iterdir())) == 1
    indexes.delete_all()
    assert list((tmp_path / "index").iterdir()) == []


def test_an_unfinished_file_is_removed_and_a_foreign_one_refused(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "20260101000000000").write_bytes(b"")
    _indexes(tmp_path)
    assert list(folder.iterdir()) == []

    (folder / "notes").write_text("x")
    with pytest.raises(StoreFormatError, match="notes is not a file of the key index"):
        _indexes(tmp_path)
