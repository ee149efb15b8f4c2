"""Files named by their first offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreFormatError
from orbitmq.store.files.file_names import file_name, list_files, offset_of, unfinished_file


def _file(folder: Path, offset: int, size: int = 100) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / file_name(offset)
    path.write_bytes(b"x" * size)
    return path


def test_a_name_has_20_digits() -> None:
    assert file_name(1073741824) == "00000000001073741824"
    assert offset_of(Path("00000000001073741824")) == 1073741824


@pytest.mark.parametrize("name", ["1073741824", "0000000000107374182x", "\u0660" * 20, "notes.txt"])
def test_another_name_has_no_offset(name: str) -> None:
    assert offset_of(Path(name)) is None


def test_files_of_several_folders_are_one_sequence(tmp_path: Path) -> None:
    paths = [_file(tmp_path / "ab"[n % 2], n * 100) for n in range(3)]
    (tmp_path / "a" / "folder").mkdir()

    assert list_files([tmp_path / "a", tmp_path / "b", tmp_path / "c"], 100) == [
        (n * 100, path) for n, path in enumerate(paths)
    ]


@pytest.mark.parametrize("content", [b"", bytes(40)])
def test_a_last_file_never_finished_is_left_out(tmp_path: Path, content: bytes) -> None:
    first = _file(tmp_path, 0)
    (tmp_path / file_name(100)).write_bytes(content)

    assert list_files([tmp_path], 100) == [(0, first)]
    assert unfinished_file([tmp_path], 100) == tmp_path / file_name(100)


def test_a_short_file_with_content_is_refused(tmp_path: Path) -> None:
    _file(tmp_path, 0, 60)

    with pytest.raises(StoreFormatError, match="has 60 bytes, not 100"):
        list_files([tmp_path], 100)
    assert unfinished_file([tmp_path], 100) is None


def test_an_offset_between_files_is_refused(tmp_path: Path) -> None:
    _file(tmp_path, 50)

    with pytest.raises(StoreFormatError, match="multiple of 100"):
        list_files([tmp_path], 100)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    _file(tmp_path, 0)
    _file(tmp_path, 200)

    with pytest.raises(StoreFormatError, match=f"{file_name(100)} is missing"):
        list_files([tmp_path], 100)


def test_a_file_in_two_folders_is_refused(tmp_path: Path) -> None:
    _file(tmp_path / "a", 0)
    _file(tmp_path / "b", 0)

    with pytest.raises(StoreFormatError, match="in two folders"):
        list_files([tmp_path / "a", tmp_path / "b"], 100)


def test_a_foreign_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")

    with pytest.raises(StoreFormatError, match=r"notes\.txt is not a file of this store"):
        list_files([tmp_path], 100)
