"""What a running broker consists of, made for its role, and connected.

`broker/app.py` opens the store before, and starts and stops the parts; `broker/serving.py` lists what
requests they answer.

Threads: the event loop's.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from orbitmq.broker.admission import Admission
from orbitmq.broker.archives.archive_gate import ArchiveGate
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.confirmations import Confirmations
from orbitmq.broker.delay.delivery import DelayDelivery
from orbitmq.broker.delivery.long_polls import LongPolls
from orbitmq.broker.delivery.pulls import Pulls
from orbitmq.broker.delivery.rounds import Rounds
from orbitmq.broker.exactly_once.assembly import ExactlyOnce
from orbitmq.broker.filter_servers import SCAN_INTERVAL_MS, FilterServers
from orbitmq.broker.groups.notices import MemberNotices
from orbitmq.broker.handlers.clients import ClientRequests
from orbitmq.broker.plain_topics import PlainTopics
from orbitmq.broker.registration import Registration
from orbitmq.broker.replication.after_cut import ends_of
from orbitmq.broker.replication.config import ReplicationConfig
from orbitmq.broker.replication.following import Following
from orbitmq.broker.replication.metadata import MetadataCopy
from orbitmq.broker.replication.store_copy import StoreCopy
from orbitmq.broker.reporting import Reporting
from orbitmq.broker.statistics.counters import Counters
from orbitmq.broker.statistics.group_progress import ProgressMeter
from orbitmq.broker.statistics.metrics import Tables
from orbitmq.broker.statistics.samples import SAMPLE_INTERVAL_MS, Samples
from orbitmq.broker.storing import Storing
from orbitmq.broker.timers.pending_messages import PendingMessages
from orbitmq.broker.timers.timer_delivery import TimerDelivery
from orbitmq.broker.transactions.assembly import Transactions
from orbitmq.disk import off_loop
from orbitmq.lifecycle import OwnedTasks, Periodic
from orbitmq.model import property_names
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.delay_levels import parse_delay_levels
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.retention import RetentionConfig
from orbitmq.store.timers.pending import PendingTimers
from orbitmq.store.timers.timers import Timers
from orbitmq.transport.rpc_client import RpcClient

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.broker.place import Place
    from orbitmq.broker.replication.assembly import Replication
    from orbitmq.broker.replication.reign import Reign
    from orbitmq.broker.tables import BrokerTables
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.registration import RegisterBrokerReply
    from orbitmq.settings import Changed, Settings
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore

_EXPIRY_INTERVAL_MS: Final = 100


class Parts:
    """What stores, delivers, reports and answers in one broker."""

    def __init__(
        self,
        *,
        settings: Settings,
        place: Place,
        tables: BrokerTables,
        store: MessageStore,
        replication: Replication,
        reign: Reign,
        options_file: Path,
        clock: Clock,
    ) -> None:
        """Make all parts; none is started."""
        self.settings = settings
        self.place = place
        self.tables = tables
        self.store = store
        self.replication = replication
        self.reign = reign
        self.options_file = options_file
        self.clock = clock
        self.notices = MemberNotices(config=self.config, groups=tables.groups)
        self.counters = Counters()
        self.samples = Samples(
            self.counters,
            is_system=tables.topics.is_system,
            knows_topic=tables.topics.get,
            knows_group=tables.groups.get,
            clock=clock,
        )
        self.plain_topics = PlainTopics(
            tables.topics, self.counters, permission=lambda: self.config().permission
        )
        self.archive_gate = ArchiveGate(tables.archives, store)
        store.gate_retention(self.archive_gate)
        # Each step uses the parts made by earlier ones.
        config = self.config()
        self._make_storing(config)
        self._make_pulls()
        self._make_links(config)
        self.reporting = self._reporting()
        self.prometheus = self.reporting.prometheus()
        self.clients = ClientRequests(
            config=self.config,
            topics=tables.topics,
            groups=tables.groups,
            members=tables.members,
            locks=tables.locks,
            notices=self.notices,
            clock=clock,
            creates_groups=not replication.is_slave,
        )
        self._make_periodics(config)

    def config(self) -> BrokerConfig:
        """The options of the broker, as they are now."""
        return self.settings.of(BrokerConfig)

    def store_config(self) -> StoreConfig:
        """The options of its store, as they are now."""
        return self.settings.of(StoreConfig)

    def replication_config(self) -> ReplicationConfig:
        """The options of its replication, as they are now."""
        return self.settings.of(ReplicationConfig)

    def _make_storing(self, config: BrokerConfig) -> None:
        """Make the parts that store messages and confirm them."""
        store_config = self.settings.of(StoreConfig)
        self.delay_levels_ms = parse_delay_levels(store_config.delay_levels)
        self.broker_properties = {
            property_names.REGION: config.region,
            property_names.TRACE_ON: "true" if config.trace_on else "false",
            property_names.CLUSTER: config.cluster_name,
        }
        self.confirmations = Confirmations(
            flushed=self.store.flushed,
            is_fenced=lambda: self.store.is_fenced,
            timeout_ms=store_config.flush_timeout_ms,
            clock=self.clock,
            is_sync=store_config.flush_mode is FlushMode.SYNC,
            slaves=self.replication.gate,
        )
        self.admission = Admission(
            config=self.config,
            confirmations=self.confirmations,
            clock=self.clock,
            by_role=self.replication.refusal,
        )
        self.confirmations.on_released = self.counters.put_waits.note_round
        self.store.on_flushed(self.confirmations.flushed)
        if self.replication.gate is not None:
            self.replication.gate.on_change = self.confirmations.copies_changed
        self.storing = Storing(
            self.store, self.confirmations, lacks_copies=self.replication.lacks_copies
        )
        self.delay = DelayDelivery(
            store=self.store,
            progress=self.tables.delays,
            levels_ms=self.delay_levels_ms,
            on_delivered=self.count_delivered,
            save_interval_ms=config.delay_flush_interval_ms,
            clock=self.clock,
        )
        self.transactions = Transactions(
            config=self.config,
            hours_max=lambda: self.settings.of(RetentionConfig).reserved_hours,
            store=self.store,
            confirmations=self.confirmations,
            storing=self.storing,
            topics=self.tables.topics,
            members=self.tables.members,
            offsets=self.tables.offsets,
            on_committed=self.count_delivered,
            own_folder=store_config.root.expanduser() / OWN_FOLDER,
            modes=store_config.modes,
            clock=self.clock,
        )
        timers = Timers(
            self.store,
            store_config.root.expanduser(),
            file_bytes=store_config.timer_log_file_bytes,
            modes=store_config.modes,
            clock=self.clock,
        )
        self.timers = TimerDelivery(
            store=self.store,
            timers=timers,
            on_delivered=self.count_delivered,
            save_interval_ms=store_config.timer_flush_interval_ms,
            clock=self.clock,
        )
        self.pending = PendingMessages(
            store=self.store,
            storing=self.storing,
            delivery=self.timers,
            pending=PendingTimers(self.store, timers, store_config.query_count_max),
            config=self.store_config,
            broker_name=lambda: self.config().broker_name,
            on_delivered=self.count_delivered,
            clock=self.clock,
        )

    def _make_pulls(self) -> None:
        """Make the parts that answer pulls, at once or when messages arrive."""
        self.reads = OwnedTasks()
        rounds = Rounds(self.clock)
        self.pulls = Pulls(
            config=self.config,
            store=self.store,
            topics=self.tables.topics,
            groups=self.tables.groups,
            members=self.tables.members,
            offsets=self.tables.offsets,
            counters=self.counters,
            tasks=self.reads,
            rounds=rounds,
            clock=self.clock,
            positions=self.tables.positions,
            is_slave=lambda: self.replication.is_slave,
            master_is_alive=lambda: self.replication.master_is_alive,
        )
        self.long_polls = self.pulls.long_polls = LongPolls(
            answer=self.pulls.answer_held,
            release=self.pulls.release,
            rounds=rounds,
            held_max=lambda: self.config().long_polls_max,
            clock=self.clock,
        )
        self.store.on_visible(self.long_polls.wake)

    def _make_links(self, config: BrokerConfig) -> None:
        """Make the parts that talk to other servers."""
        self.rpc = RpcClient(clock=self.clock)
        self.registration = Registration(
            rpc=self.rpc,
            name_servers=self.place.name_servers,
            identity=self.place.identity,
            topics=lambda: (
                self.tables.topics.topics,
                self.reign.with_epoch(self.tables.topics.data_version),
            ),
            permission=lambda: self.config().permission,
            filter_servers=lambda: self.filter_servers.addresses,
            on_registered=self._registered,
            check_succession=self.reign.check,
            may_hide_successor=lambda: self.reign.succession.may_hide_successor,
            interval_ms=config.register_interval_ms,
            timeout_ms=config.register_timeout_ms,
            clock=self.clock,
        )
        self.reign.begin(
            replication=self.replication,
            registration=self.registration,
            rpc=self.rpc,
            name_servers=self.place.name_servers,
            identity=self.place.identity,
        )
        self.filter_servers = FilterServers(
            clock=self.clock, on_change=self.registration.filter_servers_changed
        )
        self.tables.topics.listen(self._topics_changed)
        self.settings.on_change(self._options_changed)
        if self.replication.is_slave:
            self.replication.following = self._make_following()
        self.exactly_once = ExactlyOnce(
            broker_name=self.place.name,
            name_servers=self.place.name_servers,
            store=self.store,
            storing=self.storing,
            rpc=self.rpc,
            topics=self.tables.topics,
            on_moved=self.count_delivered,
            batch_write_hours=lambda: self.config().batch_write_hours,
            clock=self.clock,
        )

    def _make_following(self) -> Following:
        store_config = self.store_config()
        return Following(
            store=self.store,
            rpc=self.rpc,
            identity=self.place.identity,
            is_flushed=store_config.flush_mode is FlushMode.SYNC,
            log_file_bytes=store_config.log_file_bytes,
            register=self.registration.register_all,
            copy_tables=MetadataCopy(
                topics=self.tables.topics,
                groups=self.tables.groups,
                offsets=self.tables.offsets,
                delays=self.tables.delays,
                archives=self.tables.archives,
                delete_topic=self._delete_topic,
                log_end=lambda: self.store.log_end,
                rpc=self.rpc,
                folder=store_config.root.expanduser() / OWN_FOLDER,
                clock=self.clock,
                modes=store_config.modes,
                keep_locks=self.tables.lock_file.follow,
                deleted_topics=self.store.deleted_topics,
                keep_store_tables=StoreCopy(self.store, self.tables.topics).follow,
                keeps_timers=self._follows_official_master,
            ).copy_from,
            leave_epoch=self._leave_epoch,
            epochs=self.reign.epochs,
            cut=self.reign.cut,
            config=self.replication_config(),
            clock=self.clock,
        )

    def _reporting(self) -> Reporting:
        """Make the parts that report on the broker."""
        return Reporting(
            settings=self.settings,
            address=self.place.advertised,
            store=self.store,
            tables=Tables(
                topics=self.tables.topics,
                groups=self.tables.groups,
                members=self.tables.members,
                offsets=self.tables.offsets,
                progress=ProgressMeter(
                    broker_name=self.place.name,
                    store=self.store,
                    members=self.tables.members,
                    offsets=self.tables.offsets,
                    clock=self.clock,
                ),
            ),
            counters=self.counters,
            samples=self.samples,
            confirmations=self.confirmations,
            long_polls=self.long_polls,
            reads=self.reads,
            delay_offsets=lambda: self.delay.offsets,
            transactions=self.transactions.halves.figures,
            timers_behind=lambda: self.timers.behind,
            replication=self.replication.state,
            replication_figures=self.replication.figures,
            archives=self.archive_gate.state,
            clock=self.clock,
        )

    def _make_periodics(self, config: BrokerConfig) -> None:
        self.flush_timeouts = Periodic(
            "flush timeouts", _EXPIRY_INTERVAL_MS, self.confirmations.expire, self.clock
        )
        self.periodics = [
            Periodic("long polls", _EXPIRY_INTERVAL_MS, self.long_polls.expire, self.clock),
            Periodic("clients", config.member_scan_interval_ms, self.clients.expire, self.clock),
            Periodic("filter servers", SCAN_INTERVAL_MS, self.filter_servers.expire, self.clock),
            Periodic(
                "offsets", config.offsets_flush_interval_ms, self.tables.offsets.save, self.clock
            ),
            Periodic(
                "topics", config.offsets_flush_interval_ms, self.tables.topics.save, self.clock
            ),
            Periodic(
                "groups", config.offsets_flush_interval_ms, self.tables.groups.save, self.clock
            ),
            Periodic(
                "archives", config.offsets_flush_interval_ms, self.tables.archives.save, self.clock
            ),
            Periodic("samples", SAMPLE_INTERVAL_MS, self.samples.sample, self.clock),
        ]
        if not self.replication.is_slave:
            self.periodics += [
                *self.exactly_once.upkeep,
                self.transactions.saving,
                self.transactions.checking,
            ]
        if self.replication.gate is not None:
            self.periodics.append(
                Periodic("slaves", _EXPIRY_INTERVAL_MS, self.replication.gate.check, self.clock)
            )

    def _follows_official_master(self) -> bool:
        following = self.replication.following
        return following is not None and following.master_is_official

    async def _leave_epoch(self) -> None:
        """Drop what is only true of the last master's messages: another one stores others there."""
        self.tables.offsets.forget_commits(self.tables.offsets.commits_here)
        if self.tables.archives.known.archives:
            await self.tables.archives.lower_to_ends(await ends_of(self.store))

    async def _delete_topic(self, topic: str, end: int) -> None:
        """Delete what is left of a topic that the master deleted when its log ended there."""
        self.tables.offsets.delete_topic(topic)
        await off_loop(partial(self.store.delete_topic, topic, until=PhysicalOffset(end)))

    def _registered(self, reply: RegisterBrokerReply) -> None:
        if self.replication.following is not None:
            self.replication.following.found(reply)

    async def report_permission(self) -> None:
        """Report a changed permission of the broker to name servers."""
        # Name servers replace what they know of a topic only for a new version.
        await self.tables.topics.raise_version()
        await self.registration.register_all()

    def _topics_changed(self, names: frozenset[str]) -> None:
        self.plain_topics.forget(names)
        for name in names if not self.replication.is_slave else ():
            self.tables.apply_storage(name, self.store)
        changed = [topic for name in names if (topic := self.tables.topics.get(name)) is not None]
        if changed and self.admission.is_open:
            self.registration.topics_changed(changed)

    def _options_changed(self, _: Changed) -> None:
        # The hot path caches the broker's permission with each topic.
        self.plain_topics.forget_all()
        self.store.change_options(
            store=self.settings.of(StoreConfig), retention=self.settings.of(RetentionConfig)
        )

    def count_delivered(self, draft: Draft) -> None:
        """Count a message that was moved to its real queue as stored there."""
        self.counters.put(draft.topic).add(1, len(draft.body))

    def stop_accepting(self) -> None:
        """Accept no more messages, and answer the pulls that are held."""
        self.admission.is_open = False
        self.long_polls.close()
