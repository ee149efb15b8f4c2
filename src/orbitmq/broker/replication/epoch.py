"""The epochs of a store: where each began, and which role the store has since.

A store without the file is at epoch 0. Each promotion of a slave begins a larger epoch at the end
of its log, so that two logs that differ show which part was written under which master. The role
that a promotion gives or takes lasts until brokerId or brokerRole is configured anew; but a slave
becomes a master by a promotion only.

File layout of `<root>/orbitmq/epoch`, two lines: a JSON document, and its CRC-32 in eight
hexadecimal digits.

Threads: the event loop's; the file is read and written off it, one write at a time.
Crash: the file is replaced as a whole, and an epoch is visible only after it is on disk. A damaged
file is an error: an older copy would let two masters have the same epoch.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.broker.replication.config import BrokerRole
from orbitmq.disk import (
    PRIVATE,
    FileModes,
    delete_leftovers,
    off_loop,
    replace_file,
    to_end_off_loop,
)
from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol.requests.replication import EpochStart
from orbitmq.store.files.descriptor import write_failure

log = logging.getLogger(__name__)

FILE_NAME: Final = "epoch"
# Epochs whose start is kept; each promotion adds one, and the oldest makes room.
EPOCHS_MAX: Final = 1000
# State versions have 64 bits on the wire.
_EPOCH_HIGHEST: Final = 2**63 - 1
_FILE_BYTES_MAX: Final = 1024 * 1024


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id of a broker in its group, and what it does there."""

    broker_id: int
    role: BrokerRole

    @property
    def is_slave(self) -> bool:
        """Whether it copies the log of a master."""
        return self.role is BrokerRole.SLAVE


class ChangedRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A role that a promotion gave or took, and the one that was configured then."""

    role: Role
    configured: Role
    since_ms: int


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    epoch: int
    # By epoch; offsets never fall, and the last one is that of the present epoch.
    began: list[EpochStart]
    role: ChangedRole | None = None


class EpochFile:
    """The epochs of one store."""

    def __init__(
        self, root: Path, modes: FileModes = PRIVATE, *, epochs_max: int = EPOCHS_MAX
    ) -> None:
        self._path = root / "orbitmq" / FILE_NAME
        self._modes = modes
        self._epochs_max = epochs_max
        self._document = _Document(0, [])
        self._writing = asyncio.Lock()
        # Of a promotion to the configured role, which is not kept in the file.
        self._promoted_ms: int | None = None

    @property
    def epoch(self) -> int:
        """The present epoch; 0 before the first promotion."""
        return self._document.epoch

    @property
    def began_at(self) -> Mapping[int, PhysicalOffset]:
        """Where in the log each epoch above 0 began, the oldest first."""
        return {one.epoch: PhysicalOffset(one.offset) for one in self._document.began}

    async def load(self) -> None:
        """Read the file; without one the epoch is 0."""
        try:
            self._document = await off_loop(_read, self._path)
        except OSError as error:
            raise StoreError(
                f"cannot use {self._path.parent.parent} as a store: {self._path}: {error.strerror}",
                hint="the store's folder must be readable and writable",
            ) from error

    @property
    def history(self) -> list[EpochStart]:
        """All epochs above 0, the oldest first."""
        return list(self._document.began)

    @property
    def promoted_ms(self) -> int | None:
        """When a promotion made this broker the master; None if it is no promoted master."""
        changed = self._document.role
        if changed is None:
            return self._promoted_ms
        return None if changed.role.is_slave else changed.since_ms

    def role(self, configured: Role) -> Role:
        """The role that this store has, given the configured one."""
        changed = self._document.role
        if changed is None:
            return configured
        # Invariant: a new master has an epoch of its own, which only a promotion begins.
        is_kept = changed.configured == configured or (
            changed.role.is_slave and not configured.is_slave
        )
        return changed.role if is_kept else configured

    async def begin(
        self,
        epoch: int,
        offset: PhysicalOffset,
        *,
        former_id: int = 0,
        role: ChangedRole | None = None,
    ) -> None:
        """Begin a larger epoch at an offset of the log, and maybe a role; returns once on disk.

        Epochs that began at a higher offset, in a part of the log that was cut, are forgotten.
        Beginning the present epoch where it began changes nothing.
        """
        async with self._writing:
            old = self._document
            if old.began and (epoch, offset) == (old.epoch, old.began[-1].offset):
                return
            if not old.epoch < epoch <= _EPOCH_HIGHEST or offset < 0:
                raise StoreError(
                    f"epoch {epoch} cannot begin at offset {offset}: the store is at epoch "
                    f"{old.epoch}",
                    hint="an epoch is larger than all before it, and offsets are not negative",
                )
            kept = [one for one in old.began if one.offset <= offset]
            began = [*kept, EpochStart(epoch, offset, former_id)]
            await self._replace(_Document(epoch, began[-self._epochs_max :], role or old.role))
        log.info("epoch began epoch=%d before=%d offset=%d", epoch, old.epoch, offset)

    async def adopt(self, history: Sequence[EpochStart]) -> None:
        """Take over the epochs of the master that this store is a copy of now."""
        async with self._writing:
            old = self._document
            began = list(history[-self._epochs_max :])
            new = _Document(began[-1].epoch if began else 0, began, old.role)
            if not _is_ordered(new) or new.epoch < old.epoch:
                raise StoreError(
                    f"epochs up to {new.epoch} cannot follow epoch {old.epoch}",
                    hint="a slave follows a master of its epoch or of a larger one",
                )
            if new != old:
                await self._replace(new)
                log.info("epoch of the master epoch=%d before=%d", new.epoch, old.epoch)

    async def take_role(self, role: ChangedRole | None) -> None:
        """Have a role other than the configured one from now on, or with None that one."""
        async with self._writing:
            old = self._document
            self._promoted_ms = self.promoted_ms
            if role != old.role:
                await self._replace(_Document(old.epoch, old.began, role))

    async def _replace(self, new: _Document) -> None:
        try:
            await to_end_off_loop(_write, self._path, new, self._modes)
        except OSError as error:
            raise write_failure(self._path, error, what=f"epoch {new.epoch}") from error
        self._document = new


def _write(path: Path, document: _Document, modes: FileModes) -> None:
    content = msgspec.json.encode(document)
    replace_file(path, b"%b\n%08x\n" % (content, zlib.crc32(content)), modes)


def _read(path: Path) -> _Document:
    delete_leftovers(path)
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        if not path.with_name(FILE_NAME + ".bak").exists():
            return _Document(0, [])
        raise _damaged(path, "it is missing, but its copy is there") from None
    line, _, checksum = content.partition(b"\n")
    try:
        if checksum != b"%08x\n" % zlib.crc32(line):
            raise _damaged(path, "its checksum does not match")
        document = msgspec.json.decode(line, type=_Document)
    except msgspec.DecodeError as error:
        raise _damaged(path, str(error)) from error
    if not _is_ordered(document):
        raise _damaged(path, "its epochs are out of order")
    return document


def _is_ordered(document: _Document) -> bool:
    epochs = [one.epoch for one in document.began]
    if not epochs:
        return document.epoch == 0
    offsets = [0, *(one.offset for one in document.began)]
    return (
        epochs[-1] == document.epoch <= _EPOCH_HIGHEST
        and all(low < high for low, high in zip([0, *epochs], epochs, strict=False))
        and offsets == sorted(offsets)
    )


def _damaged(path: Path, reason: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{path} is damaged: {reason}",
        hint="if another broker of the group is alive, start this one as a slave with an empty "
        "store; if not, move this file and its .bak copy away, which means epoch 0, and make the "
        "name servers forget theirs: orbitmq namesrv forget-epoch",
    )
