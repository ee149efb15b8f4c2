"""Key-value configuration by namespace, stored in a file.

File layout, JSON: {"configTable": {namespace: {key: value}}}

Threads: the event loop; a worker thread writes the file.
Crash: the file is replaced atomically, and a change is acknowledged once it is on disk. Changes
that arrive during a write share the next one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from orbitmq import java_json
from orbitmq.disk import delete_leftovers, off_loop, replace_file, to_end_off_loop
from orbitmq.errors import KeyValueError, ProtocolError, SettingsError

log = logging.getLogger(__name__)

Table = dict[str, dict[str, str]]
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
# Keys that one listing logs, on the event loop.
_LOGGED_MAX: Final = 200


class _File(msgspec.Struct, kw_only=True):
    table: Table = msgspec.field(default_factory=dict, name="configTable")


class KeyValueStore:
    """The keys of every namespace."""

    def __init__(
        self, path: Path, *, keys_max: int = 100_000, bytes_max: int = 64 * 1024 * 1024
    ) -> None:
        self._path = path
        self._keys_max = keys_max
        self._bytes_max = bytes_max
        self._table: Table = {}
        self._content_bytes = 0
        self._waiting: list[_KeyChange] = []
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file, if there is one."""
        try:
            content = await off_loop(_read, self._path)
        except OSError as error:
            raise SettingsError(
                f"cannot read {self._path}: {error.strerror}",
                hint="kvConfigPath must name a readable file in a folder that can be written to",
            ) from error
        if content is not None:
            try:
                self._table = java_json.decode(content, _File).table
                self._content_bytes = sum(
                    entry_bytes(namespace, key, value)
                    for namespace, keys in self._table.items()
                    for key, value in keys.items()
                )
            except ProtocolError as error:
                raise SettingsError(
                    f"{self._path} is broken: {error}",
                    hint="restore it from its .bak copy, or move both away",
                ) from error

    def get(self, namespace: str, key: str) -> str | None:
        """Read one key."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Read every key of a namespace; None if the namespace does not exist."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one key; returns once it is on disk."""
        await self._apply(_KeyChange(namespace, key, value))
        log.info("key set namespace=%s key=%s", namespace, key)

    async def delete(self, namespace: str, key: str) -> None:
        """Delete one key; returns once the change is on disk."""
        if self.get(namespace, key) is None and not self._waiting:
            return
        await self._apply(_KeyChange(namespace, key, None))
        log.info("key deleted namespace=%s key=%s", namespace, key)

    async def _apply(self, change: _KeyChange) -> None:
        """Apply a change together with all pending ones, in one write."""
        self._waiting.append(change)
        async with self._changing:
            if not change.is_done:
                changes, self._waiting = self._waiting, []
                await self._apply_all(changes)
        if change.failure is not None:
            raise change.failure

    async def _apply_all(self, changes: list[_KeyChange]) -> None:
        table = {namespace: dict(keys) for namespace, keys in self._table.items()}
        count = sum(map(len, table.values()))
        content_bytes = self._content_bytes
        for change in changes:
            change.is_done = True
            keys = table.get(change.namespace, {})
            old = keys.get(change.key)
            added = (change.value is not None) - (old is not None)
            growth = change.bytes_with(change.value) - change.bytes_with(old)
            if added > 0 and count + added > self._keys_max:
                change.failure = KeyValueError(
                    f"{self._keys_max} keys are stored, the limit; {change.key!r} is refused",
                    hint="delete keys, or raise kvConfigMax",
                )
            elif growth > 0 and content_bytes + growth > self._bytes_max:
                change.failure = KeyValueError(
                    f"keys and values are limited to {self._bytes_max} bytes; {growth} more do "
                    "not fit",
                    hint="delete keys, or raise kvConfigBytesMax",
                )
            else:
                count += added
                content_bytes += growth
                if change.value is None:
                    keys.pop(change.key, None)
                else:
                    table.setdefault(change.namespace, keys)[change.key] = change.value
        accepted = [change for change in changes if change.failure is None]
        try:
            if accepted:
                await to_end_off_loop(_write, self._path, table)
        except OSError as error:
            for change in accepted:
                change.failure = KeyValueError(
                    f"cannot write {self._path}: {error.strerror}; nothing was changed",
                    hint="kvConfigPath must name a file in a folder that can be written to",
                )
            return
        self._table, self._content_bytes = table, content_bytes

    def log_all(self) -> None:
        """Log the keys, up to a limit."""
        entries = (
            (namespace, key, value)
            for namespace, keys in self._table.items()
            for key, value in keys.items()
        )
        count = sum(map(len, self._table.values()))
        log.info("key values namespaces=%d keys=%d", len(self._table), count)
        for namespace, key, value in itertools.islice(entries, _LOGGED_MAX):
            log.info("key value namespace=%s key=%s value=%.1000s", namespace, key, value)
        if count > _LOGGED_MAX:
            log.info("further key values count=%d", count - _LOGGED_MAX)


@dataclass(slots=True, eq=False)
class _KeyChange:
    """A pending change of one key; without a value it deletes the key."""

    namespace: str
    key: str
    value: str | None
    is_done: bool = False
    failure: KeyValueError | None = None

    def bytes_with(self, value: str | None) -> int:
        """How many bytes the key takes with a value; 0 without one."""
        return 0 if value is None else entry_bytes(self.namespace, self.key, value)


def entry_bytes(namespace: str, key: str, value: str) -> int:
    """How many bytes an entry counts as: its text in UTF-8."""
    return len(namespace.encode()) + len(key.encode()) + len(value.encode())


def _write(path: Path, table: Table) -> None:
    replace_file(path, java_json.encode(_File(table=table)))


def _read(path: Path) -> bytes | None:
    """Read the file; None if neither it nor its copy is there."""
    delete_leftovers(path)
    copy = path.with_name(path.name + ".bak")
    if not path.exists() and copy.exists():
        # Compat: RocketMQ deletes the file before it renames the new one, and may die in between.
        log.warning("key values loaded from the copy file=%s reason=%s is missing", copy, path)
        path = copy
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(content) > _FILE_BYTES_MAX:
        raise SettingsError(
            f"{path} is larger than {_FILE_BYTES_MAX} bytes",
            hint="check that kvConfigPath names a name server's file, and shorten it by hand",
        )
    return content
