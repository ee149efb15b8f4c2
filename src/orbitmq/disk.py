"""Blocking disk work: how an event loop calls it, and whole-file replacement.

Crash: a replaced file has its old content or its new one, never a mix. A leftover temporary file
(`.name.` or `.name.bak.`, eight characters, `.tmp`) is deleted when the file is next loaded or
replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from orbitmq.clock import SystemClock

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_TEMPORARY_SUFFIX: Final = ".tmp"
# A younger file may belong to a replacement in progress on another thread.
_PROCESS_START_MS: Final = SystemClock().now_ms()


async def off_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work in a thread; a cancelled caller does not wait for it."""
    return await asyncio.to_thread(work, *args, **kwargs)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file, and keep the previous one in a file with `.bak` added.

    The new content goes to a temporary file in the same folder, which is synced and renamed over
    the old one. Syncing the folder makes the rename durable.
    """
    # A symbolic link, which is how container platforms mount settings, stays a link.
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    delete_leftovers(path)
    if path.exists():
        mode = stat.S_IMODE(path.stat().st_mode)
        _put(path.with_name(path.name + ".bak"), path.read_bytes(), mode)
    else:
        mode = 0o600  # settings may hold secrets
    _put(path, content, mode)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


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
