"""The lock on a store directory: one writer, Java or ours.

Threads: any. Crash: the system releases the lock of a dead process; the file stays, as with Java.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, make_folder, open_file
from orbitmq.errors import StoreError, StoreLockedError

# Compat: Java locks byte range [0, 1) for its process. We lock the same range for the open file: the
# process would lose its lock as soon as any code in it opened and closed the file.
_FLOCK: Final = struct.Struct("hhqqi0q")
_LOCK_OPEN_FILE: Final[int | None] = (
    getattr(fcntl, "F_OFD_SETLK", None) if struct.calcsize("P") == 8 else None
)
_held: Final[set[tuple[int, int]]] = set()
_held_lock: Final = threading.Lock()


class DirectoryLock:
    """Locks the file `lock` in the store's root with the same record lock as Java."""

    def __init__(self, root: Path, modes: FileModes = PRIVATE) -> None:
        path = root / "lock"
        with _held_lock:
            with contextlib.suppress(OSError):
                status = path.stat()
                if (status.st_dev, status.st_ino) in _held:
                    raise _locked(root, "this process")
            try:
                make_folder(root, modes)
                self._descriptor = open_file(path, os.O_RDWR | os.O_CREAT, modes)
            except OSError as error:
                raise StoreError(
                    f"cannot use {root} as a store: {error.filename or path}: {error.strerror}",
                    hint="choose a folder that exists or can be created, and that is writable",
                ) from error
            try:
                _lock(self._descriptor)
            except OSError as error:
                os.close(self._descriptor)
                raise _locked(root, "another process") from error
            status = os.fstat(self._descriptor)
            self._identity = (status.st_dev, status.st_ino)
            _held.add(self._identity)
        # Compat: Java writes this, and nobody reads it. A full disk must not matter.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, b"lock", 0)

    def release(self) -> None:
        """Release the directory."""
        with _held_lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                _held.discard(self._identity)


def _lock(descriptor: int) -> None:
    if _LOCK_OPEN_FILE is not None:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(descriptor, _LOCK_OPEN_FILE, wanted)
    else:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def _locked(root: Path, holder: str) -> StoreLockedError:
    return StoreLockedError(
        f"{root} is in use by {holder}",
        hint="stop the broker that uses it, or give this one a folder of its own",
    )
