"""Archives that retention may wait for: opened, advanced, listed, released."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from orbitmq.broker.tool_requests import ToolRequests
from orbitmq.disk import off_loop
from orbitmq.errors import (
    ArchiveRefusedError,
    ProtocolError,
    RequestRefusedError,
    TopicRefusedError,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
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

    from orbitmq.broker.archives.archive_gate import ArchiveGate
    from orbitmq.broker.archives.archive_table import ArchiveTable
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.model.topics import TopicConfig
    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False, kw_only=True)
class ArchiveRequests:
    """Answers archivers, operators and slaves."""

    archives: ArchiveTable
    gate: ArchiveGate
    topics: TopicTable
    store: MessageStore
    # Why this broker changes nothing now, as a code and a remark; None if it does.
    refusal: Callable[[], tuple[ResponseCode, str] | None]
    _measuring: ToolRequests = field(
        default_factory=lambda: ToolRequests("for figures of archives"), init=False
    )

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.OPEN_ARCHIVE: self.open,
            RequestCode.ADVANCE_ARCHIVE: self.advance,
            RequestCode.LIST_ARCHIVES: self.list_,
            RequestCode.RELEASE_ARCHIVE: self.release,
        }

    async def open(self, _: Connection, request: Command) -> Command:
        """Open an archive of a topic, or find it."""
        asked = OpenArchive.decode(request.fields)
        self._check_master()
        self._check_topic(self.topics.require(asked.topic))

        def starts() -> dict[int, int]:
            # A pass that began before the gate held may still delete what queues begin with.
            self.store.finish_retention_pass()
            return {bounds.queue_id: bounds.start for bounds in self.store.queues({asked.topic})}

        await self._note_deletions()
        archive = await self.archives.open(
            asked.name,
            topic=asked.topic,
            gates=asked.gates,
            target=asked.target,
            life_from=self.store.deleted_topics().get(asked.topic, 0),
            starts=starts,
        )
        return request.reply(body=msgspec.json.encode(archive))

    async def advance(self, _: Connection, request: Command) -> Command:
        """Move marks of an archive."""
        asked = AdvanceArchive.decode(request.fields)
        self._check_master()
        try:
            moves = await off_loop(msgspec.json.decode, request.body, type=list[MarkMove])
        except msgspec.DecodeError as error:
            raise ProtocolError(f"these are no marks: {error}") from error
        if len({move.queue_id for move in moves}) < len(moves):
            raise ArchiveRefusedError("a queue is named twice among the marks")
        topic = self.archives.require(asked.name).topic
        self._check_topic(self.topics.require(topic))
        await self._note_deletions()
        ends = await off_loop(self._ends, topic, moves)
        archive = await self.archives.advance(asked.name, asked.life, moves, ends)
        return request.reply(body=msgspec.json.encode(archive))

    async def list_(self, _: Connection, request: Command) -> Command:
        """List all archives.

        A slave that has seen a topic leave the table sees here that its marks ended.
        """
        asked = ListArchives.decode(request.fields)
        await self.topics.until_deleted()
        if not asked.with_figures:
            return request.reply(body=await off_loop(self._list))
        async with self._measuring.at_work():
            return request.reply(body=await off_loop(self._list, with_figures=True))

    async def release(self, _: Connection, request: Command) -> Command:
        """Forget an archive, or that there may be unknown ones."""
        asked = ReleaseArchive.decode(request.fields)
        self._check_master()
        await self.archives.release(asked.name)
        return request.reply()

    def _list(self, *, with_figures: bool = False) -> bytes:
        figures = self.gate.figures() if with_figures else {}
        return msgspec.json.encode(ArchiveList(known=self.archives.known, figures=figures))

    def _ends(self, topic: str, moves: list[MarkMove]) -> dict[int, int]:
        return {move.queue_id: self.store.end_of(topic, move.queue_id) for move in moves}

    async def _note_deletions(self) -> None:
        """End marks of topics that this broker, once a slave, has seen deleted in its log since."""
        await self.archives.note_deletions(await off_loop(self.store.deleted_topics))

    def _check_master(self) -> None:
        refusal = self.refusal()
        if refusal is not None:
            raise RequestRefusedError(*refusal)

    def _check_topic(self, topic: TopicConfig) -> None:
        if self.topics.is_system(topic.name):
            raise TopicRefusedError(f"{topic.name!r} is a system topic, which is not archived")
        if topic.is_in_memory:
            raise TopicRefusedError(
                f"topic {topic.name!r} is kept in memory, where nothing waits for an archive",
                hint="archive topics on disk",
            )
