"""Fetches the tables of a master, ours or Java's, over the wire.

Threads: the event loop's; large bodies are read off it.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec

from orbitmq import java_json
from orbitmq.broker.delay.progress import DelayDocument
from orbitmq.broker.groups.committed_offsets import OffsetsDocument
from orbitmq.broker.groups.group_table import GROUPS_MAX
from orbitmq.broker.topics.topic_table import TOPICS_MAX
from orbitmq.disk import off_loop
from orbitmq.errors import NotSupportedError, ProtocolError, RemoteError
from orbitmq.java_json import JavaInt, JavaLong
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.archives import ArchiveList, ListArchives
from orbitmq.protocol.requests.groups import (
    GroupConfigTable,
    ListGroupConfigs,
    ListGroupConfigsReply,
)
from orbitmq.protocol.requests.key_values import KeyValueTable
from orbitmq.protocol.requests.locking import ListQueueLocks
from orbitmq.protocol.requests.metadata import (
    GetTimerCheckpoint,
    ListStoreTables,
    StoreTables,
    TimerCheckpoint,
)
from orbitmq.protocol.requests.offsets import GetAllCommittedOffsets, GetDelayProgress
from orbitmq.protocol.requests.statistics import GetRuntime
from orbitmq.protocol.requests.topics import (
    ListTopicConfigs,
    ListTopicConfigsReply,
    TopicConfigTable,
)

if TYPE_CHECKING:
    from orbitmq.model.archives import KnownArchives
    from orbitmq.model.versions import DataVersion
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.headers import Header
    from orbitmq.transport.rpc_client import RpcClient

# As RocketMQ's slaves ask.
PAGE_MAX: Final = 2000
# Pages of one table, with those that are fetched again since it changed meanwhile.
PAGES_MAX: Final = 1000
# How often a table that changes meanwhile is begun anew.
RESTARTS_MAX: Final = 20
# No table is larger than a frame; the body of one is read in a thread.
_BODY_BYTES_MAX: Final = 64 * 1024 * 1024
_DELAY_LEVELS_MAX: Final = 1000
_DELAY_BYTES_MAX: Final = 64 * 1024
_LOG_END: Final = "commitLogMaxOffset"


@dataclass(frozen=True, slots=True)
class MasterTables:
    """The tables of the master at one address."""

    rpc: RpcClient
    address: str
    # Of each request.
    timeout_ms: float

    async def topics(self, known: DataVersion) -> TopicConfigTable | None:
        """Every topic; None if the table still has the version that is known."""
        pages = await self._pages(
            known,
            lambda first, version: ListTopicConfigs(
                first=first, topics_max=PAGE_MAX, data_version=version
            ),
            _topics_page,
        )
        if not pages:
            return None
        topics = {name: topic for page in pages for name, topic in page.table.topics.items()}
        _check_not_empty(topics)
        return TopicConfigTable(data_version=pages[0].table.data_version, topics=topics)

    async def groups(self, known: DataVersion) -> GroupConfigTable | None:
        """Every group, and what is forbidden; None if the table still has the version known."""
        pages = await self._pages(
            known,
            lambda first, version: ListGroupConfigs(
                first=first, groups_max=PAGE_MAX, data_version=version
            ),
            _groups_page,
        )
        if not pages:
            return None
        groups = {name: group for page in pages for name, group in page.table.groups.items()}
        _check_not_empty(groups)
        return GroupConfigTable(
            data_version=pages[0].table.data_version,
            forbidden={
                group: denied for page in pages for group, denied in page.table.forbidden.items()
            },
            groups=groups,
        )

    async def offsets(self) -> bytes:
        """All committed offsets, as the master wrote them; see `read_offsets`."""
        return (await self._ask(GetAllCommittedOffsets())).body

    async def delays(self) -> DelayDocument:
        """The progress of the delay levels."""
        body = (await self._ask(GetDelayProgress())).body
        document = java_json.decode(body, _DelayBody, tolerated_bytes_max=_DELAY_BYTES_MAX)
        if len(document.offsets) > _DELAY_LEVELS_MAX:
            raise ProtocolError(
                f"it has {len(document.offsets)} delay levels, of at most {_DELAY_LEVELS_MAX}"
            )
        wrong = [item for item in document.offsets.items() if min(item) < 0]
        if wrong:
            raise ProtocolError(f"level and offset cannot be {wrong[0]}")
        return DelayDocument(data_version=document.data_version, offsets=document.offsets)

    async def timers(self) -> TimerCheckpoint | None:
        """The progress of the timers; None if the master has none."""
        try:
            return TimerCheckpoint.decode((await self._ask(GetTimerCheckpoint())).body)
        except NotSupportedError:
            # Compat: brokers of RocketMQ 4.
            return None
        except RemoteError as error:
            # Compat: so answers a broker of RocketMQ 5 whose timers are off.
            if error.code == ResponseCode.SYSTEM_ERROR:
                return None
            raise

    async def locks(self) -> bytes | None:
        """The owners of queue locks, as in the file of the master; None if that is not ours."""
        try:
            return (await self._ask(ListQueueLocks())).body
        except NotSupportedError:
            return None

    async def of_store(self) -> StoreTables | None:
        """What of the master's store is not in its log; None if the master is not ours."""
        try:
            body = (await self._ask(ListStoreTables())).body
        except NotSupportedError:
            return None
        return await off_loop(_read_store_tables, body)

    async def archives(self) -> KnownArchives | None:
        """The archives that the master knows; None if it is of a kind that has none."""
        try:
            body = (await self._ask(ListArchives())).body
        except NotSupportedError:
            return None
        return (await off_loop(_read_archives, body)).known

    async def log_end(self) -> int:
        """The end of the master's log."""
        table = java_json.decode((await self._ask(GetRuntime())).body, KeyValueTable).table
        text = table.get(_LOG_END, "")
        if not text.isdecimal():
            raise ProtocolError(f"{_LOG_END} is {text[:60]!r}, not a number")
        return int(text)

    async def _pages(
        self,
        known: DataVersion,
        ask: Callable[[int, str], Header],
        read: Callable[[Command], _Page[T]],
    ) -> list[_Page[T]]:
        """All pages of a table, of one version; none if that is the one that is known."""
        pages: list[_Page[T]] = []
        names: set[str] = set()
        restarts = 0
        for _ in range(PAGES_MAX):
            version = _version_text(pages[0].table.data_version) if pages else ""
            page = await off_loop(read, await self._ask(ask(len(names), version)))
            if page.table.data_version == known:
                return []
            if pages and page.table.data_version != pages[0].table.data_version:
                pages, names = [], set()
                restarts += 1
                if restarts > RESTARTS_MAX:
                    break
                continue
            before = len(names)
            pages.append(page)
            names |= page.names
            if page.completes(len(names), is_growing=len(names) > before):
                return pages
        raise ProtocolError("it changed during each attempt to read it")

    async def _ask(self, asked: Header) -> Command:
        return await self.rpc.call(self.address, asked, timeout_ms=self.timeout_ms)


