"""Client requests: heartbeats, unregistering, group members, connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orbitmq import java_json
from orbitmq.broker.delivery.filters import make_filter
from orbitmq.broker.topics.topic_table import retry_topic_of
from orbitmq.errors import OrbitError, RequestRefusedError
from orbitmq.model.names import retry_topic
from orbitmq.model.topics import UnitFlag
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.clients import (
    ClientConnection,
    ConsumerConnections,
    GroupMembers,
    HeartbeatBody,
    HeartbeatReply,
    ListConsumerConnections,
    ListedProducer,
    ListGroupMembers,
    ListProducerConnections,
    ProducerConnections,
    ProducerTable,
    SubscriptionToCheck,
    UnregisterClient,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.filter_servers import FilterServers
    from orbitmq.broker.groups.consuming_group import ConnectedClient
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.members import Departure, Members
    from orbitmq.broker.groups.notices import MemberNotices
    from orbitmq.broker.groups.queue_locks import QueueLocks
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.requests.clients import ConsumerGroup
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class ClientRequests:
    """Tracks clients, and notifies group members when others join or leave."""

    clock: Clock
    # A slave gets groups and their retry topics from its master.
    creates_groups: bool = True
    config: Callable[[], BrokerConfig]
    topics: TopicTable
    groups: GroupTable
    members: Members
    locks: QueueLocks
    notices: MemberNotices

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_members,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_subscription,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.list_consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.list_producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.list_all_producers,
        }

    # --- joining and leaving ------------------------------------------------------------------

    def heartbeat(
        self, connection: Connection, request: Command
    ) -> Command | Coroutine[Any, Any, Command]:
        """Record a client's groups and subscriptions.

        It is recorded at once if nothing has to be created. The pulls that follow it in the same
        chunk rely on its subscriptions.
        """
        body = java_json.decode(request.body, HeartbeatBody)
        self.members.check(connection, body)
        if not self.creates_groups or all(map(self._is_prepared, body.consumers)):
            return self._record(connection, request, body)
        return self._prepare_and_record(connection, request, body)

    async def _prepare_and_record(
        self, connection: Connection, request: Command, body: HeartbeatBody
    ) -> Command:
        await self._prepare(body.consumers)
        return self._record(connection, request, body)

    def _record(self, connection: Connection, request: Command, body: HeartbeatBody) -> Command:
        outcome = self.members.heartbeat(
            connection, body, language=request.language.name, version=request.version
        )
        self.notices.send(outcome.changes)
        if outcome.refusal is not None:
            raise outcome.refusal
        return request.reply(
            HeartbeatReply(
                takes_fingerprints=True, subscriptions_changed=outcome.subscriptions_changed
            )
        )

    def _is_prepared(self, consumer: ConsumerGroup) -> bool:
        """Whether the group and its retry topic are as `_prepare` makes them."""
        group = self.groups.get(consumer.group)
        topic = self.topics.get(retry_topic(consumer.group))
        return group is not None and topic is not None and topic.order == group.consumes_in_order

    async def _prepare(self, consumers: Sequence[ConsumerGroup]) -> None:
        """Create groups and their retry topics; tools find groups by these topics."""
        groups = await self.groups.ensure(*(consumer.group for consumer in consumers))
        await self.topics.ensure_retries(
            [
                retry_topic_of(
                    group.name,
                    queues=max(group.retry_queues, 1),
                    order=group.consumes_in_order,
                    unit_flag=int(UnitFlag.SUBSCRIBED_BY_UNIT) if consumer.unit_mode else 0,
                )
                for group, consumer in zip(groups, consumers, strict=True)
            ]
        )

    def unregister(self, connection: Connection, request: Command) -> Command:
        """Remove a client from groups, as it asks, and release its locks unless it keeps them."""
        asked = UnregisterClient.decode(request.fields)
        departure = self.members.unregister(
            connection,
            producer_group=asked.producer_group or None,
            consumer_group=asked.consumer_group or None,
        )
        release = self.locks.shorten if asked.keeps_locks else self.locks.unlock_all
        for group, client_id in departure.left:
            release(group, client_id)
        self.notices.send(departure.changes)
        return request.reply()

    def connection_lost(self, connection: Connection) -> None:
        """Remove a client whose connection was closed."""
        self._note_absence(self.members.connection_lost(connection))

    def expire(self) -> None:
        """Remove clients without heartbeats, and expired locks."""
        departure = self.members.expire()
        self._note_absence(departure)
        for connection in departure.silent:
            connection.close("no heartbeat for too long")
        self.notices.send(map(self.members.take_lock_waiters, self.locks.expire()))

    def _note_absence(self, departure: Departure) -> None:
        for group, client_id in departure.left:
            self.locks.shorten(group, client_id)
        self.notices.send(departure.changes)

    # --- queries ------------------------------------------------------------------------------

    def list_members(self, _: Connection, request: Command) -> Command:
        """List the client ids of a group."""
        asked = ListGroupMembers.decode(request.fields)
        client_ids = self.members.client_ids(asked.consumer_group)
        if not client_ids:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {asked.consumer_group}"
            )
        return request.reply(body=java_json.encode(GroupMembers(client_ids=client_ids)))

    def check_subscription(self, _: Connection, request: Command) -> Command:
        """Check that the expression of a subscription is valid."""
        asked = java_json.decode(request.body, SubscriptionToCheck)
        subscription = asked.subscription
        if not subscription.is_by_tag and not self.config().property_filter:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}",
                hint="set enablePropertyFilter=true",
            )
        try:
            make_filter(subscription.expression, subscription.expression_type)
        except OrbitError as error:
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return request.reply()

    def list_consumers(self, _: Connection, request: Command) -> Command:
        """List the consumers of a group, with the group's settings."""
        asked = ListConsumerConnections.decode(request.fields)
        group = self.members.groups.get(asked.consumer_group)
        if group is None:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{asked.consumer_group}] not online",
            )
        connections = ConsumerConnections(
            connections=[_client_connection(member.client) for member in group.members.values()],
            consume_from=group.consume_from,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscriptions=dict(group.subscriptions),
        )
        return request.reply(body=java_json.encode(connections))

    def list_producers(self, _: Connection, request: Command) -> Command:
        """List the producers of a group."""
        asked = ListProducerConnections.decode(request.fields)
        producers = self.members.producers.get(asked.producer_group)
        if not producers:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the producer group[{asked.producer_group}] not exist",
            )
        connections = ProducerConnections(
            connections=[_client_connection(client) for client in producers.values()]
        )
        return request.reply(body=java_json.encode(connections))

    def list_all_producers(self, _: Connection, request: Command) -> Command:
        """List all producers by group."""
        table = ProducerTable(
            groups={
                group: [
                    ListedProducer(
                        client_id=client.client_id,
                        language=client.language,
                        version=client.version,
                        # Compat: Java's text of an address begins with a slash.
                        address=f"/{connection.address}",
                        last_heard_ms=self._wall_ms(client.produces_ms[group]),
                    )
                    for connection, client in clients.items()
                ]
                for group, clients in self.members.producers.items()
            }
        )
        return request.reply(body=java_json.encode(table))

    def _wall_ms(self, monotonic_ms: float) -> int:
        """Convert a monotonic time to wall-clock time."""
        return int(self.clock.now_ms() - (self.clock.monotonic_ms() - monotonic_ms))


def _client_connection(client: ConnectedClient) -> ClientConnection:
    return ClientConnection(
        address=client.connection.address,
        client_id=client.client_id,
        language=client.language,
        version=client.version,
    )


@dataclass(slots=True, eq=False)
class ClientListener:
    """Tells those that keep something for a connection when it closes."""

    clients: ClientRequests
    filter_servers: FilterServers

    def on_open(self, connection: Connection) -> None:
        """Do nothing: a connection is unknown until its first heartbeat."""

    def on_idle(self, connection: Connection) -> None:
        """Do nothing: the server is about to close the connection."""

    def on_close(self, connection: Connection, _error: Exception | None) -> None:
        """Remove the client from its groups, or the filter server."""
        self.clients.connection_lost(connection)
        self.filter_servers.connection_lost(connection)
