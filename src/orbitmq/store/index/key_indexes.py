"""All files of the key index: the newest is written, all are searched.

Threads: one writer (the dispatcher); `sync` and `delete_before` from any thread; readers any time.
Crash: saved progress says up to which entry the newest file is on disk; see `key_index`.
"""

from __future__ import annotations

import datetime
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, make_folder, sync_folder
from orbitmq.errors import DiskFullError, StoreFormatError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.files.descriptor import Descriptor
from orbitmq.store.files.file_names import is_unfinished, refuse_folder
from orbitmq.store.index.entry_search import first_not
from orbitmq.store.index.key_index import KeyIndex, key_hash
from orbitmq.store.index.key_table import ENTRY, ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES

log = logging.getLogger(__name__)

_NAME_DIGITS: Final = 17


class KeyIndexes:
    """The files of the index, oldest first."""

    def __init__(
        self, folder: Path, *, slots: int, entries_max: int, modes: FileModes = PRIVATE
    ) -> None:
        self._folder = folder
        self._modes = modes
        self._slots = slots
        self._entries_max = entries_max
        # Replaced as a whole, since readers iterate over it while files come and go.
        self._files: tuple[KeyIndex, ...] = ()
        self._unsynced: set[KeyIndex] = set()
        self._lock = threading.Lock()
        # The end time of the newest full file that is on disk, for the checkpoint.
        self.full_until_ms = 0

    # --- opening ------------------------------------------------------------------------------

    def load(self) -> str:
        """Open the files on disk; returns why they are doubtful, or an empty text."""
        paths = self._paths()
        wanted = KeyIndex.file_bytes(self._slots, self._entries_max)
        for path in paths:
            if path == paths[-1] and is_unfinished(path, wanted):
                path.unlink()
                continue
            size = path.stat().st_size
            if size != wanted:
                return f"{path} has {size} bytes, not {wanted}"
            try:
                opened = KeyIndex.open(path, self._slots, self._entries_max)
            except DiskFullError as error:
                # Java leaves its files sparse, and a full disk must not keep the store closed.
                return str(error)
            newest = self.newest
            self._files = (*self._files, opened)
            if newest is not None and not newest.is_full:
                return f"{newest.path} is not full, and not the newest"
            if newest is not None and not opened.is_empty and not newest.comes_before(opened):
                return f"the headers of {newest.path} and {path} disagree"
        return ""

    def missing_part(
        self, log_start: PhysicalOffset, has_keys: Callable[[int | None, int], bool]
    ) -> str:
        """Say which part of the log is not in the index, though later ones are; empty if none.

        `has_keys` tells whether records after one offset, and before another, have keys.
        """
        indexed: int | None = None
        for file in self._files:
            if file.is_empty:
                continue
            if file.header.begin_offset > log_start and has_keys(indexed, file.header.begin_offset):
                return f"a file before {file.path} is missing"
            indexed = file.end_offset
        return ""

    def disagreement(
        self, log_start: PhysicalOffset, store_ms_at: Callable[[int], int | None]
    ) -> str:
        """Say which header differs from what is in its file; empty if none does.

        Keys of messages below an end offset that is too high would be left out as known, files that
        seem to end too early be deleted with the log, and lookups miss a time that is wrong.
        """
        for file in self._files:
            doubt = file.disagreement(log_start, store_ms_at)
            if doubt:
                return doubt
        return ""

    def _paths(self) -> list[Path]:
        """The files on disk, oldest first."""
        paths = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
        for path in paths:
            if len(path.name) != _NAME_DIGITS or not (path.name.isascii() and path.name.isdigit()):
                raise StoreFormatError(
                    f"{path} is not a file of the key index", hint="move it away"
                )
            refuse_folder(path)
        return paths

    def restore(self, name: int, next_entry: int, store_ms_at: Callable[[int], int | None]) -> bool:
        """Go back to the saved progress; False if the files do not match it."""
        for file in self._files:
            if file.name > name:
                self._drop(file)
        if name == 0:
            return True
        newest = self._files[-1] if self._files else None
        if newest is None or newest.name != name:
            return False
        if newest.is_empty and next_entry == 1:
            return True
        self._unsynced.add(newest)
        return newest.restore(next_entry, store_ms_at)

    def keep_full(self, until_ms: int) -> None:
        """Keep only files that were full and on disk by the time of a checkpoint.

        They are filled up from the newest that is left, so none is kept after one that is not.
        """
        doubtful = False
        for file in self._files:
            same_end = [other for other in self._files if other.end_ms == file.end_ms]
            doubtful = doubtful or not file.is_full or file.end_ms > until_ms or len(same_end) > 1
            if doubtful:
                self._drop(file)

    @property
    def newest(self) -> KeyIndex | None:
        """The file being written."""
        files = self._files
        return files[-1] if files else None

    @property
    def end_offset(self) -> PhysicalOffset:
        """Messages below this physical offset are in the index."""
        newest = self.newest
        return PhysicalOffset(newest.end_offset if newest is not None else 0)

    # --- writing ------------------------------------------------------------------------------

    def put(self, keys: bytes | bytearray, *, now_ms: Callable[[], int]) -> None:
        """Add keys, packed as `KEY`, except those of messages below `end_offset`."""
        file = self._files[-1] if self._files else None
        at = file.put(keys, 0) if file is not None else 0
        while at < len(keys):
            file = self._next_file(file, now_ms())
            at = file.put(keys, at)
        # Only full files leave the set, so the newest one, once added, stays in it.
        if file is not None and file not in self._unsynced:
            with self._lock:
                self._unsynced.add(file)

    def _next_file(self, previous: KeyIndex | None, now_ms: int) -> KeyIndex:
        make_folder(self._folder, self._modes)
        path = self._next_path(previous, now_ms)
        file = KeyIndex.create(path, self._slots, self._entries_max, self._modes)
        if previous is not None:
            file.continue_from(previous)
        with self._lock:
            if previous is not None:
                self._unsynced.add(previous)
            self._files = (*self._files, file)
        return file

    def _next_path(self, previous: KeyIndex | None, now_ms: int) -> Path:
        # Compat: Java names the file by its local time.
        made = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
        name = int(f"{made:%Y%m%d%H%M%S}{now_ms % 1000:03d}")
        if previous is not None:
            # Files are sorted by name, but local time goes back once a year.
            name = max(name, previous.name + 1)
        return self._folder / f"{name:0{_NAME_DIGITS}d}"

    def sync(self) -> None:
        """Sync the files; full ones then count for the checkpoint."""
        with self._lock:
            unsynced = sorted(self._unsynced, key=lambda file: file.name)
        for file in unsynced:
            # Invariant: a file that was full before its sync is completely on disk after it.
            full = file.is_full
            file.sync()
            if full:
                self.full_until_ms = max(self.full_until_ms, file.end_ms)
                with self._lock:
                    self._unsynced.discard(file)

    # --- reading ------------------------------------------------------------------------------

    def find(self, topic: str, key: str, *, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Find physical offsets of messages that may have the key, newest first."""
        hashed = key_hash(topic, key)
        for file in reversed(self._files):
            filled = file.header
            if filled.overlaps(begin_ms, end_ms):
                yield from file.find(hashed, begin_ms, end_ms)
            if filled.begin_ms < begin_ms:
                return

    # --- deleting -----------------------------------------------------------------------------

    def delete_before(self, log_start: PhysicalOffset) -> None:
        """Delete files whose messages are all deleted, but never the newest."""
        while len(self._files) > 1 and self._files[0].end_offset < log_start:
            self._drop(self._files[0])

    def delete_all(self) -> None:
        """Delete every file, to rebuild the index from the log."""
        for file in self._files:
            self._drop(file)
        for path in self._paths():
            path.unlink()
        if self._folder.is_dir():
            sync_folder(self._folder)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
        self._files = ()

    def _drop(self, dropped: KeyIndex) -> None:
        with self._lock:
            self._files = tuple(file for file in self._files if file is not dropped)
            self._unsynced.discard(dropped)
        dropped.delete()


def entries_below(
    folder: Path,
    offset: PhysicalOffset,
    *,
    slots: int,
    entries_max: int,
    newest: tuple[int, int],
) -> tuple[int, int] | None:
    """Where an index ends without the messages from an offset on: the file, and its next entry.

    `newest` says so of the index as it is, with 0 for no file. None if the files do not match that.
    """
    paths = folder.iterdir() if folder.is_dir() else ()
    names = sorted(int(path.name) for path in paths if path.name.isdecimal())
    if newest[0] not in (0, *names):
        return None
    for name in reversed([name for name in names if name <= newest[0]]):
        path = folder / f"{name:0{_NAME_DIGITS}d}"
        if path.stat().st_size != KeyIndex.file_bytes(slots, entries_max):
            return None
        descriptor = Descriptor(path, os.O_RDONLY)
        entries_at = HEADER_BYTES + slots * SLOT_BYTES

        def is_below(number: int, file: Descriptor = descriptor, at: int = entries_at) -> bool:
            entry = ENTRY.unpack(file.pread(ENTRY_BYTES, at + number * ENTRY_BYTES))
            return bool(entry[1] < offset)

        # Invariant: keys are added in the order of the log.
        end = newest[1] if name == newest[0] else entries_max
        number = first_not(is_below, 1, end)
        if number > 1:
            return name, number
    return 0, 0
