"""What a broker keeps about its topics, groups and clients; loaded when it starts."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from orbitmq.broker.archives.archive_table import ArchiveTable
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delay.progress import DelayProgress
from orbitmq.broker.groups.committed_offsets import CommittedOffsets
from orbitmq.broker.groups.group_table import GroupTable
from orbitmq.broker.groups.lock_file import LockFile
from orbitmq.broker.groups.members import Members
from orbitmq.broker.groups.queue_locks import QueueLocks
from orbitmq.broker.groups.stale_positions import StalePositions
from orbitmq.broker.lost_tables import recovered_topics, report_lost, topics_not_copied
from orbitmq.broker.replication.after_cut import ends_of, lower_after_cut
from orbitmq.broker.topics.system_topics import system_topics
from orbitmq.broker.topics.topic_table import TopicTable
from orbitmq.disk import off_loop
from orbitmq.errors import OrbitError
from orbitmq.store.config import StoreConfig
from orbitmq.store.opening.parts import OWN_FOLDER

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.settings import Settings
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class BrokerTables:
    """The tables of one broker; those on disk are as empty as a new broker's until `load`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Prepare the tables; nothing is read yet."""
        config = settings.of(BrokerConfig)
        root = settings.of(StoreConfig).root.expanduser()
        folder = root / "config"
        modes = settings.of(StoreConfig).modes
        self._new_topic_queues = config.topic_queues
        self.topics = TopicTable(
            folder,
            clock=clock,
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
        self.groups = GroupTable(folder, clock=clock, auto_create=config.create_groups, modes=modes)
        self.offsets = CommittedOffsets(folder, clock=clock, modes=modes)
        self.members = Members(
            clock=clock,
            reject_differing=config.reject_inconsistent,
            silence_ms=config.member_silence_ms_max,
            bytes_max=config.members_bytes_max,
        )
        self.positions = StalePositions(clock)
        self.locks = QueueLocks(clock=clock)
        self.lock_file = LockFile(root / OWN_FOLDER, self.locks, modes)
        self.delays = DelayProgress(folder, clock=clock, modes=modes)
        self.archives = ArchiveTable(folder, root / OWN_FOLDER, clock=clock, modes=modes)

    async def load(
        self, store: MessageStore, *, epoch: int, is_slave: bool, is_newly_promoted: bool
    ) -> None:
        """Read the tables, and make good what is missing by what the store has."""
        queues = store.queues()
        await self.topics.load(partial(recovered_topics, queues, store.memory_topics))
        # Later ones were deleted. And before slaves can ask: they delete what is missing here.
        if is_newly_promoted:
            await self._add_topics_not_copied(store)
        for table in (self.groups, self.offsets, self.delays, self.lock_file):
            await table.load()
        await self.archives.load(is_newly_promoted=is_newly_promoted)
        # What a slave lacks, it copies from its master.
        report_lost(
            queues=[] if is_slave else queues,
            topics=self.topics.topics,
            groups=self.groups,
            offsets=self.offsets,
            delays=self.delays,
        )
        self.offsets.note_commits(on=is_slave)
        await lower_after_cut(store, self.offsets, self.delays, self.archives)
        if is_slave:
            return
        if epoch:
            in_memory = {n for n, topic in self.topics.topics.items() if topic.is_in_memory}
            store.begin_reign(epoch, in_memory)
        for name in {*self.topics.topics, *store.memory_topics}:
            self.apply_storage(name, store)
        self.offsets.lower_to_ends(partial(store.end_of, committed=False))
        if self.archives.known.archives:
            await self.archives.end_deleted(store.deleted_topics())
            await self.archives.lower_to_ends(await ends_of(store))
        if is_newly_promoted:
            queues = await off_loop(store.appended_queues)
            ends = {(queue.topic, queue.queue_id): queue.end for queue in queues}
            self.positions.begin(ends, self.offsets.groups_and_topics())

    def apply_storage(self, name: str, store: MessageStore) -> None:
        """Keep a topic in memory or on disk, according to its attributes."""
        topic = self.topics.get(name)
        wants_memory = topic is not None and topic.is_in_memory
        is_in_memory = name in store.memory_topics
        if wants_memory and not is_in_memory:
            store.keep_in_memory(name)
        elif is_in_memory and not wants_memory:
            store.keep_on_disk(name)

    async def _add_topics_not_copied(self, store: MessageStore) -> None:
        """List the topics of messages that a promoted slave copied without their tables."""
        queues = await off_loop(store.appended_queues)
        try:
            await self.topics.add_recovered(
                topics_not_copied(
                    queues,
                    store.memory_topics,
                    self.topics.topics,
                    new_topic_queues=self._new_topic_queues,
                )
            )
        except OrbitError as error:
            log.error("topics not recovered reason=%s", error)  # noqa: TRY400  # says it all
