"""Replacing a file so that a crash leaves the old content or the new, never a mix.

The new content goes to a temporary file in the same directory, is synced, and is renamed over
the old one; syncing the directory makes the rename last. What was there before stays beside it
with `.bak` at the end of its name.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` in the place of the file, keeping the previous content as `.bak`."""
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
