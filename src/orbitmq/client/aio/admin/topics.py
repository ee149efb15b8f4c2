"""Administers topics."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.errors import (
    ClusterMissingError,
    NotSupportedError,
    RemoteError,
    RouteNotFoundError,
    TransportError,
)
from orbitmq.model.names import check_topic
from orbitmq.model.topics import TopicConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.key_values import (
    ORDER_TOPIC_NAMESPACE,
    DeleteKeyValue,
    GetKeyValue,
    KeyValueReply,
    PutKeyValue,
)
from orbitmq.protocol.requests.routing import (
    DeleteTopicRoute,
    ListClusterTopics,
    ListTopics,
    TopicList,
)
from orbitmq.protocol.requests.topics import (
    DeleteTopic,
    GetTopicConfig,
    GetTopicStats,
    GroupNames,
    ListTopicConfigs,
    ListTopicConsumers,
    QueueStats,
    TopicConfigTable,
    TopicStats,
    UpdateTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.model.queues import MessageQueue
    from orbitmq.model.routes import TopicRoute

_TEMPLATE = "TBW102"
# The queues of a new topic on each broker, unless given.
NEW_TOPIC_QUEUES: Final = 8


@dataclass(slots=True, eq=False)
class Topics:
    """Creates, changes, deletes and describes topics."""

    _reach: Reach

    async def names(self, *, cluster: str | None = None) -> list[str]:
        """List all topics, or those of a cluster; not those that only missing brokers have."""
        all_topics = ListTopics(with_missing_brokers=True)
        header = all_topics if cluster is None else ListClusterTopics(cluster=cluster)
        reply = await self._reach.name_servers.ask(header)
        listed = java_json.decode(reply.body, TopicList)
        if listed.missing_topics:
            await self._reach.note_missing()
        return sorted(listed.topics)

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic: its brokers and queues."""
        return await self._reach.route(topic)

    async def configs(self, broker: str) -> dict[str, TopicConfig]:
        """Return the topics of one broker with their options."""
        address = await self._reach.broker(broker)
        table = await self._reach.ask_for(address, ListTopicConfigs(), TopicConfigTable)
        return table.topics

    async def config(self, topic: str) -> dict[str, TopicConfig]:
        """Return the options of a topic on each broker that has it."""
        masters = await self._reach.masters_of(topic)
        return {name: await self._config_at(address, topic) for name, address in masters.items()}

    async def create(
        self,
        topic: str,
        *,
        queues: int | None = None,
        write_queues: int | None = None,
        permission: int | None = None,
        ordered: bool | None = None,
        attributes: str = "",
        cluster: str | None = None,
        broker: str | None = None,
    ) -> dict[str, str]:
        """Create or change a topic, on all masters of a cluster or on one broker.

        On a broker that has the topic, omitted arguments keep their values; on others they are
        those of `settings_elsewhere`. Pass `write_queues` if their number differs from that of the
        queues to read. Returns the changed brokers: address by name.
        """
        check_topic(topic)
        masters = await self._reach.targets(cluster, broker)
        elsewhere: TopicConfig | None = None
        order: dict[str, int] = {}
        for name, address in masters.items():
            changes = attributes
            old = await self._find_at(address, topic)
            if old is None:
                old = elsewhere = elsewhere or await self.settings_elsewhere(topic)
                changes = _attributes_of_new(old.attributes, attributes)
            header = UpdateTopic(
                topic=topic,
                template_topic=_TEMPLATE,
                read_queues=queues or old.read_queues,
                write_queues=write_queues or queues or old.write_queues,
                permission=old.permission if permission is None else permission,
                filter_type="SINGLE_TAG",
                unit_flag=old.unit_flag,
                order=old.order if ordered is None else ordered,
                attributes=changes or None,
            )
            if header.order:
                order[await self._reach.require_name(name)] = header.write_queues
            await self._reach.ask(address, header)
        if order:
            await self._put_order(topic, order)
        return masters

    async def settings_elsewhere(self, topic: str) -> TopicConfig:
        """The settings that a topic gets on one more broker: as on the first that has it.

        A new topic gets 8 queues that can be read and written.
        """
        with suppress(RouteNotFoundError):
            for _, address in sorted((await self._reach.masters_of(topic)).items()):
                with suppress(TransportError):
                    found = await self._find_at(address, topic)
                    if found is not None:
                        return found
        return TopicConfig(name=topic, read_queues=NEW_TOPIC_QUEUES, write_queues=NEW_TOPIC_QUEUES)

    async def _put_order(self, topic: str, counts: Mapping[str, int]) -> None:
        """Publish how many ordered queues each broker has; entries of other brokers stay."""
        # Compat: RocketMQ clients read it from here, as broker-a:8;broker-b:8.
        old = ""
        try:
            header = GetKeyValue(namespace=ORDER_TOPIC_NAMESPACE, key=topic)
            reply = await self._reach.name_servers.ask(header)
            old = KeyValueReply.decode(reply.fields).value
        except RemoteError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
        order: dict[str, str | int] = {
            name: count
            for name, _, count in (part.rpartition(":") for part in old.split(";"))
            if name
        }
        order.update(counts)
        value = ";".join(f"{name}:{count}" for name, count in sorted(order.items()))
        await self._reach.ask_name_servers(
            PutKeyValue(namespace=ORDER_TOPIC_NAMESPACE, key=topic, value=value)
        )

    async def set_permission(
        self, topic: str, permission: int, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, str]:
        """Set only the permission of a topic; returns the changed brokers: address by name."""
        masters = await self._reach.masters_of(topic)
        if cluster is not None or broker is not None:
            chosen = set((await self._reach.targets(cluster, broker)).values())
            held = masters
            masters = {name: address for name, address in held.items() if address in chosen}
            if not masters:
                if broker is not None:
                    raise ClusterMissingError("broker", broker, there=held)
                raise ClusterMissingError(f"broker with {topic!r} in", cluster or "", there=held)
        for address in masters.values():
            config = await self._config_at(address, topic)
            await self._reach.ask(
                address,
                UpdateTopic(
                    topic=topic,
                    template_topic=_TEMPLATE,
                    read_queues=config.read_queues,
                    write_queues=config.write_queues,
                    permission=permission,
                    filter_type="SINGLE_TAG",
                    unit_flag=config.unit_flag,
                    order=config.order,
                ),
            )
        return masters

    async def delete(self, topic: str, *, cluster: str | None = None) -> dict[str, str]:
        """Delete a topic, its messages and its route; returns the masters: address by name."""
        masters = await self._reach.targets(cluster, None)
        await self._reach.ask_each(masters.values(), DeleteTopic(topic=topic))
        await self._reach.ask_name_servers(DeleteTopicRoute(topic=topic, cluster_name=cluster))
        for address in self._reach.name_servers.addresses:
            try:
                await self._reach.ask(
                    address, DeleteKeyValue(namespace=ORDER_TOPIC_NAMESPACE, key=topic)
                )
            except RemoteError as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
        return masters

    async def _find_at(self, address: str, topic: str) -> TopicConfig | None:
        try:
            return await self._config_at(address, topic)
        except KeyError:
            return None
        except RemoteError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return None

    async def _config_at(self, address: str, topic: str) -> TopicConfig:
        try:
            return await self._reach.ask_for(address, GetTopicConfig(topic=topic), TopicConfig)
        except NotSupportedError:
            # Compat: RocketMQ 4 can only list all its topics.
            table = await self._reach.ask_for(address, ListTopicConfigs(), TopicConfigTable)
            return table.topics[topic]

    async def bounds(self, topic: str) -> dict[MessageQueue, QueueStats]:
        """Return the first and end offset of each queue of a topic."""
        masters = await self._reach.masters_of(topic)
        replies = await self._reach.ask_each(masters.values(), GetTopicStats(topic=topic))
        found: dict[MessageQueue, QueueStats] = {}
        for reply in replies.values():
            found.update(java_json.decode(reply.body, TopicStats).queues)
        return dict(sorted(found.items()))

    async def consumers(self, topic: str) -> list[str]:
        """List the groups that consume a topic."""
        masters = await self._reach.masters_of(topic)
        replies = await self._reach.ask_each(masters.values(), ListTopicConsumers(topic=topic))
        groups: set[str] = set()
        for reply in replies.values():
            groups.update(java_json.decode(reply.body, GroupNames).groups)
        return sorted(groups)


def _attributes_of_new(elsewhere: Mapping[str, str], changes: str) -> str:
    """What to set where a topic is new, so that it has the attributes it has elsewhere, changed."""
    asked = [change.strip() for change in changes.split(",") if change.strip()]
    named = {change[1:].partition("=")[0] for change in asked}
    kept = [f"+{name}={value}" for name, value in elsewhere.items() if name not in named]
    # A topic that is new has nothing to take away.
    return ",".join(kept + [one for one in asked if not (one[0] == "-" and one[1:] in elsewhere)])
