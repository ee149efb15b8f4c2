"""The file `abort`: there while a store is open, and after a crash.

Threads: one at a time: the thread that opens or closes the store, or upkeep.
Crash: it is on disk before the store is changed, and deleted once everything is on disk.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from orbitmq.disk import PRIVATE, FileModes, sync_folder
from orbitmq.store.files.descriptor import Descriptor, write_failure

ABORT_NAME: Final = "abort"


class AbortFile:
    """The sign that a store was not stopped cleanly."""

    def __init__(self, root: Path, modes: FileModes = PRIVATE) -> None:
        self._path = root / ABORT_NAME
        self._modes = modes
        self._is_written = False
        # Whether whoever used the store last stopped cleanly.
        self.was_clean = not self._path.exists()

    def write(self) -> None:
        """Write the file, unless this process has; on disk when this returns."""
        if self._is_written:
            return
        process_id = str(os.getpid()).encode()
        try:
            descriptor = Descriptor(self._path, os.O_RDWR | os.O_CREAT, self._modes)
            with suppress(OSError):
                # That the file is there is what counts; on a full disk it stays as it is.
                descriptor.pwrite(process_id, 0)
                os.ftruncate(descriptor.number, len(process_id))
            os.fsync(descriptor.number)
            sync_folder(self._path.parent)
        except OSError as error:
            raise write_failure(self._path, error, what=f"{len(process_id)} bytes") from error
        self._is_written = True

    def remove(self) -> None:
        """Delete the file; on disk when this returns."""
        self._path.unlink(missing_ok=True)
        sync_folder(self._path.parent)
        self._is_written = False
