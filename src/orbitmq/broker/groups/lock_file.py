"""Owners of queue locks on disk, so that a restart does not give a lock away.

A Java client trusts its lock for 30 s without contact with the broker. A broker that forgot the lock
would give the queue to another client meanwhile, and both would consume it, out of order.

File layout, JSON, one line per group and client: [group, client id, [[broker name, topic, queue id],
…]]. The client id is null where locks were released; the last line of a queue counts. A change
appends lines, so that a request costs about as much disk as it has bytes. The file is replaced when
most of it is outdated. Files without line breaks are from older versions: [[group, broker name,
topic, queue id, client id], …].

A slave keeps the owners that its master has, in the same form, for its promotion.

Threads: the event loop's; the file is written off it, by one write at a time.
Crash: a torn last line is ignored. The file is not synced: after a power failure a machine takes
longer to come back than any client trusts its lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.groups.queue_locks import LOCKS_MAX
from orbitmq.disk import PRIVATE, FileModes, make_folder, off_loop, open_file, to_end_off_loop
from orbitmq.errors import ConfigFileError, ProtocolError
from orbitmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from orbitmq.broker.groups.queue_locks import Owner, QueueLocks

log = logging.getLogger(__name__)

FILE_NAME: Final = "queue_locks"
_OldRow = tuple[str, str, str, int, str]
_Line = tuple[str, str | None, list[tuple[str, str, int]]]
# Outdated entries that do not matter yet.
_SPARE_ENTRIES: Final = 1000


class LockFile:
    """Saves and restores the owners of locks."""

    def __init__(self, folder: Path, locks: QueueLocks, modes: FileModes = PRIVATE) -> None:
        self._modes = modes
        self._path = folder / FILE_NAME
        self._locks = locks
        self._saved_changes = 0
        # Queues in the file, repeated ones too; None if it has to be replaced.
        self._entries: int | None = None
        self._is_failing = False
        # What the master has; None if it was not asked yet.
        self._followed: bytes | None = None
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Restore the locks; a file that cannot be read is ignored."""
        try:
            changes = _decode(await off_loop(self._path.read_bytes))
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("queue locks not restored file=%s reason=%s", self._path, error)
            return
        owners: dict[tuple[str, MessageQueue], str | None] = {}
        for group, queue, owner in changes:
            owners[group, queue] = owner
        for (group, queue), owner in owners.items():
            if owner is not None:
                self._locks.restore(group, queue, owner)

    async def content(self) -> bytes:
        """All owners, as in a new file."""
        return await off_loop(_encode, list(self._locks.owners()))

    async def follow(self, content: bytes) -> None:
        """Replace the file by what the master has; raises ProtocolError if that is none."""
        if content == self._followed:
            return
        await off_loop(_check, content)
        async with self._writing:
            try:
                await to_end_off_loop(_keep, self._path, content, self._modes)
            except OSError as error:
                raise ConfigFileError(
                    f"cannot write {self._path}: {error.strerror}",
                    hint="the folder of the store must be writable, with room on its disk",
                ) from error
            self._followed = content

    async def save(self) -> None:
        """Write the owners that changed; concurrent callers share a write."""
        wanted = self._locks.changes
        if wanted == self._saved_changes:
            return
        async with self._writing:
            if self._saved_changes < wanted:
                await self._write()

    async def _write(self) -> None:
        changes = self._locks.changes
        owners = self._locks.take_changes()
        entries = self._entries
        replaces = entries is None or entries > 2 * len(self._locks) + _SPARE_ENTRIES
        if replaces:
            owners = list(self._locks.owners())
        try:
            await to_end_off_loop(
                _replace if replaces else _append, self._path, owners, self._modes
            )
        except OSError as error:
            self._entries = None
            if not self._is_failing:
                log.warning("queue locks not saved file=%s reason=%s", self._path, error)
            self._is_failing = True
        else:
            self._entries = len(owners) + (0 if replaces else entries or 0)
            self._is_failing = False
        self._saved_changes = changes


def _decode(content: bytes) -> list[Owner]:
    *lines, torn = content.split(b"\n")
    if not lines:
        return [
            (group, MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id), owner)
            for group, broker_name, topic, queue_id, owner in msgspec.json.decode(
                torn, type=list[_OldRow]
            )
        ]
    decoder = msgspec.json.Decoder(_Line)
    return [
        (group, MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id), owner)
        for group, owner, queues in map(decoder.decode, lines)
        for broker_name, topic, queue_id in queues
    ]


def _encode(owners: Iterable[Owner]) -> bytes:
    lines: dict[tuple[str, str | None], list[tuple[str, str, int]]] = {}
    for group, queue, owner in owners:
        row = queue.broker_name, queue.topic, queue.queue_id
        lines.setdefault((group, owner), []).append(row)
    return b"".join(
        msgspec.json.encode((group, owner, queues)) + b"\n"
        for (group, owner), queues in lines.items()
    )


def _check(content: bytes) -> None:
    """Raise ProtocolError unless the locks of a master can be restored from it."""
    if not content:
        return
    if not content.endswith(b"\n"):
        raise ProtocolError(f"it ends with {content[-60:]!r}, in the middle of a line")
    try:
        count = len(_decode(content))
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"it is not a table of locks: {error}") from error
    if count > LOCKS_MAX:
        raise ProtocolError(f"it has {count} locks, of at most {LOCKS_MAX}")


def _append(path: Path, owners: list[Owner], modes: FileModes) -> None:
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_APPEND, modes), "ab") as file:
        file.write(_encode(owners))


def _replace(path: Path, owners: list[Owner], modes: FileModes) -> None:
    _replace_content(path, _encode(owners), modes)


def _keep(path: Path, content: bytes, modes: FileModes) -> None:
    """Keep the locks of a master; an empty file would count as damaged."""
    if content:
        _replace_content(path, content, modes)
    else:
        path.unlink(missing_ok=True)


def _replace_content(path: Path, content: bytes, modes: FileModes) -> None:
    make_folder(path.parent, modes)
    temporary = path.with_name(f".{path.name}.tmp")
    with os.fdopen(
        open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, modes), "wb"
    ) as file:
        file.write(content)
    temporary.replace(path)
