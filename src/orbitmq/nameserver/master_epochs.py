"""The largest epoch of a master of each broker group, stored in a file.

A promoted slave has a larger epoch than the master it replaced, which is refused when it returns.
Groups at epoch 0, as all of RocketMQ's without a controller, are not stored.

File layout, two lines: JSON {"epochs": {cluster: {broker name: epoch}}}, and its CRC-32 in eight
hexadecimal digits.

Threads: the event loop; a worker thread writes the file.
Crash: the file is replaced as a whole, and a change is visible only after it is on disk. Changes
that arrive during a write share the next one. A damaged file is an error: without it a replaced
master would be accepted again.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.disk import delete_leftovers, off_loop, replace_file, to_end_off_loop
from orbitmq.errors import RegistrationRefusedError, SettingsError

log = logging.getLogger(__name__)

FILE_NAME: Final = "epochs.json"
# Cluster → broker name → epoch.
Epochs = dict[str, dict[str, int]]
_FILE_BYTES_MAX: Final = 1024 * 1024 * 1024


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    epochs: Epochs


class MasterEpochs:
    """The epochs of all groups above 0."""

    def __init__(self, path: Path, *, groups_max: int = 10_000) -> None:
        self._path = path
        self._groups_max = groups_max
        self._epochs: Epochs = {}
        self._waiting: list[_Change] = []
        self._changing = asyncio.Lock()
        # Called after each change, once it is on disk.
        self.on_change: Callable[[], None] = lambda: None

    async def load(self) -> None:
        """Read the file, if there is one."""
        try:
            self._epochs = await off_loop(_read, self._path)
        except OSError as error:
            raise SettingsError(
                f"cannot read {self._path}: {error.strerror}",
                hint="epochsPath must name a readable file in a folder that can be written to",
            ) from error

    def all(self) -> Epochs:
        """The epoch of every group, by cluster and broker name."""
        return {
            cluster: dict(sorted(by_name.items()))
            for cluster, by_name in sorted(self._epochs.items())
        }

    def of(self, cluster: str, broker_name: str) -> int:
        """The largest epoch of a group; 0 if it never had one."""
        return self._epochs.get(cluster, {}).get(broker_name, 0)

    async def raise_to(self, cluster: str, broker_name: str, epoch: int) -> None:
        """Remember an epoch unless a larger one is known; returns once it is on disk."""
        await self._apply(_Change(cluster, broker_name, epoch))

    async def forget(self, cluster: str, broker_name: str) -> int:
        """Forget the epoch of a group; returns it once the change is on disk."""
        change = _Change(cluster, broker_name, None)
        await self._apply(change)
        return change.before

    async def _apply(self, change: _Change) -> None:
        """Apply a change together with all pending ones, in one write."""
        self._waiting.append(change)
        async with self._changing:
            if not change.is_done:
                changes = list(self._waiting)
                await self._apply_all(changes)
                # Not before: if this caller is cancelled, the others make their changes themselves.
                del self._waiting[: len(changes)]
                for one in changes:
                    one.is_done = True
        if change.failure is not None:
            raise change.failure

    async def _apply_all(self, changes: list[_Change]) -> None:
        epochs = {cluster: dict(by_name) for cluster, by_name in self._epochs.items()}
        for change in changes:
            self._change(epochs, change)
        if epochs == self._epochs:
            return
        try:
            await to_end_off_loop(_write, self._path, epochs)
        except OSError as error:
            for change in changes:
                change.failure = change.failure or RegistrationRefusedError(
                    f"cannot write {self._path}: {error.strerror}; the epoch of "
                    f"{change.broker_name!r} was not changed",
                    hint="epochsPath must name a file in a folder that can be written to",
                )
            return
        self._epochs = epochs
        self.on_change()

    def _change(self, epochs: Epochs, change: _Change) -> None:
        change.before = epochs.get(change.cluster, {}).get(change.broker_name, 0)
        if change.epoch is None:
            by_name = epochs.get(change.cluster, {})
            by_name.pop(change.broker_name, None)
            if not by_name:
                epochs.pop(change.cluster, None)
        elif not change.before and sum(map(len, epochs.values())) >= self._groups_max:
            change.failure = RegistrationRefusedError(
                f"the epochs of {self._groups_max} broker groups are stored, the limit; epoch "
                f"{change.epoch} of {change.broker_name!r} is refused",
                hint="forget those of groups that are gone (orbitmq namesrv forget-epoch), or raise "
                "epochsMax",
            )
        elif change.epoch > change.before:
            epochs.setdefault(change.cluster, {})[change.broker_name] = change.epoch


@dataclass(slots=True, eq=False)
class _Change:
    """A pending change of the epoch of one group; without an epoch it is forgotten."""

    cluster: str
    broker_name: str
    epoch: int | None
    before: int = 0
    is_done: bool = False
    failure: RegistrationRefusedError | None = None


def _write(path: Path, epochs: Epochs) -> None:
    content = msgspec.json.encode(_File(epochs))
    replace_file(path, b"%b\n%08x\n" % (content, zlib.crc32(content)))


def _read(path: Path) -> Epochs:
    delete_leftovers(path)
    copy = path.with_name(path.name + ".bak")
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        if not copy.exists():
            return {}
        raise _damaged(path, "it is missing, but its copy is there") from None
    line, _, checksum = content.partition(b"\n")
    if checksum != b"%08x\n" % zlib.crc32(line):
        raise _damaged(path, "its checksum does not match")
    try:
        return msgspec.json.decode(line, type=_File).epochs
    except msgspec.DecodeError as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, reason: str) -> SettingsError:
    return SettingsError(
        f"{path} is damaged: {reason}",
        hint="restore it from a backup or from another name server of the same brokers; or move it "
        "and its .bak copy away while every present master runs: each registers its epoch again "
        "within a minute, and until then a replaced master that returns would be accepted",
    )
