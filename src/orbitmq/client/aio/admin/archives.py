"""Administers archives: programs that copy topics out, for which retention waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from orbitmq.errors import (
    ArchiveConflictError,
    ArchiveMissingError,
    ArchiveRefusedError,
    NotSupportedError,
    RemoteError,
)
from orbitmq.model.archives import Archive, ArchiveFigures, KnownArchives
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.archives import (
    AdvanceArchive,
    ArchiveList,
    ListArchives,
    MarkMove,
    OpenArchive,
    ReleaseArchive,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.headers import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerArchives:
    """The archives of one broker, by name, and what each has left to do there."""

    archives: Mapping[str, Archive] = field(default_factory=dict)
    figures: Mapping[str, ArchiveFigures] = field(default_factory=dict)
    # Why there may be more archives than these; then the broker keeps every log file.
    unknown: str = ""


@dataclass(slots=True, eq=False)
class Archives:
    """Opens, advances, lists and releases archives of OrbitMQ's brokers."""

    _reach: Reach

    async def all(self) -> dict[str, BrokerArchives]:
        """List the archives of every broker, by its name; brokers of RocketMQ have none."""
        found: dict[str, BrokerArchives] = {}
        for name, address in (await self._reach.masters()).items():
            at = await self.at(address)
            if at is not None:
                found[name] = at
        return found

    async def at(self, address: str) -> BrokerArchives | None:
        """List the archives of one broker; None if it is of a kind that has none."""
        try:
            reply = await self._reach.ask(address, ListArchives(with_figures=True))
        except NotSupportedError:
            return None
        listed = msgspec.json.decode(reply.body, type=ArchiveList)
        known: KnownArchives = listed.known
        return BrokerArchives(
            archives=known.archives, figures=listed.figures, unknown=known.unknown
        )

    async def open(
        self, name: str, topic: str, *, gates: bool = True, target: str = ""
    ) -> dict[str, Archive]:
        """Open an archive on every broker of a topic, or find it; returns what each broker has.

        It begins with the oldest message of each queue. Once this returns, retention waits for it.
        May be repeated, and has to be after brokers were added to the topic.

        Args:
            name: the name of the archive.
            topic: the topic, which is on disk.
            gates: whether retention waits for it.
            target: where the rows go, for people.
        """
        asked = OpenArchive(name=name, topic=topic, gates=gates, target=target)
        found: dict[str, Archive] = {}
        for broker, address in (await self._reach.masters_of(topic)).items():
            reply = await self._ask(address, asked)
            found[broker] = msgspec.json.decode(reply.body, type=Archive)
        return found

    async def advance(
        self, name: str, broker: str, life: int, marks: Mapping[int, tuple[int, int]]
    ) -> Archive:
        """Move marks of an archive at one broker: all of them, on disk when this returns, or none.

        Raises ArchiveConflictError unless each mark is what it is expected to be, at most the end
        of its queue, and about this life of the topic.

        Args:
            name: the name of the archive.
            broker: the name of the broker.
            life: the life of the topic, as the broker has it in its `Archive`.
            marks: by queue, the mark that it is expected to have, and the one that it gets: the
                offset of the first message that is not archived.
        """
        moves = [MarkMove(queue, *mark) for queue, mark in marks.items()]
        address = await self._reach.broker(broker)
        reply = await self._ask(
            address, AdvanceArchive(name=name, life=Long(life)), msgspec.json.encode(moves)
        )
        return msgspec.json.decode(reply.body, type=Archive)

    async def release(self, name: str, *, broker: str | None = None) -> list[str]:
        """Forget an archive on one broker, or on all that have it; returns their names."""
        if broker is not None:
            await self._ask(await self._reach.broker(broker), ReleaseArchive(name=name))
            return [broker]
        having = [at for at, found in (await self.all()).items() if name in found.archives]
        if not having:
            raise ArchiveMissingError(
                f"no broker has an archive {name!r}", hint="orbitmq lake gates shows all"
            )
        for at in having:
            await self._ask(await self._reach.broker(at), ReleaseArchive(name=name))
        return having

    async def release_unknown(self, broker: str) -> None:
        """Tell a broker that it knows all its archives, so that it keeps no more than they need."""
        await self._ask(await self._reach.broker(broker), ReleaseArchive())

    async def _ask(self, address: str, header: Header, body: bytes = b"") -> Command:
        try:
            return await self._reach.ask(address, header, body)
        except RemoteError as error:
            kind = _ERRORS.get(error.code)
            if kind is None:
                raise
            raise kind(f"{address}: {error.remark}", hint=error.hint) from error


_ERRORS: Mapping[int, type[ArchiveRefusedError]] = {
    ResponseCode.QUERY_NOT_FOUND: ArchiveMissingError,
    ResponseCode.ILLEGAL_OPERATION: ArchiveConflictError,
    ResponseCode.INVALID_PARAMETER: ArchiveRefusedError,
}
