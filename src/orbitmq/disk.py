"""Blocking disk work: its one door into an event loop, and whole-file replacement.

Crash: a replaced file has its old content or its new one, never a mix.
"""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def off_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work in a thread; a cancelled caller does not wait for it."""
    return await asyncio.to_thread(work, *args, **kwargs)


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` in the place of a file, keeping its previous content with `.bak` added.

    The new content goes to a temporary file in the same folder, is synced, and is renamed over
    the old one; syncing the folder makes the rename last.
    """
    # A link, as container platforms mount settings, stays a link.
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
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


def _put(path: Path, content: bytes, mode: int) -> None:
    descriptor, temporary_name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
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
