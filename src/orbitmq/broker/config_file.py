"""One JSON file of a broker's config folder, changed as a whole.

The document is an immutable struct, and a change is a function from one document to the next.
Members of the file that the struct has no place for (a later RocketMQ wrote them) are kept.

Threads: the event loop's; the file is read and written off it, by one write at a time.
Crash: a change is seen only after it is on disk; the file is replaced whole, and its content
before stays with `.bak` added, where RocketMQ looks for it too. Changes that come while one is
written share the next write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from orbitmq import java_json
from orbitmq.disk import off_loop, replace_file
from orbitmq.errors import ConfigFileError, OrbitError, ProtocolError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024


class ConfigFile(Generic[T]):
    """A document, and the file that it is kept in."""

    def __init__(self, path: Path, fresh: T) -> None:
        self._path = path
        self._document = fresh
        self._unknown: _Tree = {}
        self._waiting: list[_PendingChange[T]] = []
        self._round: asyncio.Task[None] | None = None
        # Told the document before and after every change, once that is on disk.
        self.on_change: Callable[[T, T], None] = lambda _old, _new: None

    @property
    def document(self) -> T:
        """What is on disk; what was given at the start until something is."""
        return self._document

    async def load(self) -> None:
        """Read the file, or its copy when the file is damaged or missing.

        Without either the document stays as it was given; a folder whose files are all damaged
        is an error, since starting without them would lose what they say.
        """
        try:
            loaded = await off_loop(_load, self._path, type(self._document))
        except OSError as error:
            raise ConfigFileError(
                f"cannot read {self._path}: {error.strerror}",
                hint="the config folder of the store must be readable and writable",
            ) from error
        if loaded is not None:
            self._document, self._unknown = loaded

    async def change(self, step: Callable[[T], T]) -> None:
        """Make a change; returns once it is on disk, and only then it is seen.

        A `step` that raises changes nothing; one that returns what it was given writes nothing.
        Cancelled, the change is made if its write has begun.
        """
        change = _PendingChange(step)
        self._waiting.append(change)
        try:
            while not change.is_done:
                if self._round is None:
                    self._round = asyncio.create_task(
                        self._make_waiting(), name=f"write {self._path.name}"
                    )
                await asyncio.shield(self._round)
        except asyncio.CancelledError:
            if change in self._waiting:
                self._waiting.remove(change)
            raise
        if change.failure is not None:
            raise change.failure

    async def settled(self) -> None:
        """Return once no write is under way."""
        while self._round is not None:
            await asyncio.shield(self._round)

    async def _make_waiting(self) -> None:
        """Make every change that waits, so that one write serves them all."""
        changes, self._waiting = self._waiting, []
        try:
            document = self._document
            for change in changes:
                try:
                    document = change.step(document)
                except OrbitError as error:
                    change.failure = error
            if document is not self._document:
                await off_loop(_write, self._path, document, self._unknown)
                before, self._document = self._document, document
                self.on_change(before, document)
        except OSError as error:
            for change in changes:
                change.failure = change.failure or ConfigFileError(
                    f"cannot write {self._path}: {error.strerror}; nothing was changed",
                    hint="the config folder of the store must be writable, with room on its disk",
                )
        finally:
            for change in changes:
                change.is_done = True
            self._round = None


@dataclass(slots=True, eq=False)
class _PendingChange(Generic[T]):
    """A change on its way to the disk."""

    step: Callable[[T], T]
    is_done: bool = False
    failure: OrbitError | None = None


def _load(path: Path, shape: type[T]) -> tuple[T, _Tree] | None:
    problems = []
    copy = path.with_name(path.name + ".bak")
    for candidate in (path, copy):
        try:
            content = _read(candidate)
            document = java_json.decode(content, shape)
            unknown = _unknown_members(
                java_json.decode(content, dict), msgspec.to_builtins(document, str_keys=True)
            )
        except FileNotFoundError:
            continue
        except ProtocolError as error:
            problems.append(f"{candidate.name}: {error}")
            continue
        if candidate is copy:
            _restore(path, content, problems)
        return document, unknown
    if problems:
        raise ConfigFileError(
            f"cannot use what {path.parent} holds; {'; '.join(problems)}",
            hint=f"put a whole {path.name} there, or move these files away to start without",
        )
    return None


def _restore(path: Path, content: bytes, problems: list[str]) -> None:
    """Put the copy in the place of a damaged file, without touching the copy itself."""
    log.warning(
        "config file replaced by its copy file=%s reason=%s", path, "; ".join(problems) or "missing"
    )
    # Writing over the damaged file would first make it the copy: the last whole one would be lost.
    if path.exists():
        path.replace(path.with_name(path.name + ".damaged"))
    replace_file(path, content)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_FILE_BYTES_MAX + 1)
    if len(content) > _FILE_BYTES_MAX:
        raise ProtocolError(f"it has more than {_FILE_BYTES_MAX} bytes")
    return content


def _write(path: Path, document: msgspec.Struct, unknown: _Tree) -> None:
    content: Any = document
    if unknown:
        content = msgspec.to_builtins(document)
        _put_back(unknown, content)
    replace_file(path, java_json.encode(content))


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A member that the shape of the document has no place for."""

    value: Any


# The unknown members of a document, below the names that lead to them.
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
            # What was deleted meanwhile does not come back for its unknown members.
            _put_back(member, content[name])
