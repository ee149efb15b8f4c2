"""One JSON file of a broker's config folder, changed as a whole.

The document is an immutable struct, and a change is a function from one document to the next.
Members of the file that the struct does not define (a later RocketMQ wrote them) are kept. The last
member is a checksum of the rest, which RocketMQ ignores: a file that does not match it is used, with
a warning, since people edit these files.

Threads: the event loop's; the file is read and written off it, one write at a time. Changes that
arrive during a write share the next one.
Crash: a change is visible only after it is on disk, unless the next start would make it again and
the disk is full. The file is replaced whole; the previous
content is kept with the suffix `.bak`, where RocketMQ looks for it too.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from orbitmq import java_json
from orbitmq.disk import PRIVATE, FileModes, lacks_room, off_loop, replace_file
from orbitmq.errors import ConfigFileError, OrbitError, ProtocolError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
_CHECKSUM: Final = re.compile(rb',?\s*"checksum"\s*:\s*"([0-9a-f]{8})"\s*\}\s*\Z')
_CHECKSUM_BYTES_MAX: Final = 100


class ConfigFile(Generic[T]):
    """A document, and the file that it is kept in."""

    def __init__(self, path: Path, fresh: T, modes: FileModes = PRIVATE) -> None:
        self._path = path
        self._modes = modes
        self._document = fresh
        self._unknown: _Tree = {}
        self._waiting: list[_PendingChange[T]] = []
        self._round: asyncio.Task[None] | None = None
        # Whether the document is newer than the file, for lack of room.
        self._is_unsaved = False
        # Whether the file, or its copy, was there.
        self.is_found = False
        # Whether the document is as it was last written: not an older copy, nor changed by others.
        self.is_current = False
        # Called with the old and the new document after each change, once it is on disk.
        self.on_change: Callable[[T, T], None] = lambda _old, _new: None

    @property
    def document(self) -> T:
        """The document on disk, or the initial one if there is none."""
        return self._document

    async def load(self) -> None:
        """Read the file, or its copy if the file is damaged or missing.

        Without either, the initial document stays. If all that exist are damaged, it is an error,
        since starting without them would lose their content.
        """
        try:
            loaded = await off_loop(_load, self._path, type(self._document), self._modes)
        except OSError as error:
            raise ConfigFileError(
                f"cannot read {self._path}: {error.strerror}",
                hint="the config folder of the store must be readable and writable",
            ) from error
        if loaded is not None:
            self._document, self._unknown, self.is_current = loaded
            self.is_found = True

    async def change(self, step: Callable[[T], T]) -> None:
        """Apply a change; returns once it is on disk, and visible only then.

        A `step` that raises changes nothing; one that returns its argument writes nothing.
        If cancelled, the change is still made if its write has started.
        """
        change = _PendingChange(step)
        self._waiting.append(change)
        try:
            while not change.is_done:
                if self._round is None:
                    self._round = asyncio.create_task(
                        self._apply_waiting(), name=f"write {self._path.name}"
                    )
                await asyncio.shield(self._round)
        except asyncio.CancelledError:
            if change in self._waiting:
                self._waiting.remove(change)
            raise
        if change.failure is not None:
            raise change.failure

    async def complete(self, step: Callable[[T], T]) -> None:
        """Apply a change that the next start would make again.

        Without room on the disk it is made in memory; `save` or the next change writes it.
        """
        document = step(self._document)
        try:
            await self.change(lambda _: document)
        except ConfigFileError as error:
            if not isinstance(error.__cause__, OSError) or not lacks_room(error.__cause__):
                raise
            log.warning("table not saved until the disk has room reason=%s", error)
            self._is_unsaved = True
            before, self._document = self._document, document
            self.on_change(before, document)

    async def save(self) -> None:
        """Write what had no room before."""
        if self._is_unsaved:
            await self.change(msgspec.structs.replace)
            log.info("table saved file=%s", self._path)

    async def settled(self) -> None:
        """Return once no write is under way."""
        while self._round is not None:
            await asyncio.shield(self._round)

    async def _apply_waiting(self) -> None:
        """Apply all waiting changes with one write."""
        changes, self._waiting = self._waiting, []
        try:
            document = self._document
            for change in changes:
                try:
                    document = change.step(document)
                except OrbitError as error:
                    change.failure = error
            if document is not self._document:
                await off_loop(_write, self._path, document, self._unknown, self._modes)
                self._is_unsaved = False
                before, self._document = self._document, document
                self.on_change(before, document)
        except OSError as error:
            for change in changes:
                change.failure = change.failure or self._write_failure(error)
        finally:
            for change in changes:
                change.is_done = True
            self._round = None

    def _write_failure(self, error: OSError) -> ConfigFileError:
        failure = ConfigFileError(
            f"cannot write {self._path}: {error.strerror}; nothing was changed",
            hint="the config folder of the store must be writable, with room on its disk",
        )
        failure.__cause__ = error
        return failure


@dataclass(slots=True, eq=False)
class _PendingChange(Generic[T]):
    """A change that is not on disk yet."""

    step: Callable[[T], T]
    is_done: bool = False
    failure: OrbitError | None = None


def _load(path: Path, shape: type[T], modes: FileModes) -> tuple[T, _Tree, bool] | None:
    problems = []
    copy = path.with_name(path.name + ".bak")
    for candidate in (path, copy):
        try:
            whole = _read(candidate)
            content, is_as_written = _without_checksum(whole)
            document = java_json.decode(content, shape, tolerated_bytes_max=_FILE_BYTES_MAX)
            seen = java_json.decode(content, dict, tolerated_bytes_max=_FILE_BYTES_MAX)
            # An editor may have moved it.
            is_as_written &= seen.pop("checksum", None) is None
            unknown = _unknown_members(seen, msgspec.to_builtins(document, str_keys=True))
        except FileNotFoundError:
            continue
        except ProtocolError as error:
            problems.append(f"{candidate.name}: {error}")
            continue
        if not is_as_written:
            log.warning(
                "config file does not match its checksum file=%s hint=if nobody edited it, it is "
                "damaged: compare its values with %s",
                candidate,
                copy,
            )
        if candidate is copy:
            _restore(path, whole, problems, modes)
        return document, unknown, is_as_written and candidate is path
    if problems:
        raise ConfigFileError(
            f"damaged config files in {path.parent}: {'; '.join(problems)}",
            hint=f"restore {path.name}, or move these files away to start without them",
        )
    return None


def _restore(path: Path, content: bytes, problems: list[str], modes: FileModes) -> None:
    """Replace a damaged file with its copy, without touching the copy."""
    log.warning(
        "config file restored from its copy, without the last change file=%s reason=%s",
        path,
        "; ".join(problems) or "missing",
    )
    # Overwriting the damaged file would first make it the copy, and lose the last intact one.
    if path.exists():
        path.replace(path.with_name(path.name + ".damaged"))
    try:
        replace_file(path, content, modes)
    except OSError as error:
        if not lacks_room(error):
            raise
        # The copy is intact, and the next change writes the file.
        log.warning("config file not restored yet file=%s reason=%s", path, error.strerror)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_FILE_BYTES_MAX + 1)
    if len(content) > _FILE_BYTES_MAX:
        raise ProtocolError(f"it has more than {_FILE_BYTES_MAX} bytes")
    return content


def _write(path: Path, document: msgspec.Struct, unknown: _Tree, modes: FileModes) -> None:
    content: Any = document
    if unknown:
        content = msgspec.to_builtins(document)
        _put_back(unknown, content)
    replace_file(path, _with_checksum(java_json.encode(content)), modes)


def _with_checksum(content: bytes) -> bytes:
    separator = b"," if len(content) > len(b"{}") else b""
    return b'%b%b"checksum":"%08x"}' % (content[:-1], separator, zlib.crc32(content))


def _without_checksum(content: bytes) -> tuple[bytes, bool]:
    """Split off the checksum; returns False if the rest does not match it."""
    found = _CHECKSUM.search(content, max(0, len(content) - _CHECKSUM_BYTES_MAX))
    if found is None:
        return content, True
    rest = content[: found.start()] + b"}"
    return rest, zlib.crc32(rest) == int(found[1], 16)


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A member that the document's type does not define."""

    value: Any


# The unknown members of a document, nested under the names of their parents.
_Tree = dict[str, "_Unknown | _Tree"]


def _unknown_members(seen: Any, known: Any) -> _Tree:
    if not isinstance(seen, dict) or not isinstance(known, dict):
        return {}
    tree: _Tree = {}
    for name, member in seen.items():
        if name not in known:
            if member is not None:
                tree[name] = _Unknown(member)
        elif below := _unknown_members(member, known[name]):
            tree[name] = below
    return tree


def _put_back(unknown: _Tree, content: dict[str, Any]) -> None:
    for name, member in unknown.items():
        if isinstance(member, _Unknown):
            content[name] = member.value
        elif isinstance(content.get(name), dict):
            # Entries deleted meanwhile are not restored for their unknown members.
            _put_back(member, content[name])
