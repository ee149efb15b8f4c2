"""Saves the tail of a log before it is cut, as a small store of its own.

Layout of `<root>/orbitmq/cut/<epoch>-<offset>`, an unclean store that every reader of stores opens:
    commitlog/         the cut bytes, in files of the same names and at the same places; stand-ins
                       that readers skip fill the first file up to there
    orbitmq/watermark  where the cut bytes end
    abort              so that readers find the messages in the log, since there are no queues

Threads: one; the log does not change meanwhile.
Crash: it is written under another name, and renamed once it is on disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.disk import FileModes, lacks_room, make_folder, sync_folder
from orbitmq.errors import DiskFullError, StoreError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.files.descriptor import Descriptor
from orbitmq.store.files.file_names import file_name
from orbitmq.store.index.watermark import Watermark, read_watermark
from orbitmq.store.log.stand_ins import STAND_IN_BYTES_MIN, stand_in_for_bytes
from orbitmq.store.opening.abort_file import AbortFile

if TYPE_CHECKING:
    from orbitmq.store.files.mapped_file import MappedFile
    from orbitmq.store.log.commit_log import CommitLog

_CHUNK_BYTES: Final = 1024 * 1024
# Largest stand-in, so that no reader needs more memory for it than for a message.
_STAND_IN_BYTES_MAX: Final = 1024 * 1024
# What a stand-in has before and after the zero bytes of its body, at most.
_EDGE_BYTES: Final = 256


def save_tail(
    log: CommitLog, at: int, end: int, folder: Path, *, store_ms: int, modes: FileModes
) -> None:
    """Copy the log from `at` to `end` into a new folder; all of it is on disk when this returns.

    `store_ms` is a store time that no message of the tail is older than.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        _write(log, at, end, temporary, store_ms, modes)
        temporary.rename(folder)
        sync_folder(folder.parent)
    except (OSError, StoreError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _refusal(folder, at, end, error) from error


def is_saved(log: CommitLog, at: int, end: int, folder: Path) -> bool:
    """Whether a folder has all that the log has from `at` to `end`."""
    saved_end = read_watermark(folder / "orbitmq")
    if saved_end is None or saved_end < end:
        return False
    for file, start, size in _pieces(log, at, end):
        path = folder / "commitlog" / file_name(file.first_offset)
        if not path.is_file():
            return False
        if Descriptor(path, os.O_RDONLY).pread(size, start) != file.pread(start, size):
            return False
    return True


def _write(
    log: CommitLog, at: int, end: int, folder: Path, store_ms: int, modes: FileModes
) -> None:
    log_folder = folder / "commitlog"
    make_folder(log_folder, modes)
    written: dict[str, Descriptor] = {}
    for file, start, size in _pieces(log, at, end):
        name = file_name(file.first_offset)
        if name not in written:
            written[name] = _create(log_folder / name, file, start, store_ms, modes)
        content = file.pread(start, size)
        # Invariant: nothing is cut that was not read.
        assert len(content) == size
        written[name].pwrite(content, start)
    for descriptor in written.values():
        os.fsync(descriptor.number)
    sync_folder(log_folder)
    watermark = Watermark(folder / "orbitmq", PhysicalOffset(end), modes)
    watermark.close()
    Descriptor(folder / "orbitmq" / "watermark", os.O_RDWR).sync()
    sync_folder(folder / "orbitmq")
    AbortFile(folder, modes).write()
    sync_folder(folder)


def _pieces(log: CommitLog, at: int, end: int) -> Iterator[tuple[MappedFile, int, int]]:
    """The log between two offsets in pieces: the file, the place in it, and the size."""
    while at < end:
        file = log.file_at(at)
        assert file is not None
        size = min(end - at, file.end_offset - at, _CHUNK_BYTES)
        yield file, at - file.first_offset, size
        at += size


def _create(
    path: Path, like: MappedFile, start: int, store_ms: int, modes: FileModes
) -> Descriptor:
    """Create a file of the log with stand-ins up to a place; the rest of it is empty."""
    descriptor = Descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, modes)
    os.truncate(descriptor.number, like.file_bytes)
    at = 0
    while at < start:
        size = min(start - at, _STAND_IN_BYTES_MAX)
        if 0 < start - at - size < STAND_IN_BYTES_MIN:
            size -= STAND_IN_BYTES_MIN
        record = stand_in_for_bytes(size, physical_offset=like.first_offset + at, store_ms=store_ms)
        # The zero bytes of its body need no room on the disk.
        descriptor.pwrite(record[:_EDGE_BYTES], at)
        if size > _EDGE_BYTES:
            edge = min(_EDGE_BYTES, size - _EDGE_BYTES)
            descriptor.pwrite(record[-edge:], at + size - edge)
        at += size
    return descriptor


def _refusal(folder: Path, at: int, end: int, error: OSError | StoreError) -> StoreError:
    what = f"{end - at} bytes of the log, from offset {at} on, in {folder}"
    if isinstance(error, DiskFullError) or (isinstance(error, OSError) and lacks_room(error)):
        return DiskFullError(
            f"no room to save {what}",
            hint="free space on that disk and start again; the log is cut only once its tail is "
            "saved, so nothing was changed",
        )
    return StoreError(
        f"cannot save {what}: {error}",
        hint="the store's folder must be writable; the log is cut only once its tail is saved, so "
        "nothing was changed",
    )
