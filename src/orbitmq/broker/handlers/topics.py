"""Topics, as administrators see them: made, changed, deleted, listed, measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.disk import off_loop
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
    ListTopicConsumers,
    QueueStats,
    TopicConfigList,
    TopicConfigTable,
    TopicStats,
    UpdateTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.registration import Registration
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


class TopicRequests:
    """Administers topics."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        store: MessageStore,
        topics: TopicTable,
        offsets: CommittedOffsets,
        members: Members,
        registration: Registration,
        puts_per_second: Callable[[str], float],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._members = members
        self._registration = registration
        self._puts_per_second = puts_per_second

    def by_code(self) -> Mapping[int, Handler]:
        """Give the handler of each request code."""
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
        """Make or change a topic; the name servers know of it when this is answered."""
        asked = UpdateTopic.decode(request.fields)
        topic = await self._topics.put(
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
        await self._registration.announce([topic])
        return request.reply()

    async def update_many(self, _: Connection, request: Command) -> Command:
        """Make or change several topics."""
        asked = java_json.decode(request.body, TopicConfigList)
        topics = [await self._topics.put(topic) for topic in asked.topics]
        await self._registration.announce(topics)
        return request.reply()

    async def delete(self, _: Connection, request: Command) -> Command:
        """Delete a topic with its queues and what groups committed of it."""
        asked = DeleteTopic.decode(request.fields)

        async def clear() -> None:
            self._offsets.delete_topic(asked.topic)
            await off_loop(self._store.delete_topic, asked.topic)

        await self._topics.delete(asked.topic, clear=clear)
        return request.reply()

    def list_all(self, _: Connection, request: Command) -> Command:
        """Show every topic."""
        table = TopicConfigTable(
            data_version=self._topics.data_version, topics=dict(self._topics.topics)
        )
        return request.reply(body=java_json.encode(table))

    def get(self, _: Connection, request: Command) -> Command:
        """Show one topic."""
        asked = GetTopicConfig.decode(request.fields)
        return request.reply(body=java_json.encode(self._topics.require(asked.topic)))

    async def measure(self, _: Connection, request: Command) -> Command:
        """Show the bounds of a topic's queues."""
        asked = GetTopicStats.decode(request.fields)
        topic = self._topics.require(asked.topic)
        queues = await off_loop(self._bounds, topic)
        stats = TopicStats(queues=queues, puts_per_second=self._puts_per_second(topic.name))
        return request.reply(body=java_json.encode(stats))

    def _bounds(self, topic: TopicConfig) -> ObjectKeyed[MessageQueue, QueueStats]:
        broker_name = self._config().broker_name
        bounds: dict[MessageQueue, QueueStats] = {}
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            start = self._store.start_of(topic.name, queue_id)
            end = self._store.end_of(topic.name, queue_id)
            last_ms = self._store.store_ms_of(topic.name, queue_id, end - 1) if end > start else 0
            queue = MessageQueue(topic=topic.name, broker_name=broker_name, queue_id=queue_id)
            bounds[queue] = QueueStats(
                min_offset=start, max_offset=end, last_update_ms=last_ms or 0
            )
        return ObjectKeyed(bounds)

    def list_consumers(self, _: Connection, request: Command) -> Command:
        """List the groups that consume a topic, or did."""
        asked = ListTopicConsumers.decode(request.fields)
        groups = {
            *self._members.groups_of_topic(asked.topic),
            *self._offsets.groups_of(asked.topic),
        }
        return request.reply(body=java_json.encode(GroupNames(groups=sorted(groups))))

    def list_system(self, _: Connection, request: Command) -> Command:
        """List the topics that are the broker's own."""
        names = [name for name in self._topics.topics if self._topics.is_system(name)]
        return request.reply(body=java_json.encode(TopicList(topics=sorted(names))))
