"""A slave's tables follow its master's, and so does what it knows of progress.

Topics and groups are replaced as a whole when their version differs from the master's. Committed
offsets become the master's, too. What clients committed at the slave itself is handed to the master
first, unless the master has as much.

Owners of queue locks are kept, so that a promotion, as a restart, gives no lock away. What of the
master's store is not in its log is kept, too: see `store_copy`.

Progress of delays, timers and transactions says what need not be delivered again. A slave that is
promoted relies on it, so it must not be ahead of the slave's log: it is taken over once the log has
reached where the master's ended when the progress was known. For the same reason a topic that the
master deleted is deleted once the log has what the master stored in it before.

Threads: the event loop's.
Crash: each table is replaced on disk before it is seen, as a whole; the next round does the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.broker.replication.master_tables import MasterTables, read_offsets
from orbitmq.broker.replication.table_changes import ARCHIVES, GROUPS, LOCKS, TOPICS
from orbitmq.broker.replication.timer_file import (
    MasterTimers,
    read_master_timers,
    write_master_timers,
)
from orbitmq.disk import PRIVATE, FileModes, off_loop
from orbitmq.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    MetadataCopyError,
    OrbitError,
    RemoteError,
)
from orbitmq.model.names import TRANSACTION_GROUP
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.offsets import CommitOffset

if TYPE_CHECKING:
    from orbitmq.broker.archives.archive_table import ArchiveTable
    from orbitmq.broker.delay.progress import DelayDocument, DelayProgress
    from orbitmq.broker.groups.committed_offsets import (
        CommittedOffsets,
        GroupQueue,
        OffsetsDocument,
    )
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.clock import Clock
    from orbitmq.model.archives import KnownArchives
    from orbitmq.protocol.requests.groups import GroupConfigTable
    from orbitmq.protocol.requests.metadata import StoreTables, TimerCheckpoint
    from orbitmq.protocol.requests.topics import TopicConfigTable
    from orbitmq.transport.rpc_client import RpcClient

log = logging.getLogger(__name__)

T = TypeVar("T")

_CALL_TIMEOUT_MS: Final = 10_000.0
# Commits that are on their way to the master at a time, and how long a round hands them over.
_COMMITS_IN_FLIGHT: Final = 64
_HAND_OVER_MS_MAX: Final = 10_000.0
# How long the log may take to get what a deletion waits for, and how often that is looked at.
_DELETION_WAIT_MS: Final = 500.0
_LOOK_MS: Final = 10.0
_OF_TRANSACTIONS: Final = f"@{TRANSACTION_GROUP}"

_Queues = dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """What a master had delivered; all of that is in its log below an end."""

    log_end: int
    delays: DelayDocument | None
    timers: TimerCheckpoint | None
    # Committed offsets of the broker's own group, by the keys of the file.
    transactions: dict[str, _Queues] | None


@dataclass(slots=True)
class _Fetched:
    """What one round got from the master; None for what it did not get, or did not need."""

    topics: TopicConfigTable | None = None
    groups: GroupConfigTable | None = None
    offsets_body: bytes | None = None
    offsets: OffsetsDocument | None = None
    transactions: dict[str, _Queues] | None = None
    delays: DelayDocument | None = None
    timers: TimerCheckpoint | None = None
    locks: bytes | None = None
    archives: KnownArchives | None = None
    # Whether the master has answered; one of RocketMQ's has no such table.
    has_archives: bool = False
    store: StoreTables | None = None
    # Where topics were deleted here, before the master was asked for those tables.
    deleted_here: Mapping[str, int] = field(default_factory=dict)
    log_end: int | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class MetadataCopy:
    """Copies the tables of a master to those of its slave."""

    topics: TopicTable
    groups: GroupTable
    offsets: CommittedOffsets
    delays: DelayProgress
    archives: ArchiveTable
    # Deletes the queues and offsets of a topic that the master deleted, up to an end of its log;
    # may be repeated.
    delete_topic: Callable[[str, int], Awaitable[None]]
    # The end of the slave's log.
    log_end: Callable[[], int]
    # Keeps the owners of queue locks.
    keep_locks: Callable[[bytes], Awaitable[None]]
    # Where in the log topics were deleted here.
    deleted_topics: Callable[[], Mapping[str, int]]
    # Keeps what of the master's store is not in its log; also takes where topics were deleted here
    # before the master was asked; blocks.
    keep_store_tables: Callable[[StoreTables, Mapping[str, int]], None]
    rpc: RpcClient
    # For the progress of the timers.
    folder: Path
    clock: Clock
    modes: FileModes = PRIVATE
    # What our own masters delivered is known by its copies in the log, and RocketMQ's is not.
    keeps_timers: Callable[[], bool] = lambda: True
    _address: str = field(default="", init=False)
    # The progress that waits for the slave's log.
    _waiting: _Progress | None = field(default=None, init=False)
    # Topics that the master deleted, and a log end above their last message there.
    _deletions: dict[str, int | None] = field(default_factory=dict, init=False)
    # Commits that were not handed over yet, and the offset that the master had then.
    _unsent: dict[GroupQueue, tuple[int, int | None]] = field(default_factory=dict, init=False)
    # The master's offsets that the slave has; None if it lacks a part of them.
    _followed: bytes | None = field(default=None, init=False)

    async def copy_from(self, master_address: str, tables: Set[str] | None = None) -> None:
        """Copy everything once, or only those of `table_changes` that changed just now.

        Raises MetadataCopyError for what could not be copied.
        """
        if master_address != self._address:
            self._begin_with(master_address)
            tables = None
        problems: dict[str, OrbitError] = {}
        if tables is None:
            await self._copy_all(problems)
        else:
            await self._copy_some(tables, problems)
        if problems:
            raise MetadataCopyError(master_address, problems)

    async def _copy_some(self, tables: Set[str], problems: dict[str, OrbitError]) -> None:
        fetched = await self._fetch_tables(tables, problems)
        if fetched.topics is not None:
            master = MasterTables(self.rpc, self._address, _CALL_TIMEOUT_MS)
            await self._ask_store(fetched, problems)
            fetched.log_end = await self._ask("log end", master.log_end(), problems)
            await self._until_log_reaches(fetched)
        await self._keep_tables(fetched, problems)
        await self._keep_store(fetched, problems)

    async def _until_log_reaches(self, fetched: _Fetched) -> None:
        """Wait a moment for the log that a deletion of a topic waits for."""
        assert fetched.topics is not None
        gone = self.topics.topics.keys() - fetched.topics.topics.keys()
        if fetched.log_end is None or all(map(self.topics.is_system, gone)):
            return
        end_ms = self.clock.monotonic_ms() + _DELETION_WAIT_MS
        while self.log_end() < fetched.log_end and self.clock.monotonic_ms() < end_ms:
            await self.clock.sleep_ms(_LOOK_MS)

    async def _copy_all(self, problems: dict[str, OrbitError]) -> None:
        fetched = await self._fetch(problems)
        progress = self._safe_progress(fetched)
        await self._keep_tables(fetched, problems)
        if fetched.offsets_body is not None:
            await self._try("offsets", self._follow_offsets(fetched, progress, problems), problems)
        if progress is not None and progress.delays is not None:
            await self._try("delay progress", self.delays.follow(progress.delays), problems)
        if progress is not None and progress.timers is not None and self.keeps_timers():
            timers = MasterTimers(progress.timers, progress.log_end)
            await self._try("timer progress", off_loop(self._keep, timers), problems)
        await self._keep_store(fetched, problems)

    async def _keep_store(self, fetched: _Fetched, problems: dict[str, OrbitError]) -> None:
        if fetched.store is not None:
            keeping = off_loop(self.keep_store_tables, fetched.store, fetched.deleted_here)
            await self._try("tables of the store", keeping, problems)

    async def _keep_tables(self, fetched: _Fetched, problems: dict[str, OrbitError]) -> None:
        if fetched.topics is not None:
            await self._try(TOPICS, self._follow_topics(fetched), problems)
        if fetched.groups is not None:
            table = fetched.groups
            following = self.groups.follow(table.groups, table.forbidden, table.data_version)
            await self._try(GROUPS, following, problems)
        if fetched.locks is not None:
            await self._try(LOCKS, self.keep_locks(fetched.locks), problems)
        if fetched.has_archives:
            await self._try(ARCHIVES, self.archives.follow(fetched.archives), problems)

    def _begin_with(self, address: str) -> None:
        """Begin with another master, whose log and offsets may differ."""
        self._address = address
        self._waiting = self._followed = None
        self._deletions, self._unsent = {}, {}

    # --- fetching -----------------------------------------------------------------------------

    async def _fetch(self, problems: dict[str, OrbitError]) -> _Fetched:
        master = MasterTables(self.rpc, self._address, _CALL_TIMEOUT_MS)
        got = await self._fetch_tables({TOPICS, GROUPS, LOCKS, ARCHIVES}, problems)
        got.offsets_body = await self._ask("offsets", master.offsets(), problems)
        await self._try("offsets", self._read_offsets(got), problems)
        got.delays = await self._ask("delay progress", master.delays(), problems)
        got.timers = await self._ask("timer progress", master.timers(), problems)
        await self._ask_store(got, problems)
        # Invariant: asked last, so that it is above everything that the others refer to.
        got.log_end = await self._ask("log end", master.log_end(), problems)
        return got

    async def _fetch_tables(self, tables: Set[str], problems: dict[str, OrbitError]) -> _Fetched:
        master = MasterTables(self.rpc, self._address, _CALL_TIMEOUT_MS)
        got = _Fetched()
        if TOPICS in tables:
            got.topics = await self._ask(TOPICS, master.topics(self.topics.data_version), problems)
        if GROUPS in tables:
            got.groups = await self._ask(GROUPS, master.groups(self.groups.data_version), problems)
        if LOCKS in tables:
            got.locks = await self._ask(LOCKS, master.locks(), problems)
        if ARCHIVES in tables:
            got.archives = await self._ask(ARCHIVES, master.archives(), problems)
            got.has_archives = ARCHIVES not in problems
        return got

    async def _ask_store(self, got: _Fetched, problems: dict[str, OrbitError]) -> None:
        master = MasterTables(self.rpc, self._address, _CALL_TIMEOUT_MS)
        got.deleted_here = self.deleted_topics()
        got.store = await self._ask("tables of the store", master.of_store(), problems)

    async def _read_offsets(self, got: _Fetched) -> None:
        if got.offsets_body is None:
            return
        body, got.offsets_body = got.offsets_body, None
        if body == self._followed and not self.offsets.commits_here:
            return
        document = await off_loop(read_offsets, body)
        got.transactions = {
            key: document.offsets.pop(key)
            for key in [key for key in document.offsets if key.endswith(_OF_TRANSACTIONS)]
        }
        got.offsets_body, got.offsets = body, document

    async def _ask(
        self, table: str, asking: Awaitable[T], problems: dict[str, OrbitError]
    ) -> T | None:
        """Wait for an answer; raises if the master is gone, so that nobody asks it for more."""
        try:
            return await asking
        except OrbitError as error:
            problems[table] = error
            if _is_gone(error):
                raise MetadataCopyError(self._address, problems) from error
            return None

    async def _try(
        self, table: str, work: Awaitable[None], problems: dict[str, OrbitError]
    ) -> None:
        try:
            await work
        except OrbitError as error:
            problems[table] = error

    # --- topics -------------------------------------------------------------------------------

    async def _follow_topics(self, fetched: _Fetched) -> None:
        table = fetched.topics
        assert table is not None
        self.topics.check_copied(table.topics)
        gone = {
            name: topic
            for name, topic in self.topics.topics.items()
            if name not in table.topics and not self.topics.is_system(name)
        }
        self._deletions = {name: self._deletion_of(name, fetched) for name in gone}
        for name, end in self._deletions.items():
            if end is not None and end <= self.log_end():
                # Before it leaves the table: after a crash in between, the next round deletes again.
                await self.delete_topic(name, end)
                del gone[name]
                log.info("topic deleted, as at the master topic=%s", name)
        await self.topics.follow(table.topics | gone, None if gone else table.data_version)

    def _deletion_of(self, topic: str, fetched: _Fetched) -> int | None:
        """Where in the log a topic was deleted, which may have been created again since."""
        if fetched.store is not None:
            # One that is not known any more was below the start of the log.
            return fetched.store.deleted.get(topic, fetched.store.log_start)
        # Official masters do not tell: it was before they were asked.
        known = self._deletions.get(topic)
        return known if known is not None else fetched.log_end

    # --- committed offsets --------------------------------------------------------------------

    async def _follow_offsets(
        self, fetched: _Fetched, progress: _Progress | None, problems: dict[str, OrbitError]
    ) -> None:
        document, transactions = fetched.offsets, fetched.transactions
        if document is None or transactions is None:
            return
        await self._hand_over_commits(document.offsets, problems)
        safe = progress.transactions if progress is not None else None
        if safe is None:
            safe = self._own_transactions()
        await self.offsets.follow(document.offsets | safe, document.data_version)
        self._followed = fetched.offsets_body if safe is transactions else None

    def _own_transactions(self) -> dict[str, _Queues]:
        return {
            f"{topic}{_OF_TRANSACTIONS}": dict(self.offsets.queues(TRANSACTION_GROUP, topic))
            for topic in self.offsets.topics_of(TRANSACTION_GROUP)
        }

    async def _hand_over_commits(
        self, master: dict[str, _Queues], problems: dict[str, OrbitError]
    ) -> None:
        """Give the master what clients committed here, and note that in its table."""
        known: dict[GroupQueue, int] = {}
        missing: dict[GroupQueue, int] = {}
        for queue, offset in self.offsets.commits_here.items():
            theirs = _offset_in(master, queue)
            if (theirs is not None and theirs >= offset) or self._was_lowered(
                queue, theirs, offset
            ):
                known[queue] = offset
            else:
                missing[queue] = offset
        self.offsets.forget_commits(known)
        end_ms = self.clock.monotonic_ms() + _HAND_OVER_MS_MAX
        waiting = iter(missing.items())
        while batch := list(islice(waiting, _COMMITS_IN_FLIGHT)):
            outcomes = await asyncio.gather(*(self._commit(*commit) for commit in batch))
            for (queue, offset), error in zip(batch, outcomes, strict=True):
                self._note_outcome(queue, offset, error, master)
            failed = next((error for error in outcomes if error and error.retryable), None)
            if failed is not None:
                problems["commits of clients"] = failed
            if failed is not None or self.clock.monotonic_ms() > end_ms:
                break
        self._unsent = {
            queue: (offset, _offset_in(master, queue))
            for queue, offset in self.offsets.commits_here.items()
            if missing.get(queue) == offset
        }

    def _was_lowered(self, queue: GroupQueue, theirs: int | None, offset: int) -> bool:
        """Whether the master's offset fell after a commit here: a reset, which must not be undone."""
        before = self._unsent.get(queue)
        if before is None or before[0] != offset or before[1] is None:
            return False
        return theirs is None or theirs < before[1]

    async def _commit(self, queue: GroupQueue, offset: int) -> OrbitError | None:
        """Commit an offset at the master; returns the error of a commit that failed.

        The group may have committed more there since its table was fetched.
        """
        group, topic, queue_id = queue
        asked = CommitOffset(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            commit_offset=Long(offset),
            only_forward=True,
        )
        try:
            await self.rpc.call(self._address, asked, timeout_ms=_CALL_TIMEOUT_MS)
        except OrbitError as error:
            return error
        return None

    def _note_outcome(
        self, queue: GroupQueue, offset: int, error: OrbitError | None, master: dict[str, _Queues]
    ) -> None:
        if error is not None and error.retryable:
            return
        # One that the master refuses now must not be handed over later: other messages may be
        # at its offset then.
        self.offsets.forget_commits({queue: offset})
        group, topic, queue_id = queue
        if error is None:
            master.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        else:
            log.warning(
                "commit refused by the master group=%s topic=%s queue=%d offset=%d reason=%s",
                group, topic, queue_id, offset, error,
            )  # fmt: skip

    # --- progress -----------------------------------------------------------------------------

    def _safe_progress(self, fetched: _Fetched) -> _Progress | None:
        """The newest progress that this slave's log has reached; None if there is no new one."""
        own_end = self.log_end()
        waiting, self._waiting = self._waiting, None
        if fetched.log_end is None:
            self._waiting = waiting
            return None
        newest = _Progress(
            log_end=fetched.log_end,
            delays=fetched.delays,
            timers=fetched.timers,
            transactions=fetched.transactions,
        )
        if newest.log_end <= own_end:
            return newest
        if waiting is not None and waiting.log_end > own_end:
            self._waiting = waiting
            return None
        self._waiting = newest
        return waiting

    def _keep(self, timers: MasterTimers) -> None:
        kept = read_master_timers(self.folder)
        # With the same progress, the lower log end holds as well.
        if kept is None or kept.checkpoint != timers.checkpoint:
            write_master_timers(self.folder, timers, self.modes)


def _offset_in(master: Mapping[str, _Queues], queue: GroupQueue) -> int | None:
    group, topic, queue_id = queue
    return master.get(f"{topic}@{group}", {}).get(queue_id)


def _is_gone(error: OrbitError) -> bool:
    """Whether a master does not answer, or not now: one that stops refuses everything."""
    if isinstance(error, RemoteError):
        return error.code == ResponseCode.SYSTEM_BUSY
    return isinstance(error, ConnectError | ConnectionLostError | CallTimeoutError)
