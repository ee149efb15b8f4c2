"""A slave: finds its master, copies its log and tables, shows the same.

Threads: the event loop's; the log is copied in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from orbitmq.broker.replication.group_view import read_standing
from orbitmq.broker.replication.log_comparison import Difference, LogComparison
from orbitmq.broker.replication.log_receiver import LogReceiver
from orbitmq.broker.replication.table_changes import changed_tables
from orbitmq.disk import off_loop
from orbitmq.errors import CopyError, NeedsOrbitError, OrbitError, StateError
from orbitmq.lifecycle import OwnedTasks, Periodic
from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.replication import (
    FollowMaster,
    FollowReply,
    MasterSeen,
    ReadStanding,
)
from orbitmq.protocol.requests.statistics import MasterLink

if TYPE_CHECKING:
    from orbitmq.broker.replication.config import ReplicationConfig
    from orbitmq.broker.replication.epoch import EpochFile
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.registration import RegisterBroker, RegisterBrokerReply
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.rpc_client import RpcClient

log = logging.getLogger(__name__)

_TABLES_INTERVAL_MS: Final = 3000
_SEARCH_INTERVAL_MS: Final = 2000
_FOLLOW_WAIT_MS: Final = 1000
_RETRY_MS: Final = 500
_LOOK_MS: Final = 100
_CHECK_TIMEOUT_S: Final = 60
# Tables that change again and again are copied this much later, and in a fifth of the time at most.
_TABLES_PAUSE_MS: Final = 20
_TABLES_PAUSE_FACTOR: Final = 4
_NEEDED_BY: Final = "a slave, which keeps what its master keeps"


class Following:
    """Keeps this slave a copy of its master."""

    def __init__(  # noqa: PLR0913  # by name, from one place
        self,
        *,
        store: MessageStore,
        rpc: RpcClient,
        identity: Callable[[], RegisterBroker],
        is_flushed: bool,
        log_file_bytes: int,
        register: Callable[[], Awaitable[None]],
        copy_tables: Callable[[str, Set[str] | None], Awaitable[None]],
        leave_epoch: Callable[[], Awaitable[None]],
        epochs: EpochFile,
        cut: Callable[[PhysicalOffset, int], Awaitable[None]],
        config: ReplicationConfig,
        clock: Clock,
    ) -> None:
        """Prepare to follow.

        `register` asks the name servers who the master is, which arrives at `found`. `copy_tables`
        copies the master's topics, groups and progress, or some tables only. `leave_epoch` drops
        what clients committed here under an older master, and marks of archives beyond the log:
        other messages may be at these offsets. `cut` cuts the log from an offset on, under the
        epoch of the master, and starts the broker again.
        """
        self._store = store
        self._rpc = rpc
        self._identity = identity
        self._is_flushed = is_flushed
        self._log_file_bytes = log_file_bytes
        self._register = register
        self._copy_tables = copy_tables
        self._leave_epoch = leave_epoch
        self._epochs = epochs
        self._cut = cut
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # The master's address for requests, and the one for its log; empty if nobody knows. Replaced
        # as one: the log must be copied from the master that it was compared with.
        self._found = ("", config.master_address)
        self._log_comparison = LogComparison(store=store, rpc=rpc)
        self._seen: MasterSeen | None = None
        # From where on this log is not that of the master; None if it is, or nobody has compared.
        self.differs_from: PhysicalOffset | None = None
        # Whether the master is one of RocketMQ's, as far as it was asked.
        self.master_is_official = False
        # The start of the master's log, when it was last asked.
        self._kept_from = PhysicalOffset(0)
        store.protect_log_from(lambda: self._kept_from, _NEEDED_BY)
        self._receiver = LogReceiver(
            store=store,
            address=self._log_address,
            prepare=self._prepare,
            config=config,
            clock=clock,
        )
        self._copying = asyncio.Lock()
        # The state of the master's tables as it was last heard of.
        self._tables = ""
        self._tables_changed = asyncio.Event()
        self._tasks = OwnedTasks()
        self._periodics = [
            Periodic("tables of the master", _TABLES_INTERVAL_MS, self._copy_all, clock),
            Periodic("search for the master", _SEARCH_INTERVAL_MS, self._search, clock),
        ]

    @property
    def master(self) -> str:
        """The master's address; empty if nobody knows it."""
        return self._found[0]

    def _log_address(self) -> str:
        master, log_address = self._found
        return log_address if master else ""

    @property
    def seen(self) -> MasterSeen | None:
        """What the master said last; None if it said nothing yet."""
        return self._seen

    async def master_answers(self) -> bool:
        """Whether the master still answers requests, as a master."""
        try:
            try:
                asked = ReadStanding(broker_name=self._identity().broker_name)
                return (await read_standing(self._rpc, self.master, asked)).is_master
            except NeedsOrbitError:
                await self._log_comparison.range_of(self.master)
                return True
        except OrbitError:
            return False

    @property
    def is_linked(self) -> bool:
        """Whether the log arrives."""
        return self._receiver.link is not None

    @property
    def failure(self) -> str:
        """Why the log does not arrive; empty if it does, or nobody knows the master."""
        return self._receiver.failure

    @property
    def status(self) -> MasterLink:
        """The link to the master, as tools show it."""
        link = self._receiver.link
        return MasterLink(
            address=link.address if link is not None else None,
            failure=self.failure or None,
            end_offset=self._store.log_end,
            flushed_offset=self._store.flushed,
        )

    def start(self) -> None:
        """Begin to follow."""
        self._receiver.start()
        self._tasks.start(self._follow(), name="what the master shows")
        self._tasks.start(self._copy_changes(), name="changed tables")
        for periodic in self._periodics:
            periodic.start()

    async def stop(self) -> None:
        """Stop following."""
        for periodic in self._periodics:
            await periodic.stop()
        await self._tasks.cancel()
        await off_loop(self._receiver.stop)

    def found(self, reply: RegisterBrokerReply) -> None:
        """Note what a name server says of the master."""
        master, log_address = reply.master_address or "", reply.ha_address or ""
        if not master or (not log_address and not self._config.master_address):
            return
        log_address = self._config.master_address or log_address
        if (master, log_address) != self._found:
            log.info("master found address=%s log=%s", master, log_address)
            self._found = master, log_address
            self._receiver.reconnect()

    # --- tables ---------------------------------------------------------------------------------

    async def _copy_all(self) -> None:
        await self._copy(None)

    async def _copy(self, tables: Set[str] | None) -> None:
        # A link says that the logs are the same: another broker's tables could delete topics here.
        async with self._copying:
            if self.is_linked:
                await self._copy_tables(self.master, tables)

    async def copy_tables(self, tables: Set[str] | None = None) -> None:
        """Copy the tables now, or some of them; the next round reports what is wrong."""
        with suppress(OrbitError):
            await self._copy(tables)

    async def _copy_changes(self) -> None:
        """Copy tables as soon as the master says that they changed."""
        copied = ""
        while True:
            await self._tables_changed.wait()
            self._tables_changed.clear()
            began_ms = self._clock.monotonic_ms()
            copied, known = self._tables, copied
            try:
                await self.copy_tables(changed_tables(known, copied))
            except Exception:
                # The border: one failure must not end the copying of all later changes.
                log.exception("changed tables not copied")
            took_ms = self._clock.monotonic_ms() - began_ms
            await self._clock.sleep_ms(max(_TABLES_PAUSE_MS, _TABLES_PAUSE_FACTOR * took_ms))

    def _note_tables(self, state: str) -> None:
        if state != self._tables:
            self._tables = state
            # Older masters do not tell.
            if state:
                self._tables_changed.set()

    async def _search(self) -> None:
        if not self.is_linked:
            await self._register()

    # --- the log --------------------------------------------------------------------------------

    def _prepare(self, log_address: str) -> None:
        """Check that this log is a part of the master's; in the receiver's thread."""
        found = master, known_address = self._found
        checking = asyncio.run_coroutine_threadsafe(self._check(master), self._loop)
        try:
            checking.result(_CHECK_TIMEOUT_S)
        except TimeoutError:
            checking.cancel()
            raise CopyError(
                f"the master {master} took over {_CHECK_TIMEOUT_S} s to compare the logs"
            ) from None
        if self._found != found or known_address != log_address:
            raise StateError(f"the master {master} was replaced while the logs were compared")

    async def _check(self, master: str) -> None:
        try:
            reply = await self._ask(master, wait_ms=0)
        except NeedsOrbitError:
            reply = None
        if reply is not None:
            self._check_reply(master, reply)
        epoch = reply.epoch if reply is not None else 0
        if epoch < self._epochs.epoch:
            raise CopyError(
                f"the master {master} is at epoch {epoch}, and this slave at {self._epochs.epoch}: "
                "another master has replaced it",
                hint="start the master of the larger epoch, or promote a slave",
            )
        difference = await self._log_comparison.find(master)
        self.differs_from = difference.at if difference is not None else None
        if epoch > self._epochs.epoch:
            await self._enter_epoch(master, epoch, difference)
        elif difference is not None:
            raise difference.error()

    async def _enter_epoch(self, master: str, epoch: int, difference: Difference | None) -> None:
        """Become a copy of a master that was promoted since this broker last followed one."""
        if difference is not None:
            await self._cut(difference.at, epoch)
            raise CopyError(
                f"{difference.bytes} bytes from {difference.at} on, which the master {master} of "
                f"epoch {epoch} does not have, are saved and cut"
            )
        asked = ReadStanding(broker_name=self._identity().broker_name)
        standing = await read_standing(self._rpc, master, asked)
        if standing.epoch != epoch:
            raise CopyError(f"the master {master} has changed its epoch")
        await self._leave_epoch()
        # The limit that an older master gave may be within a record of the new one's log.
        await off_loop(self._store.limit_visible, self._store.visible)
        await self._epochs.adopt(standing.epochs)

    def _check_reply(self, master: str, reply: FollowReply) -> None:
        if not reply.is_master:
            raise CopyError(f"the broker {master} is no master any more")
        if reply.log_file_bytes != self._log_file_bytes:
            raise CopyError(
                f"the master {master} has log files of {reply.log_file_bytes} bytes, and this slave "
                f"of {self._log_file_bytes}",
                hint="set mappedFileSizeCommitLog to the master's value, and empty this store",
            )

    # --- what is visible ------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Show what is visible at the master, and no more."""
        last_link = None
        while True:
            link = self._receiver.link
            if link is None or not self.master:
                await self._clock.sleep_ms(_LOOK_MS)
                continue
            if link is not last_link:
                last_link = link
                self._tables = ""
                self._tasks.start(self.copy_tables(), name="tables of a new link")
            try:
                reply = await self._ask(self.master, wait_ms=_FOLLOW_WAIT_MS)
                limit: PhysicalOffset | None = PhysicalOffset(reply.visible)
                epoch: int = reply.epoch
                self._kept_from = PhysicalOffset(reply.log_start)
                self._note_tables(reply.tables)
            except NeedsOrbitError:
                # Java's master shows what it has stored, and a slave what it has copied.
                limit, epoch = None, self._epochs.epoch
                await self._ask_for_start()
            except OrbitError:
                await self._clock.sleep_ms(_RETRY_MS)
                continue
            is_its_own = self._receiver.link is link and link.address == self._log_address()
            if is_its_own and epoch == self._epochs.epoch:
                await off_loop(self._store.limit_visible, limit)
            else:
                await self._clock.sleep_ms(_LOOK_MS)
            if limit is None:
                await self._clock.sleep_ms(_SEARCH_INTERVAL_MS)

    async def _ask_for_start(self) -> None:
        with suppress(OrbitError):
            start, _ = await self._log_comparison.range_of(self.master)
            self._kept_from = PhysicalOffset(start)

    async def _ask(self, master: str, *, wait_ms: int) -> FollowReply:
        identity = self._identity()
        link = self._receiver.link
        asked = FollowMaster(
            broker_name=identity.broker_name,
            broker_id=identity.broker_id,
            broker_address=identity.broker_address,
            link=link.local if link is not None else "",
            is_flushed=self._is_flushed,
            visible=Long(self._store.visible),
            wait_ms=wait_ms,
            epoch=Long(self._epochs.epoch),
            tables=self._tables,
        )
        try:
            reply = await self._rpc.call(master, asked)
        except NeedsOrbitError:
            self.master_is_official = True
            raise
        self.master_is_official = False
        answer = FollowReply.decode(reply.fields)
        if answer.is_master:
            before = self._seen
            most = before.slaves if before is not None and before.address == master else 0
            self._seen = MasterSeen(
                address=master,
                role=answer.role,
                log_end=answer.log_end,
                visible=answer.visible,
                heard_ms=self._clock.now_ms(),
                slaves_awaited=answer.slaves_awaited,
                slaves=max(answer.slaves, most),
                permission=answer.permission,
            )
        return answer
