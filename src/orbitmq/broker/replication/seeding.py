"""Seeding: makes the store of a slave from log files copied from a master.

Copied files are no snapshot. A file that the master wrote to while it was copied has a hole or a half
record somewhere; what was copied may not be visible at the master yet. So the log is cut where the
master's visible log ends, and then after its last whole record before the first gap. Queues and index
are built from the rest, which is all visible at the master: the slave may show it at once, and copies
what follows as any slave does.

Crash: the folder counts as a store that was killed until it is complete; seeding can be repeated.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.broker.replication.log_comparison import LogComparison
from orbitmq.disk import make_folder, off_loop
from orbitmq.errors import CopyError, NeedsOrbitError
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.configuration import GetBrokerConfig
from orbitmq.protocol.requests.replication import FollowMaster, FollowReply
from orbitmq.settings.properties_file import PropertiesFile
from orbitmq.store.files.file_names import file_name, offset_of
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.abort_file import AbortFile

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.store.config import StoreConfig
    from orbitmq.transport.rpc_client import RpcClient

LOG_FOLDER: Final = "commitlog"
# What a store has beside its log: a folder with one of these has been used, or is in use.
_OF_STORES: Final = ("consumequeue", "index", "checkpoint", "abort", "orbitmq", "timerwheel")
# Says that the folder is being seeded, so that an interrupted seeding can be repeated.
_MARK: Final = "seeding"
_FILE_SIZE: Final = "mappedFileSizeCommitLog"

OnFile = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterLog:
    """The log of a running master."""

    start: int
    end: int
    # What its consumers can see ends here.
    visible: int
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """A store that a slave can start with."""

    root: Path
    start: int
    end: int
    # How much was copied, and could not be used: a half record, or not visible at the master.
    cut_bytes: int
    # How much the slave has to copy when it starts, as far as is known.
    left_bytes: int


async def ask_master(rpc: RpcClient, address: str, broker_name: str) -> MasterLog:
    """Ask a master for the range and shape of its log."""
    options = PropertiesFile.parse((await rpc.call(address, GetBrokerConfig())).body, name=address)
    sizes = [one.value for one in options.properties if one.name == _FILE_SIZE]
    if not sizes or not sizes[0].isdecimal():
        raise CopyError(f"the broker {address} does not say how large the files of its log are")
    comparison_range = await LogComparison.range_at(rpc, address)
    visible = comparison_range[1]
    with suppress(NeedsOrbitError):
        # Compat: a Java master shows what it has stored.
        reply = await rpc.call(
            address,
            FollowMaster(
                broker_name=broker_name,
                broker_id=Long(0),
                broker_address="",
                visible=Long(0),
                wait_ms=0,
            ),
        )
        followed = FollowReply.decode(reply.fields)
        if not followed.is_master:
            raise CopyError(f"the broker {address} is a slave", hint="name its master")
        visible = followed.visible
    start, end = comparison_range
    return MasterLog(start=start, end=end, visible=visible, file_bytes=int(sizes[0]))


def copy_files(source: Path, root: Path, on_file: OnFile) -> None:
    """Copy the log files of a store, which may be in use, the oldest first."""
    folder = source / LOG_FOLDER if (source / LOG_FOLDER).is_dir() else source
    if not folder.is_dir():
        raise CopyError(
            f"{folder} is no folder", hint="name the master's storePathRootDir or its commitlog"
        )
    target = root / LOG_FOLDER
    make_folder(target)
    names = sorted(path.name for path in folder.iterdir() if offset_of(path) is not None)
    if not names:
        raise CopyError(
            f"{folder} has no log files", hint="name the master's storePathRootDir or its commitlog"
        )
    for name in names:
        on_file(name)
        # The master's retention deletes the oldest ones meanwhile.
        with suppress(FileNotFoundError):
            shutil.copyfile(folder / name, target / name)


class Seeding:
    """Makes a store of a folder with copied log files."""

    def __init__(self, config: StoreConfig, clock: Clock) -> None:
        self._config = config
        self._root = config.root.expanduser()
        self._folder = self._root / LOG_FOLDER
        self._clock = clock

    def check_unused(self) -> None:
        """Raise CopyError if the folder is a store already."""
        if (self._root / _MARK).exists():
            return
        for name in _OF_STORES:
            if (self._root / name).exists():
                raise CopyError(
                    f"{self._root} is a store already: it has {name}",
                    hint=f"seed a folder that has only the copied files, in {LOG_FOLDER}",
                )

    async def run(self, rpc: RpcClient, address: str, master: MasterLog) -> Seeded:
        """Check and cut the files, build queues and index, and compare with the master."""
        copied_end = await off_loop(self._prepare, master)
        store = await off_loop(self._open)
        try:
            start, end = store.log_start, store.log_end
            if end == start:
                raise CopyError(
                    f"{self._folder} has no whole record below {master.visible}, where the "
                    "master's visible log ends",
                    hint="copy the files again",
                )
            difference = await LogComparison(store=store, rpc=rpc).find(address)
            if difference is not None:
                raise CopyError(
                    str(difference.error().args[0]),
                    hint="it is the log of another group, or of a former master: check --master "
                    "and where the files come from, and copy them again",
                )
        finally:
            await off_loop(store.close)
        await off_loop((self._root / _MARK).unlink)
        _, there = await LogComparison.range_at(rpc, address)
        return Seeded(
            root=self._root,
            start=start,
            end=end,
            cut_bytes=max(copied_end - end, 0),
            left_bytes=max(there - end, 0),
        )

    def _open(self) -> MessageStore:
        return MessageStore(self._config, clock=self._clock, is_copy=True)

    def _prepare(self, master: MasterLog) -> int:
        """Leave only bytes that are visible at the master; returns where the copied ones end."""
        files = self._files(master)
        # Until it is complete nobody may take the folder for a store that was stopped cleanly:
        # then only its newest files would be checked.
        (self._root / _MARK).touch()
        AbortFile(self._root, self._config.modes).write()
        for name in ("consumequeue", "index", "orbitmq"):
            # Of a seeding that was interrupted.
            shutil.rmtree(self._root / name, ignore_errors=True)
        (self._root / "checkpoint").unlink(missing_ok=True)
        for offset, path in files:
            if offset >= master.visible:
                path.unlink()
            elif offset + master.file_bytes > master.visible:
                os.truncate(path, min(path.stat().st_size, master.visible - offset))
            if path.exists():
                # Zeroes mean that nothing was written here.
                os.truncate(path, master.file_bytes)
        return min(files[-1][0] + master.file_bytes, master.end)

    def _files(self, master: MasterLog) -> list[tuple[int, Path]]:
        """The copied files, the oldest first; raises CopyError unless they are a part of a log."""
        found: list[tuple[int, Path]] = []
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            offset = offset_of(path)
            if offset is None:
                raise CopyError(
                    f"{path} is no file of a log", hint="move it away, or let the copy finish first"
                )
            found.append((offset, path))
        if not found:
            raise CopyError(
                f"{self._folder} has no log files",
                hint="copy the master's commitlog there, or give --copy-from",
            )
        self._check_row(found, master)
        if found[0][0] >= master.visible:
            # Nothing is deleted: they may be the log of another group.
            raise CopyError(
                f"the copied log begins at {found[0][0]}, and the master's visible log ends at "
                f"{master.visible}",
                hint="check --master: these may be files of another group",
            )
        return found

    def _check_row(self, found: list[tuple[int, Path]], master: MasterLog) -> None:
        size = master.file_bytes
        for number, (offset, path) in enumerate(found):
            has = path.stat().st_size
            is_last = number == len(found) - 1
            if offset % size or has > size or (has < size and not is_last):
                raise CopyError(
                    f"{path} begins at {offset} and has {has} bytes, and the master's files have "
                    f"{size}",
                    hint="copy it again, from this master",
                )
            if number and offset != found[number - 1][0] + size:
                raise CopyError(
                    f"{file_name(found[number - 1][0] + size)} is missing before {path.name}",
                    hint="copy it, too",
                )
        if found[-1][0] + size < master.start:
            raise CopyError(
                f"the copied log ends with {found[-1][1].name}, and the master's begins at "
                f"{master.start}",
                hint="retention has deleted what lies between: copy the files again",
            )
