"""Blocking disk work: called from an event loop, new files, replaced files.

Crash: a replaced file has its old content or its new one, never a mix. A leftover temporary file
(`.name.` or `.name.bak.`, eight characters, `.tmp`) is deleted when the file is next loaded or
replaced.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from orbitmq.clock import SystemClock

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_TEMPORARY_SUFFIX: Final = ".tmp"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# A younger file may belong to a replacement in progress on another thread.
_PROCESS_START_MS: Final = SystemClock().now_ms()


@dataclass(frozen=True, slots=True)
class FileModes:
    """The permissions of new files and folders."""

    file: int
    folder: int


# Messages and settings may be secret.
PRIVATE: Final = FileModes(0o600, 0o700)
GROUP_READABLE: Final = FileModes(0o640, 0o750)


def modes_like(folder: Path) -> FileModes:
    """The permissions for new files that take the place of those in a folder."""
    if not folder.is_dir():
        return PRIVATE
    mode = stat.S_IMODE(folder.stat().st_mode)
    return FileModes(PRIVATE.file | mode & 0o066, PRIVATE.folder | mode & 0o077)


async def off_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work in a thread; a cancelled caller does not wait for it."""
    return await asyncio.to_thread(work, *args, **kwargs)


async def to_end_off_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work in a thread; a cancelled caller waits for it, too.

    So the lock of a file is not passed on while a thread still writes it: an older content could
    replace a newer one.
    """
    running = asyncio.ensure_future(off_loop(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        # Whatever became of it, the caller is cancelled.
        running.exception()
        raise


def lacks_room(error: OSError) -> bool:
    """Whether something failed for lack of room on the disk."""
    return error.errno in _NO_ROOM


def open_file(path: Path, flags: int, modes: FileModes = PRIVATE) -> int:
    """Open a file; one that this creates has exactly these permissions, whatever the umask."""
    flags |= os.O_CLOEXEC
    if not flags & os.O_CREAT:
        return os.open(path, flags)
    if not flags & os.O_EXCL:
        try:
            return os.open(path, flags & ~os.O_CREAT)
        except FileNotFoundError:
            pass
    number = os.open(path, flags, modes.file)
    if stat.S_IMODE(os.fstat(number).st_mode) & modes.file != modes.file:
        os.fchmod(number, modes.file)
    return number


def make_folder(folder: Path, modes: FileModes = PRIVATE) -> None:
    """Create a folder and its parents if missing, and return once their names are on disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent, modes)
    folder.mkdir(mode=modes.folder, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & modes.folder != modes.folder:
        # A group that the parent passes on stays set.
        folder.chmod(mode | modes.folder)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Return once the names in a folder are on disk."""
    number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def replace_file(path: Path, content: bytes, modes: FileModes = PRIVATE) -> None:
    """Replace the content of a file, and keep the previous one in a file with `.bak` added.

    The new content goes to a temporary file in the same folder, which is synced and renamed over
    the old one. Syncing the folder makes the rename durable. An existing file keeps its mode.
    """
    # A symbolic link, which is how container platforms mount settings, stays a link.
    path = path.resolve()
    make_folder(path.parent, modes)
    delete_leftovers(path)
    if path.exists():
        mode = stat.S_IMODE(path.stat().st_mode)
        _put(path.with_name(path.name + ".bak"), path.read_bytes(), mode)
    else:
        mode = modes.file
    _put(path, content, mode)
    sync_folder(path.parent)


def delete_leftovers(path: Path) -> None:
    """Delete the temporary files that a crash left while `path` was being replaced."""
    path = path.resolve()
    name = re.compile(
        rf"\.{re.escape(path.name)}(\.bak)?\.[a-z0-9_]{{8}}{re.escape(_TEMPORARY_SUFFIX)}"
    )
    try:
        for found in path.parent.iterdir():
            if name.fullmatch(found.name) and _is_older_than_this_process(found):
                found.unlink()
                log.info("leftover temporary file deleted file=%s", found)
    except FileNotFoundError:
        pass  # There is no folder yet, or another process deleted it first.
    except OSError as error:
        log.warning("leftover temporary file not deleted reason=%s", error)


def _is_older_than_this_process(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_mtime_ns // 1_000_000 < _PROCESS_START_MS


def _put(path: Path, content: bytes, mode: int) -> None:
    descriptor, temporary_name = tempfile.mkstemp(
        prefix=f".{path.name}.", suffix=_TEMPORARY_SUFFIX, dir=path.parent
    )
    temporary = Path(temporary_name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
