"""The broker as a whole: assembles, starts and stops its parts."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from orbitmq.broker.admission import Admission
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.confirmations import Confirmations
from orbitmq.broker.delay.delivery import DelayDelivery
from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.broker.delivery.long_polls import LongPolls
from orbitmq.broker.delivery.pulls import Pulls
from orbitmq.broker.delivery.rounds import Rounds
from orbitmq.broker.exactly_once.assembly import ExactlyOnce
from orbitmq.broker.filter_servers import SCAN_INTERVAL_MS, FilterServers
from orbitmq.broker.groups.committed_offsets import CommittedOffsets
from orbitmq.broker.groups.group_table import GroupTable
from orbitmq.broker.groups.lock_file import LockFile
from orbitmq.broker.groups.members import Members
from orbitmq.broker.groups.notices import MemberNotices
from orbitmq.broker.groups.queue_locks import QueueLocks
from orbitmq.broker.handlers.answers import AnswerRequests
from orbitmq.broker.handlers.clients import ClientListener, ClientRequests
from orbitmq.broker.handlers.committed_offsets import CommittedOffsetRequests
from orbitmq.broker.handlers.filter_servers import FilterServerRequests
from orbitmq.broker.handlers.following import FollowRequests
from orbitmq.broker.handlers.groups import GroupRequests
from orbitmq.broker.handlers.locks import LockRequests
from orbitmq.broker.handlers.maintenance import MaintenanceRequests
from orbitmq.broker.handlers.options import BrokerOptionRequests
from orbitmq.broker.handlers.pending import PendingRequests
from orbitmq.broker.handlers.promotion import PromotionRequests
from orbitmq.broker.handlers.pulling import PullRequests
from orbitmq.broker.handlers.queries import QueryRequests
from orbitmq.broker.handlers.queue_offsets import QueueOffsetRequests
from orbitmq.broker.handlers.recalls import RecallRequests
from orbitmq.broker.handlers.relays import RelayRequests
from orbitmq.broker.handlers.replication import ReplicationRequests
from orbitmq.broker.handlers.retries import RetryRequests
from orbitmq.broker.handlers.sending import SendRequests
from orbitmq.broker.handlers.staged_writes import StagedWriteRequests
from orbitmq.broker.handlers.topics import TopicRequests
from orbitmq.broker.handlers.transactions import TransactionRequests
from orbitmq.broker.hot_path import HotPath
from orbitmq.broker.lost_tables import recovered_topics, report_lost, topics_not_copied
from orbitmq.broker.plain_topics import PlainTopics
from orbitmq.broker.ports import FAST_LANE, REPLICATION, check_port, find_port
from orbitmq.broker.refusals import code_of
from orbitmq.broker.registration import Registration
from orbitmq.broker.replication.after_cut import lower_after_cut
from orbitmq.broker.replication.assembly import Replication, check_role
from orbitmq.broker.replication.config import BrokerRole, ReplicationConfig
from orbitmq.broker.replication.epoch import ChangedRole, EpochFile, Role
from orbitmq.broker.replication.following import Following
from orbitmq.broker.replication.metadata import MetadataCopy
from orbitmq.broker.replication.read_only_requests import read_only_handlers
from orbitmq.broker.replication.succession import Succession
from orbitmq.broker.replication.timer_file import read_master_timers
from orbitmq.broker.reporting import Reporting
from orbitmq.broker.send_replies import SendReplies
from orbitmq.broker.statistics.config import MetricsConfig
from orbitmq.broker.statistics.counters import Counters
from orbitmq.broker.statistics.group_progress import ProgressMeter
from orbitmq.broker.statistics.metrics import Tables
from orbitmq.broker.statistics.prometheus import Prometheus
from orbitmq.broker.statistics.samples import SAMPLE_INTERVAL_MS, Samples
from orbitmq.broker.storing import Storing
from orbitmq.broker.timers.pending_messages import PendingMessages
from orbitmq.broker.timers.timer_delivery import TimerDelivery
from orbitmq.broker.topics.attributes import is_kept_in_memory
from orbitmq.broker.topics.system_topics import system_topics
from orbitmq.broker.topics.topic_table import TopicTable
from orbitmq.broker.transactions.assembly import Transactions
from orbitmq.broker.transactions.preparing import Preparing
from orbitmq.clock import SystemClock
from orbitmq.disk import off_loop
from orbitmq.errors import OrbitError
from orbitmq.lifecycle import OwnedTasks, Periodic, RunOnce
from orbitmq.model import property_names
from orbitmq.model.queues import PhysicalOffset
from orbitmq.model.unique_ids import UniqueIds
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.registration import RegisterBroker
from orbitmq.settings import ServerRole, Settings
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.delay_levels import parse_delay_levels
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.cut_intent import ask_for_cut
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.retention import RetentionConfig
from orbitmq.store.timers.pending import PendingTimers
from orbitmq.store.timers.timers import Timers
from orbitmq.transport.addresses import format_address, parse_addresses
from orbitmq.transport.config import ServerConfig, TlsServerConfig
from orbitmq.transport.local_machine import address_of, local_address, reserved_ports
from orbitmq.transport.rpc_client import RpcClient
from orbitmq.transport.rpc_server import RpcServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orbitmq.broker.replication.group_view import Successor
    from orbitmq.clock import Clock
    from orbitmq.model.versions import DataVersion
    from orbitmq.protocol.requests.registration import RegisterBrokerReply
    from orbitmq.settings import Changed
    from orbitmq.store.log.draft import Draft
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 10911
OPTIONS_FILE: Final = "broker.properties"
_EXPIRY_INTERVAL_MS: Final = 100
_ALL_ADDRESSES: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  # compared, not bound to


def load_settings(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Settings:
    """Load the options of a broker from all sources."""
    return Settings.load(
        BrokerConfig,
        MetricsConfig,
        StoreConfig,
        RetentionConfig,
        ReplicationConfig,
        ServerConfig(listen_port=DEFAULT_PORT),
        TlsServerConfig,
        file=file,
        environment=environment,
        flags=flags,
        role=ServerRole.BROKER,
    )


class HandlerFamily(Protocol):
    """The handlers of one kind of requests."""

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""


class Part(Protocol):
    """Something that runs while the broker does."""

    async def start(self) -> None:
        """Start it."""

    async def stop(self) -> None:
        """Stop it."""


class Broker:
    """One broker: a master, or a slave that copies one."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        config_file: Path | None = None,
        advertised_port: int | None = None,
        configured: Role | None = None,
    ) -> None:
        """Prepare a broker.

        Its role is that of the settings; `configured` is the one in the configuration, if a
        promotion gave it another.
        """
        self._settings = settings
        self._clock = clock or SystemClock()
        self._state = RunOnce("the broker")
        self._is_loaded = self._is_started = False
        self._opened = AsyncExitStack()
        self._early_parts: list[Part] = []
        # Set once this broker shall stop, and another one start over the same store: its role
        # changes, or its log is cut.
        self.restart_wanted = asyncio.Event()
        self._role_changes = OwnedTasks()
        server = settings.of(ServerConfig)
        self.port = server.listen_port or find_port(server.bind_address)
        check_port(self.port)
        # Differs from the port listened on if there is a proxy in front of the broker.
        self._advertised_port = advertised_port or self.port
        config = settings.of(BrokerConfig)
        replication = settings.of(ReplicationConfig)
        check_role(replication.role, config.broker_id)
        self._role = Role(config.broker_id, replication.role)
        self._configured = configured or self._role
        self._replication_port = replication.port or self.port + REPLICATION
        # Fails on a mistake before anything is opened.
        parse_addresses(config.name_servers)
        self.address = config.advertised_address or _advertised_host(server.bind_address)
        folder = settings.of(StoreConfig).root.expanduser() / "config"
        modes = settings.of(StoreConfig).modes
        self._options_file = config_file or (
            config.config_path.expanduser() if config.config_path.name else folder / OPTIONS_FILE
        )
        self.topics = TopicTable(
            folder,
            clock=self._clock,
            system_topics=system_topics(
                config.cluster_name,
                config.broker_name,
                template_queues=config.topic_queues if config.create_topics else None,
                cluster_topic_open=config.cluster_topic,
                broker_topic_open=config.broker_topic,
                trace_topic=config.trace_topic_name if config.trace_topic else None,
            ),
            auto_create=config.create_topics,
            modes=modes,
        )
        self.groups = GroupTable(
            folder, clock=self._clock, auto_create=config.create_groups, modes=modes
        )
        self.offsets = CommittedOffsets(folder, clock=self._clock, modes=modes)
        self.members = Members(
            clock=self._clock,
            reject_differing=config.reject_inconsistent,
            silence_ms=config.member_silence_ms_max,
            bytes_max=config.members_bytes_max,
        )
        self.locks = QueueLocks(clock=self._clock)
        self._notices = MemberNotices(config=self._config, groups=self.groups)
        self._lock_file = LockFile(
            settings.of(StoreConfig).root.expanduser() / OWN_FOLDER, self.locks, modes
        )
        self.epochs = EpochFile(settings.of(StoreConfig).root.expanduser(), modes)
        self.counters = Counters()
        self.samples = Samples(
            self.counters,
            is_system=self.topics.is_system,
            knows_topic=self.topics.get,
            knows_group=self.groups.get,
            clock=self._clock,
        )
        self.prometheus: Prometheus | None = None
        self._delay_progress = DelayProgress(folder, clock=self._clock, modes=modes)
        self._plain_topics = PlainTopics(
            self.topics, self.counters, permission=lambda: self._config().permission
        )

    @property
    def advertised(self) -> str:
        """The address that clients connect to."""
        return format_address((self.address, self._advertised_port))

    @property
    def identity(self) -> RegisterBroker:
        """What name servers are told of this broker."""
        return self._identity()

    def is_serving_as(self, role: str) -> bool:
        """Whether this broker runs in a role, and is not about to change it."""
        return self._is_started and self._role.role == role and not self.restart_wanted.is_set()

    def _config(self) -> BrokerConfig:
        return self._settings.of(BrokerConfig)

    def _store_config(self) -> StoreConfig:
        return self._settings.of(StoreConfig)

    def _replication_config(self) -> ReplicationConfig:
        return self._settings.of(ReplicationConfig)

    # --- starting and stopping ----------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, load the tables, listen, and register."""
        self._state.begin()
        try:
            await self._start()
        except BaseException:
            await self._opened.aclose()
            raise

    async def _start(self) -> None:
        config = self._config()
        await self._open()
        await self._load_tables()
        self._assemble(config)
        is_master = not self.replication.is_slave
        early = await self._opened.enter_async_context(AsyncExitStack())
        if is_master:
            # Readers of the last master may have seen the whole log of the promoted one.
            if self.replication.waits_for_slaves and not self._is_newly_promoted:
                await self._wait_for_slaves(early)
            await self.replication.begin()
            await self._load_services()
            for server in self._servers:
                server.serve(self._handlers)
        self._is_loaded = True
        # What is started here stops in reverse order, even if the start fails halfway.
        closing = self._opened
        closing.push_async_callback(self.offsets.save)
        if is_master:
            closing.push_async_callback(self._transactions.stop)
        closing.push_async_callback(self._reads.all_done)
        for server in self._servers:
            await self._start_part(server)
        if self.prometheus is not None:
            await self._start_part(self.prometheus)
        self._flush_timeouts.start()
        closing.push_async_callback(self._flush_timeouts.stop)
        # Sends that wait to be safe are answered before connections close.
        closing.push_async_callback(self._confirmations.all_done)
        if is_master:
            self._start_deliveries()
        for periodic in self._periodics:
            periodic.start()
            closing.push_async_callback(periodic.stop)
        closing.callback(self._stop_accepting)
        await self._start_part(self._rpc)
        self._admission.is_open = True
        if self.replication.following is not None:
            self.replication.following.start()
            closing.push_async_callback(self.replication.following.stop)
        else:
            self._exactly_once.deciding.start()
            closing.push_async_callback(self._exactly_once.deciding.stop)
        await self._start_part(self.registration)
        # What was started early stops with the rest.
        early.pop_all()
        self._is_started = True
        log.info(
            "broker started name=%s id=%d role=%s cluster=%s address=%s store=%s",
            config.broker_name,
            config.broker_id,
            self._replication_config().role,
            config.cluster_name,
            self.advertised,
            self._settings.of(StoreConfig).root,
        )

    async def _start_part(self, part: Part) -> None:
        """Start a part unless it runs already; from here on it stops with the broker."""
        self._opened.push_async_callback(part.stop)
        if part not in self._early_parts:
            await part.start()

    async def _wait_for_slaves(self, early: AsyncExitStack) -> None:
        """Let slaves find this sync master, and have the end of its log, before it takes messages.

        It is read meanwhile, up to what was visible before.
        """
        parts: list[Part] = [*self._servers, self._rpc, self.registration]
        for part in parts:
            early.push_async_callback(part.stop)
            self._early_parts.append(part)
            await part.start()
        await self.replication.wait_for_slaves()

    async def _open(self) -> None:
        """Open the store, and let slaves connect."""
        server = self._settings.of(ServerConfig)
        with ExitStack() as reservation:
            if not server.listen_port:
                # While the store is opened, another broker that looks for a port must not take
                # these.
                reservation.enter_context(
                    reserved_ports(
                        server.bind_address,
                        self.port,
                        self.port + FAST_LANE,
                        self._replication_port,
                    )
                )
            self.store = await self._open_store_off_loop()
            self._opened.push_async_callback(off_loop, self.store.close)
        await self._load_role()
        self.replication = Replication(
            config=self._replication_config,
            store=self.store,
            bind_address=server.bind_address,
            port=self._replication_port,
            clock=self._clock,
        )
        self._opened.push_async_callback(self.replication.stop)
        self.replication.start()

    async def _load_role(self) -> None:
        """Read the epoch, and keep the role unless it is the configured one."""
        await self.epochs.load()
        if self.epochs.role(self._configured) != self._role:
            await self._save_role(self._role)
        elif self._role == self._configured:
            await self.epochs.take_role(None)

    async def _save_role(self, role: Role) -> None:
        changed = ChangedRole(role, self._configured, self._clock.now_ms())
        await self.epochs.take_role(changed)

    async def _load_tables(self) -> None:
        queues = self.store.queues()
        await self.topics.load(partial(recovered_topics, queues, self.store.memory_topics))
        if not self.replication.is_slave:
            await self._add_topics_not_copied()
        for table in (self.groups, self.offsets, self._delay_progress, self._lock_file):
            await table.load()
        report_lost(
            queues=queues,
            topics=self.topics.topics,
            groups=self.groups,
            offsets=self.offsets,
            delays=self._delay_progress,
        )
        self.offsets.note_commits(on=self.replication.is_slave)
        await lower_after_cut(self.store, self.offsets, self._delay_progress)
        if self.replication.is_slave:
            return
        for name in {*self.topics.topics, *self.store.memory_topics}:
            self._apply_storage(name)
        self.offsets.lower_to_ends(partial(self.store.end_of, committed=False))

    @property
    def _is_newly_promoted(self) -> bool:
        """Whether this master was promoted, and has stored nothing since."""
        return self.epochs.began_at.get(self.epochs.epoch) == self.store.log_end

    async def _add_topics_not_copied(self) -> None:
        """List the topics of messages that a promoted slave copied without their tables.

        Before the first message of its epoch only: what is missing later was deleted. And before
        slaves can ask: they delete what their master does not have.
        """
        if not self._is_newly_promoted:
            return
        queues = await off_loop(self.store.appended_queues)
        try:
            await self.topics.add_recovered(
                topics_not_copied(queues, self.store.memory_topics, self.topics.topics)
            )
        except OrbitError as error:
            log.error("topics not recovered reason=%s", error)  # noqa: TRY400  # says it all

    async def _load_services(self) -> None:
        """Load what only a master does: exactly-once writes, timers, transactions."""
        await self._exactly_once.load()
        has_timers = self._store_config().timers_enable
        folder = self._store_config().root.expanduser() / OWN_FOLDER
        official = await off_loop(read_master_timers, folder)
        copied = official.progress if official is not None else None
        await self._timers.open(copied, is_on=has_timers)
        if has_timers:
            await self._pending.recover()
        await self._transactions.load()

    def _start_deliveries(self) -> None:
        """Start to deliver delayed messages and timers."""
        self._delay.start()
        self._opened.push_async_callback(self._delay.stop)
        if self._store_config().timers_enable:
            self._timers.start()
        self._opened.push_async_callback(self._timers.stop)

    async def stop(self) -> None:
        """Unregister, finish requests in flight, and close the store."""
        if not await self._state.begin_stop():
            return
        try:
            await self._opened.aclose()
        finally:
            self._state.end_stop()
            log.info("broker stopped name=%s", self._config().broker_name)

    async def abort(self) -> None:
        """Drop all connections at once, as a crash would; `stop` is still needed.

        The broker does not unregister then.
        """
        self.registration.abandon()
        for server in self._servers:
            await server.abort()

    def _stop_accepting(self) -> None:
        self._admission.is_open = False
        self._long_polls.close()

    # --- assembly -----------------------------------------------------------------------------

    async def _open_store_off_loop(self) -> MessageStore:
        opening = asyncio.ensure_future(off_loop(self._open_store))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread continues regardless, and the store it opens must be closed.
            await off_loop((await opening).close)
            raise

    def _open_store(self) -> MessageStore:
        store = MessageStore(
            self._settings.of(StoreConfig),
            retention=self._settings.of(RetentionConfig),
            clock=self._clock,
            store_host=(address_of(self.address), self.port),
            # What readers may see is up to the master, or to the slaves.
            held=self._replication_config().role is not BrokerRole.ASYNC_MASTER,
            is_copy=self._replication_config().role is BrokerRole.SLAVE,
        )
        # What parts of the broker still need is known once each has read its state.
        store.protect_log_from(
            lambda: store.log_end if self._is_loaded else PhysicalOffset(0),
            "the broker, which is starting",
        )
        return store

    def _assemble(self, config: BrokerConfig) -> None:
        # Each step uses the parts made by earlier ones.
        self._make_storing(config)
        self._make_pulls()
        self._make_links(config)
        reporting = self._reporting()
        self.prometheus = reporting.prometheus()
        clients = ClientRequests(
            config=self._config,
            topics=self.topics,
            groups=self.groups,
            members=self.members,
            locks=self.locks,
            notices=self._notices,
            clock=self._clock,
            creates_groups=not self.replication.is_slave,
        )
        handlers: dict[int, Handler] = {}
        for family in (*self._families(), clients, reporting.requests()):
            handlers.update(family.by_code())
        # Until it is the master in full, a broker is only read.
        self._handlers = handlers
        self._make_servers(config, read_only_handlers(handlers, self.replication.why), clients)
        self._make_periodics(config, clients)

    def _make_storing(self, config: BrokerConfig) -> None:
        """Make the parts that store messages and confirm them."""
        store_config = self._settings.of(StoreConfig)
        self._delay_levels_ms = parse_delay_levels(store_config.delay_levels)
        self._broker_properties = {
            property_names.REGION: config.region,
            property_names.TRACE_ON: "true" if config.trace_on else "false",
            property_names.CLUSTER: config.cluster_name,
        }
        self._confirmations = Confirmations(
            flushed=self.store.flushed,
            is_fenced=lambda: self.store.is_fenced,
            timeout_ms=store_config.flush_timeout_ms,
            clock=self._clock,
            is_sync=store_config.flush_mode is FlushMode.SYNC,
            slaves=self.replication.gate,
        )
        self._admission = Admission(
            config=self._config,
            confirmations=self._confirmations,
            clock=self._clock,
            by_role=self.replication.refusal,
        )
        self._confirmations.on_released = self.counters.put_waits.note_round
        self.store.on_flushed(self._confirmations.flushed)
        if self.replication.gate is not None:
            self.replication.gate.on_change = self._confirmations.copies_changed
        self._storing = Storing(
            self.store, self._confirmations, lacks_copies=self.replication.lacks_copies
        )
        self._delay = DelayDelivery(
            store=self.store,
            progress=self._delay_progress,
            levels_ms=self._delay_levels_ms,
            on_delivered=self._count_delivered,
            save_interval_ms=config.delay_flush_interval_ms,
            clock=self._clock,
        )
        self._transactions = Transactions(
            config=self._config,
            hours_max=lambda: self._settings.of(RetentionConfig).reserved_hours,
            store=self.store,
            confirmations=self._confirmations,
            storing=self._storing,
            topics=self.topics,
            members=self.members,
            offsets=self.offsets,
            on_committed=self._count_delivered,
            own_folder=store_config.root.expanduser() / OWN_FOLDER,
            modes=store_config.modes,
            clock=self._clock,
        )
        timers = Timers(
            self.store,
            store_config.root.expanduser(),
            file_bytes=store_config.timer_log_file_bytes,
            modes=store_config.modes,
            clock=self._clock,
        )
        self._timers = TimerDelivery(
            store=self.store,
            timers=timers,
            on_delivered=self._count_delivered,
            save_interval_ms=store_config.timer_flush_interval_ms,
            clock=self._clock,
        )
        self._pending = PendingMessages(
            store=self.store,
            storing=self._storing,
            delivery=self._timers,
            pending=PendingTimers(self.store, timers, store_config.query_count_max),
            config=self._store_config,
            broker_name=lambda: self._config().broker_name,
            on_delivered=self._count_delivered,
            clock=self._clock,
        )

    def _make_pulls(self) -> None:
        """Make the parts that answer pulls, at once or when messages arrive."""
        self._reads = OwnedTasks()
        rounds = Rounds(self._clock)
        self._pulls = Pulls(
            config=self._config,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            members=self.members,
            offsets=self.offsets,
            counters=self.counters,
            tasks=self._reads,
            rounds=rounds,
            clock=self._clock,
            is_slave=lambda: self.replication.is_slave,
            master_is_alive=lambda: self.replication.master_is_alive,
        )
        self._long_polls = self._pulls.long_polls = LongPolls(
            answer=self._pulls.answer_held,
            release=self._pulls.release,
            rounds=rounds,
            held_max=lambda: self._config().long_polls_max,
            clock=self._clock,
        )
        self.store.on_visible(self._long_polls.wake)

    def _make_links(self, config: BrokerConfig) -> None:
        """Make the parts that talk to other servers."""
        self._rpc = RpcClient(clock=self._clock)
        self.registration = Registration(
            rpc=self._rpc,
            name_servers=self._name_servers,
            identity=self._identity,
            topics=lambda: (self.topics.topics, self._data_version()),
            permission=lambda: self._config().permission,
            filter_servers=lambda: self.filter_servers.addresses,
            on_registered=self._registered,
            check_succession=self._check_succession,
            may_hide_successor=lambda: self._succession.may_hide_successor,
            interval_ms=config.register_interval_ms,
            timeout_ms=config.register_timeout_ms,
            clock=self._clock,
        )
        self._succession = Succession(
            rpc=self._rpc,
            name_servers=self._name_servers,
            identity=self._identity,
            epochs=self.epochs,
            on_replaced=self._replaced,
            on_rival=self._rival_found,
        )
        self._opened.push_async_callback(self._succession.stop)
        self._opened.push_async_callback(self._role_changes.all_done)
        self.filter_servers = FilterServers(
            clock=self._clock, on_change=self.registration.filter_servers_changed
        )
        self.topics.listen(self._topics_changed)
        self._settings.on_change(self._options_changed)
        if self.replication.is_slave:
            self.replication.following = self._make_following()
        self._exactly_once = ExactlyOnce(
            broker_name=self._name,
            name_servers=self._name_servers,
            store=self.store,
            storing=self._storing,
            rpc=self._rpc,
            topics=self.topics,
            on_moved=self._count_delivered,
            batch_write_hours=lambda: self._config().batch_write_hours,
            clock=self._clock,
        )

    def _make_following(self) -> Following:
        store_config = self._store_config()
        return Following(
            store=self.store,
            rpc=self._rpc,
            identity=self._identity,
            is_flushed=store_config.flush_mode is FlushMode.SYNC,
            log_file_bytes=store_config.log_file_bytes,
            register=self.registration.register_all,
            copy_tables=MetadataCopy(
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                delays=self._delay_progress,
                delete_topic=self._delete_topic,
                log_end=lambda: self.store.log_end,
                rpc=self._rpc,
                folder=store_config.root.expanduser() / OWN_FOLDER,
                clock=self._clock,
                modes=store_config.modes,
                keep_locks=self._lock_file.follow,
                keeps_timers=self._follows_official_master,
            ).copy_from,
            forget_commits=lambda: self.offsets.forget_commits(self.offsets.commits_here),
            epochs=self.epochs,
            cut=self._cut,
            config=self._replication_config(),
            clock=self._clock,
        )

    def _follows_official_master(self) -> bool:
        following = self.replication.following
        return following is not None and following.master_is_official

    async def _cut(self, at: PhysicalOffset, epoch: int) -> None:
        """Have the log cut when this store is opened again, which is soon."""
        config = self._store_config()
        await off_loop(ask_for_cut, config.root.expanduser(), at, epoch, config.modes)
        self.restart_wanted.set()

    # --- who is master ------------------------------------------------------------------------

    def _data_version(self) -> DataVersion:
        """The version of the topics, with the epoch: name servers prefer the larger one."""
        return msgspec.structs.replace(self.topics.data_version, state_version=self.epochs.epoch)

    async def _check_succession(self) -> None:
        if not self.replication.is_slave:
            await self._succession.check()

    def _heard_of_epoch(self, address: str, epoch: int) -> None:
        if not self.replication.is_slave:
            self._succession.heard(address, epoch)

    def _replaced(self, successor: Successor) -> None:
        """Acknowledge nothing more, and start again as a slave of the new master."""
        where = f" at {successor.address}" if successor.address else ""
        self.replication.end_reign(
            f"this master was replaced: the one{where} has epoch {successor.epoch}, this one "
            f"{self.epochs.epoch}"
        )
        # Compat: a name server of RocketMQ 4 would forget the new master, which has the same id.
        self.registration.abandon()
        self._role_changes.start(self._step_down(successor.broker_id), name="stepping down")

    async def _step_down(self, broker_id: int) -> None:
        await self._save_role(Role(broker_id, BrokerRole.SLAVE))
        self.restart_wanted.set()

    def _rival_found(self, address: str) -> None:
        self.replication.end_reign(
            f"this master and the one at {address} both have epoch {self.epochs.epoch}; stop one "
            "of them, and promote the other's slave or start it as a slave",
            has_rival=True,
        )
        # Name servers show the last one that reports: the one that does not know of this one yet.
        self.registration.abandon()

    async def _delete_topic(self, topic: str, end: int) -> None:
        """Delete what is left of a topic that the master deleted when its log ended there."""
        self.offsets.delete_topic(topic)
        await off_loop(partial(self.store.delete_topic, topic, until=PhysicalOffset(end)))

    def _registered(self, reply: RegisterBrokerReply) -> None:
        if self.replication.following is not None:
            self.replication.following.found(reply)

    def _reporting(self) -> Reporting:
        """Make the parts that report on the broker."""
        return Reporting(
            settings=self._settings,
            address=self.advertised,
            store=self.store,
            tables=Tables(
                topics=self.topics,
                groups=self.groups,
                members=self.members,
                offsets=self.offsets,
                progress=ProgressMeter(
                    broker_name=self._name,
                    store=self.store,
                    members=self.members,
                    offsets=self.offsets,
                    clock=self._clock,
                ),
            ),
            counters=self.counters,
            samples=self.samples,
            confirmations=self._confirmations,
            long_polls=self._long_polls,
            reads=self._reads,
            delay_offsets=lambda: self._delay.offsets,
            transactions=self._transactions.halves.figures,
            timers_behind=lambda: self._timers.behind,
            replication=self.replication.state,
            replication_figures=self.replication.figures,
            clock=self._clock,
        )

    def _families(self) -> tuple[HandlerFamily, ...]:
        """Make the handler families, except those of clients and of statistics."""
        sending = SendRequests(
            config=self._config,
            store_config=self._store_config,
            refusal=self._admission.refusal,
            topics=self.topics,
            changes_reported=self.registration.changes_reported,
            groups=self.groups,
            locks=self.locks,
            storing=self._storing,
            preparing=Preparing(
                config=self._config,
                halves=self._transactions.halves,
                recent=self._transactions.recent,
                storing=self._storing,
            ),
            delay_levels=len(self._delay_levels_ms),
            broker_properties=self._broker_properties,
            unique_ids=UniqueIds(address_of(self.address), self._clock.now_ms),
            counters=self.counters,
            clock=self._clock,
        )
        return (
            sending,
            AnswerRequests(
                config=self._config,
                refusal=self._admission.refusal,
                address=lambda: self.advertised,
                members=self.members,
                sending=sending,
                clock=self._clock,
            ),
            StagedWriteRequests(
                refusal=self._admission.refusal,
                sending=sending,
                storing=self._storing,
                deciding=self._exactly_once.deciding,
                moving=self._exactly_once.moving,
                states=self._exactly_once.states,
                known=self._exactly_once.known,
                counters=self.counters,
            ),
            TransactionRequests(
                ending=self._transactions.ending,
                open_transactions=self._transactions.open_transactions,
                resuming=self._transactions.resuming,
                is_open=lambda: self._admission.is_open,
            ),
            RecallRequests(
                config=self._config,
                store_config=self._store_config,
                refusal=self._admission.refusal,
                topics=self.topics,
                storing=self._storing,
                delivery=self._timers,
                clock=self._clock,
            ),
            PendingRequests(
                pending=self._pending,
                is_enabled=lambda: self._store_config().timers_enable,
                refusal=self._admission.refusal,
            ),
            PullRequests(self._pulls),
            QueryRequests(store=self.store, topics=self.topics, members=self.members),
            QueueOffsetRequests(self.store),
            CommittedOffsetRequests(
                config=self._config,
                store=self.store,
                topics=self.topics,
                groups=self.groups,
                members=self.members,
                offsets=self.offsets,
                on_reset=self._long_polls.wake,
                is_slave=self._pulls.is_slave,
            ),
            RetryRequests(
                config=self._config,
                store=self.store,
                storing=self._storing,
                topics=self.topics,
                groups=self.groups,
                delay_levels=len(self._delay_levels_ms),
                counters=self.counters,
            ),
            LockRequests(
                broker_name=self._config().broker_name,
                topics=self.topics,
                groups=self.groups,
                members=self.members,
                locks=self.locks,
                notices=self._notices,
                file=self._lock_file,
            ),
            TopicRequests(
                config=self._config,
                store=self.store,
                topics=self.topics,
                offsets=self.offsets,
                members=self.members,
                registration=self.registration,
                on_deleted=self._long_polls.wake,
                puts_per_second=self.samples.puts_per_second,
            ),
            GroupRequests(groups=self.groups, offsets=self.offsets),
            ReplicationRequests(
                delays=self._delay_progress,
                delay_offsets=lambda: self._delay.offsets,
                timers=self._timers,
            ),
            FilterServerRequests(config=self._config, filter_servers=self.filter_servers),
            RelayRequests(
                broker_name=self._name,
                store=self.store,
                topics=self.topics,
                groups=self.groups,
                members=self.members,
            ),
            MaintenanceRequests(store=self.store, topics=self.topics),
            FollowRequests(
                broker_name=self._name,
                is_master=lambda: (
                    not self.replication.is_slave and self.replication.replaced is None
                ),
                role=self._role.role,
                slaves_awaited=lambda: self._replication_config().slaves_awaited,
                epoch=lambda: self.epochs.epoch,
                on_claim=self._heard_of_epoch,
                store=self.store,
                copies=self.replication.copies,
                log_file_bytes=self._store_config().log_file_bytes,
                clock=self._clock,
            ),
            PromotionRequests(
                identity=self._identity,
                store=self.store,
                replication=self.replication,
                epochs=self.epochs,
                configured=self._configured,
                on_claim=self._heard_of_epoch,
                restart=self.restart_wanted.set,
                clock=self._clock,
            ),
            BrokerOptionRequests(
                self._settings,
                file=self._options_file,
                register=self._report_permission,
                clock=self._clock,
            ),
        )

    async def _report_permission(self) -> None:
        # Name servers replace what they know of a topic only for a new version.
        await self.topics.raise_version()
        await self.registration.register_all()

    def _make_servers(
        self, config: BrokerConfig, handlers: dict[int, Handler], clients: ClientRequests
    ) -> None:
        make_processor = partial(
            HotPath,
            store=self.store,
            confirmations=self._confirmations,
            pulls=self._pulls,
            replies=SendReplies(region=config.region, trace_on=config.trace_on),
            plain_topic=self._plain_topics.find,
            accepts_sends=self._admission.accepts,
            broker_properties=self._broker_properties,
            clock=self._clock,
        )
        listener = ClientListener(clients, self.filter_servers)
        self._servers = [
            RpcServer(
                handlers,
                config=replace(self._settings.of(ServerConfig), listen_port=port),
                tls=self._settings.of(TlsServerConfig),
                clock=self._clock,
                listener=listener,
                code_of=code_of,
                make_processor=make_processor,
            )
            for port in (self.port, self.port + FAST_LANE)
        ]

    def _make_periodics(self, config: BrokerConfig, clients: ClientRequests) -> None:
        self._flush_timeouts = Periodic(
            "flush timeouts", _EXPIRY_INTERVAL_MS, self._confirmations.expire, self._clock
        )
        self._periodics = [
            Periodic("long polls", _EXPIRY_INTERVAL_MS, self._long_polls.expire, self._clock),
            Periodic("clients", config.member_scan_interval_ms, clients.expire, self._clock),
            Periodic("filter servers", SCAN_INTERVAL_MS, self.filter_servers.expire, self._clock),
            Periodic("offsets", config.offsets_flush_interval_ms, self.offsets.save, self._clock),
            Periodic("topics", config.offsets_flush_interval_ms, self.topics.save, self._clock),
            Periodic("groups", config.offsets_flush_interval_ms, self.groups.save, self._clock),
            Periodic("samples", SAMPLE_INTERVAL_MS, self.samples.sample, self._clock),
        ]
        if not self.replication.is_slave:
            self._periodics += [
                *self._exactly_once.upkeep,
                self._transactions.saving,
                self._transactions.checking,
            ]
        if self.replication.gate is not None:
            self._periodics.append(
                Periodic("slaves", _EXPIRY_INTERVAL_MS, self.replication.gate.check, self._clock)
            )

    # --- callbacks ----------------------------------------------------------------------------

    def _name(self) -> str:
        return self._config().broker_name

    def _name_servers(self) -> list[str]:
        return parse_addresses(self._config().name_servers)

    def _identity(self) -> RegisterBroker:
        config = self._config()
        replication = config.replication_address or self.address
        return RegisterBroker(
            broker_name=config.broker_name,
            broker_address=self.advertised,
            cluster_name=config.cluster_name,
            ha_address=format_address((replication, self._replication_port)),
            broker_id=Long(config.broker_id),
            enable_acting_master=False,
        )

    def _apply_storage(self, name: str) -> None:
        """Keep a topic in memory or on disk, according to its attributes."""
        topic = self.topics.get(name)
        wants_memory = topic is not None and is_kept_in_memory(topic)
        is_in_memory = name in self.store.memory_topics
        if wants_memory and not is_in_memory:
            self.store.keep_in_memory(name)
        elif is_in_memory and not wants_memory:
            self.store.keep_on_disk(name)

    def _topics_changed(self, names: frozenset[str]) -> None:
        self._plain_topics.forget(names)
        for name in names if not self.replication.is_slave else ():
            self._apply_storage(name)
        changed = [topic for name in names if (topic := self.topics.get(name)) is not None]
        if changed and self._admission.is_open:
            self.registration.topics_changed(changed)

    def _options_changed(self, _: Changed) -> None:
        # The hot path caches the broker's permission with each topic.
        self._plain_topics.forget_all()
        self.store.change_options(
            store=self._settings.of(StoreConfig), retention=self._settings.of(RetentionConfig)
        )

    def _count_delivered(self, draft: Draft) -> None:
        self.counters.put(draft.topic).add(1, len(draft.body))


def _advertised_host(bind_address: str) -> str:
    """The address for clients, if none is configured."""
    return local_address() if bind_address in _ALL_ADDRESSES else bind_address
