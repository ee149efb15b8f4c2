"""Names of files in a sequence: the offset of the first byte, in 20 digits."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from orbitmq.errors import StoreFormatError

_DIGITS: Final = 20
_CHUNK_BYTES: Final = 1 << 20


def file_name(first_offset: int) -> str:
    """Name the file that begins at an offset."""
    return f"{first_offset:0{_DIGITS}d}"


def offset_of(path: Path) -> int | None:
    """Parse the offset from a file's name; None if it is not such a name."""
    name = path.name
    return int(name) if len(name) == _DIGITS and name.isascii() and name.isdigit() else None


def list_files(folders: list[Path], file_bytes: int) -> list[tuple[int, Path]]:
    """List the files of a sequence by offset; raises StoreFormatError if they are not one.

    A last file whose creation was cut short is left out; `unfinished_file` returns it.
    """
    found = _named_files(folders)
    if found and is_unfinished(found[-1][1], file_bytes):
        found.pop()
    for position, (offset, path) in enumerate(found):
        size = path.stat().st_size
        if size != file_bytes:
            raise StoreFormatError(
                f"{path} has {size} bytes, not {file_bytes}",
                hint="restore it from a copy or a replica; or, if all files of the log have this "
                "size, set mappedFileSizeCommitLog to it. Nothing was changed",
            )
        if offset % file_bytes:
            raise StoreFormatError(
                f"{path} does not begin at a multiple of {file_bytes}",
                hint="open the store with the mappedFileSizeCommitLog it was written with",
            )
        if position:
            _check_neighbours(found[position - 1], (offset, path), file_bytes)
    return found


def unfinished_file(folders: list[Path], file_bytes: int) -> Path | None:
    """Find the file whose creation was cut short."""
    found = _named_files(folders)
    return found[-1][1] if found and is_unfinished(found[-1][1], file_bytes) else None


def is_unfinished(path: Path, file_bytes: int) -> bool:
    """Whether a file is shorter than it should be and was never written to."""
    if path.stat().st_size >= file_bytes:
        return False
    with path.open("rb") as file:
        while content := file.read(_CHUNK_BYTES):
            if content.count(0) != len(content):
                return False
    return True


def refuse_folder(path: Path) -> None:
    """Raise StoreFormatError if there is a folder where a file should be."""
    if path.is_dir():
        raise StoreFormatError(
            f"{path} is a folder where a file should be",
            hint="move it away; nothing was changed",
        )


def refuse_file(path: Path) -> None:
    """Raise StoreFormatError if there is a file where a folder should be."""
    if path.exists() and not path.is_dir():
        raise StoreFormatError(f"{path} is not a folder", hint="move it away; nothing was changed")


def _named_files(folders: list[Path]) -> list[tuple[int, Path]]:
    found: list[tuple[int, Path]] = []
    for folder in folders:
        if not folder.is_dir():
            continue
        for path in folder.iterdir():
            offset = offset_of(path)
            if offset is not None:
                refuse_folder(path)
            elif path.is_dir():
                continue
            if offset is None:
                raise StoreFormatError(
                    f"{path} is not a file of this store",
                    hint="move it away; files here have names of 20 digits",
                )
            found.append((offset, path))
    return sorted(found)


def _check_neighbours(before: tuple[int, Path], after: tuple[int, Path], file_bytes: int) -> None:
    if before[0] == after[0]:
        raise StoreFormatError(
            f"{before[1]} and {after[1]} are the same file of the log in two folders",
            hint="move away the one that is not part of this store; nothing was changed",
        )
    if before[0] + file_bytes != after[0]:
        missing = file_name(before[0] + file_bytes)
        raise StoreFormatError(
            f"file {missing} is missing between {before[1].name} and {after[1].name}",
            hint="restore it from a copy or a replica; nothing was changed",
        )