class _Versioned(Protocol):
    data_version: DataVersion


S = TypeVar("S")
T = TypeVar("T", bound=_Versioned)


@dataclass(frozen=True, slots=True)
class _Page(Generic[T]):
    """A page of a table, or all of it."""

    table: T
    names: frozenset[str]
    # Of the whole table; None if this is all of it.
    total: int | None
    entries_max: int

    def completes(self, count: int, *, is_growing: bool) -> bool:
        """Whether a table with `count` entries is complete now; raises if it can never be."""
        total = count if self.total is None else max(count, self.total)
        if total > self.entries_max:
            raise ProtocolError(f"it has {total} entries, of at most {self.entries_max}")
        if count < total and not is_growing:
            raise ProtocolError(f"a page had nothing new after {count} of {total} entries")
        return count >= total


def _topics_page(reply: Command) -> _Page[TopicConfigTable]:
    table = _decode(reply.body, TopicConfigTable)
    total = ListTopicConfigsReply.decode(reply.fields).topic_count
    return _Page(table, frozenset(table.topics), total, TOPICS_MAX)


def _groups_page(reply: Command) -> _Page[GroupConfigTable]:
    table = _decode(reply.body, GroupConfigTable)
    total = ListGroupConfigsReply.decode(reply.fields).group_count
    return _Page(table, frozenset(table.groups), total, GROUPS_MAX)


def _check_not_empty(table: Sized) -> None:
    # Every broker has entries of its own, so this is no table of a broker.
    if not table:
        raise ProtocolError("it is empty")


class _OffsetsBody(OffsetsDocument, frozen=True, kw_only=True):
    """Offsets that must be there: other JSON would pass for a broker without any."""

    offsets: dict[str, dict[JavaInt, JavaLong]] = msgspec.field(name="offsetTable")


class _DelayBody(DelayDocument, frozen=True, kw_only=True):
    offsets: dict[JavaInt, JavaLong] = msgspec.field(name="offsetTable")


def read_offsets(body: bytes) -> OffsetsDocument:
    """Read committed offsets; takes seconds if there are hundreds of thousands."""
    document = _decode(body, _OffsetsBody)
    for queues in document.offsets.values():
        # Compat: Go's clients commit -1 for a queue in which they consumed nothing, and Java keeps it.
        for queue_id in [queue_id for queue_id, offset in queues.items() if offset < 0]:
            del queues[queue_id]
        if queues and min(queues) < 0:
            raise ProtocolError(f"{min(queues)} is not a valid queue id")
    return document


def _read_store_tables(body: bytes) -> StoreTables:
    try:
        return msgspec.json.decode(body, type=StoreTables)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"these are no tables of a store: {error}") from error


def _read_archives(body: bytes) -> ArchiveList:
    try:
        return msgspec.json.decode(body, type=ArchiveList)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"these are no archives: {error}") from error


def _decode(body: bytes, shape: type[S]) -> S:
    return java_json.decode(body, shape, tolerated_bytes_max=_BODY_BYTES_MAX)


def _version_text(version: DataVersion) -> str:
    return java_json.encode(version).decode()
