"""Key-value configuration by namespace, kept in a file.

File layout, JSON: {"configTable": {namespace: {key: value}}}

Threads: the event loop's; the file is written off it.
Crash: the file is replaced whole, and a change is answered after it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

import msgspec

from orbitmq import java_json
from orbitmq.disk import off_loop, replace_file
from orbitmq.errors import KeyValueError, ProtocolError, SettingsError

log = logging.getLogger(__name__)

Table = dict[str, dict[str, str]]
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024


class _File(msgspec.Struct, kw_only=True):
    table: Table = msgspec.field(default_factory=dict, name="configTable")


class KeyValues:
    """The keys of every namespace."""

    def __init__(self, path: Path, *, keys_max: int = 100_000) -> None:
        self._path = path
        self._keys_max = keys_max
        self._table: Table = {}
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
        if content:
            try:
                self._table = java_json.decode(content, _File).table
            except ProtocolError as error:
                raise SettingsError(
                    f"{self._path} is broken: {error}",
                    hint="restore it from its copy with .bak at the end, or move it away",
                ) from error

    def get(self, namespace: str, key: str) -> str | None:
        """Read one key."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Read every key of a namespace; None when there is none."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one key; returns once it is on disk."""
        async with self._changing:
            keys = self._table.get(namespace, {})
            if key not in keys and sum(map(len, self._table.values())) >= self._keys_max:
                raise KeyValueError(
                    f"{self._keys_max} keys are kept; {key!r} is one too many",
                    hint="delete keys, or raise kvConfigMax",
                )
            await self._replace({**self._table, namespace: {**keys, key: value}})
        log.info("key set namespace=%s key=%s", namespace, key)

    async def delete(self, namespace: str, key: str) -> None:
        """Delete one key; returns once that is on disk."""
        async with self._changing:
            keys = dict(self._table.get(namespace, {}))
            if keys.pop(key, None) is None:
                return
            await self._replace({**self._table, namespace: keys})
        log.info("key deleted namespace=%s key=%s", namespace, key)

    def log_all(self) -> None:
        """List every key in the log."""
        log.info("key values namespaces=%d", len(self._table))
        for namespace, keys in self._table.items():
            for key, value in keys.items():
                log.info("key value namespace=%s key=%s value=%s", namespace, key, value)

    async def _replace(self, table: Table) -> None:
        """Keep a new table, on disk first; a failure leaves the old one in force."""
        try:
            await off_loop(replace_file, self._path, java_json.encode(_File(table=table)))
        except OSError as error:
            raise KeyValueError(
                f"cannot write {self._path}: {error.strerror}; nothing was changed",
                hint="kvConfigPath must name a file in a folder that can be written to",
            ) from error
        self._table = table


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES_MAX)
    except FileNotFoundError:
        return b""
