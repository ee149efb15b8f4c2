"""Administration of topics: create, change, delete, list, measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.broker.table_bounds import page_of
from orbitmq.disk import off_loop
from orbitmq.errors import TopicMissingError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.model.topics import TopicConfig
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.requests.routing import TopicList
from orbitmq.protocol.requests.topics import (
    DeleteTopic,
    GetTopicConfig,
    GetTopicStats,
    GroupNames,
    ListTopicConfigs,
    ListTopicConfigsReply,
    ListTopicConsumers,
    QueueStats,
    TopicConfigList,
    TopicConfigTable,
    TopicStats,
    UpdateTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.broker.archives.archive_table import ArchiveTable
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.registration import Registration
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False, kw_only=True)
class TopicRequests:
    """Administers topics."""

    config: Callable[[], BrokerConfig]
    store: MessageStore
    topics: TopicTable
    offsets: CommittedOffsets
    archives: ArchiveTable
    members: Members
    registration: Registration
    # Called with the queues of a deleted topic.
    on_deleted: Callable[[Iterable[MessageQueue]], None]
    puts_per_second: Callable[[str], float]

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_many,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.list_all,
            RequestCode.GET_TOPIC_CONFIG: self.get,
            RequestCode.GET_TOPIC_STATS_INFO: self.measure,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.list_consumers,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.list_system,
        }

    async def update(self, _: Connection, request: Command) -> Command:
        """Create or change a topic; replies once the name servers know it."""
        asked = UpdateTopic.decode(request.fields)
        topic = await self.topics.put(
            TopicConfig(
                name=asked.topic,
                read_queues=asked.read_queues,
                write_queues=asked.write_queues,
                permission=asked.permission,
                filter_type=asked.filter_type,
                unit_flag=asked.unit_flag or 0,
                order=asked.order,
            ),
            asked.attributes or "",
        )
        await self.registration.announce([topic])
        return request.reply()

    async def update_many(self, _: Connection, request: Command) -> Command:
        """Create or change several topics."""
        asked = java_json.decode(request.body, TopicConfigList)
        await self.registration.announce(await self.topics.put_all(asked.topics))
        return request.reply()

    async def delete(self, _: Connection, request: Command) -> Command:
        """Delete a topic with its queues and committed offsets."""
        asked = DeleteTopic.decode(request.fields)
        topic = self.topics.get(asked.topic)
        if topic is None and not self.store.has_queues(asked.topic):
            # Compat: not an error. Nor is anything noted of a topic that never was.
            return request.reply()

        async def clear() -> None:
            # Invariant: on disk first. Marks of the old messages say nothing about new ones.
            await self.archives.end_life(asked.topic)
            self.offsets.delete_topic(asked.topic)
            await off_loop(self.store.delete_topic, asked.topic)
            await self.archives.note_deletions(self.store.deleted_topics())

        await self.topics.delete(asked.topic, clear=clear)
        if topic is not None:
            # Pulls that are held at an offset of the deleted queues would skip as many messages, if
            # the topic is created again.
            name = self.config().broker_name
            self.on_deleted(
                MessageQueue(topic=topic.name, broker_name=name, queue_id=queue_id)
                for queue_id in range(topic.read_queues)
            )
        return request.reply()

    async def list_all(self, _: Connection, request: Command) -> Command:
        """List all topics, or one page of them."""
        asked = ListTopicConfigs.decode(request.fields)
        topics = self.topics.topics
        table = TopicConfigTable(
            data_version=self.topics.data_version,
            topics=page_of(topics, asked.first, asked.topics_max),
        )
        total = len(topics) if asked.topics_max is not None else None
        return request.reply(
            ListTopicConfigsReply(topic_count=total), body=await off_loop(java_json.encode, table)
        )

    def get(self, _: Connection, request: Command) -> Command:
        """Return one topic."""
        asked = GetTopicConfig.decode(request.fields)
        try:
            topic = self.topics.require(asked.topic)
        except TopicMissingError as error:
            # Tools ask before they create a topic.
            error.routine = True
            raise
        return request.reply(body=java_json.encode(topic))

    async def measure(self, _: Connection, request: Command) -> Command:
        """Return the offset bounds of a topic's queues."""
        asked = GetTopicStats.decode(request.fields)
        topic = self.topics.require(asked.topic)
        queues = await off_loop(self._bounds, topic)
        stats = TopicStats(queues=queues, puts_per_second=self.puts_per_second(topic.name))
        return request.reply(body=await off_loop(java_json.encode, stats))

    def _bounds(self, topic: TopicConfig) -> ObjectKeyed[MessageQueue, QueueStats]:
        broker_name = self.config().broker_name
        bounds: dict[MessageQueue, QueueStats] = {}
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            start = self.store.start_of(topic.name, queue_id)
            end = self.store.end_of(topic.name, queue_id)
            last_ms = self.store.store_ms_of(topic.name, queue_id, end - 1) if end > start else 0
            queue = MessageQueue(topic=topic.name, broker_name=broker_name, queue_id=queue_id)
            bounds[queue] = QueueStats(
                min_offset=start, max_offset=end, last_update_ms=last_ms or 0
            )
        return ObjectKeyed(bounds)

    def list_consumers(self, _: Connection, request: Command) -> Command:
        """List the groups that consume a topic, or have committed offsets in it."""
        asked = ListTopicConsumers.decode(request.fields)
        groups = {
            *self.members.groups_of_topic(asked.topic),
            *self.offsets.groups_of(asked.topic),
        }
        return request.reply(body=java_json.encode(GroupNames(groups=sorted(groups))))

    def list_system(self, _: Connection, request: Command) -> Command:
        """List the system topics."""
        names = [name for name in self.topics.topics if self.topics.is_system(name)]
        return request.reply(body=java_json.encode(TopicList(topics=sorted(names))))
