"""Clients: heartbeats, leaving, members of groups, and who is connected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.broker.delivery.filters import make_filter
from orbitmq.errors import OrbitError, RequestRefusedError, TransportError
from orbitmq.model.topics import UnitFlag
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import request as make_request
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
    NotifyMembersChanged,
    ProducerConnections,
    ProducerTable,
    SubscriptionToCheck,
    UnregisterClient,
)
from orbitmq.transport.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups.consuming_group import ConnectedClient
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.members import Departure, GroupChange, Members
    from orbitmq.broker.groups.queue_locks import QueueLocks
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.requests.clients import ConsumerGroup
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)


class ClientRequests:
    """Knows the clients, and tells members of a group of one another."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        topics: TopicTable,
        groups: GroupTable,
        members: Members,
        locks: QueueLocks,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._config = config
        self._topics = topics
        self._groups = groups
        self._members = members
        self._locks = locks

    def by_code(self) -> Mapping[int, Handler]:
        """Give the handler of each request code."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_members,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_subscription,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.list_consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.list_producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.list_all_producers,
        }

    # --- coming and going ---------------------------------------------------------------------

    async def heartbeat(self, connection: Connection, request: Command) -> Command:
        """Take in what a client says of itself."""
        body = java_json.decode(request.body, HeartbeatBody)
        self._members.check(connection, body)
        # All at once, so that what they change in the tables shares a write.
        await asyncio.gather(*map(self._prepare, body.consumers))
        outcome = self._members.hear(
            connection, body, language=request.language.name, version=request.version
        )
        self._tell(outcome.changes)
        if outcome.refusal is not None:
            raise outcome.refusal
        return request.reply(
            HeartbeatReply(
                takes_fingerprints=True, subscriptions_changed=outcome.subscriptions_changed
            )
        )

    async def _prepare(self, consumer: ConsumerGroup) -> None:
        """Make the group and its retry topic; tools find groups by these topics."""
        group = await self._groups.ensure(consumer.group)
        await self._topics.ensure_retry(
            group.name,
            queues=max(group.retry_queues, 1),
            order=group.consumes_in_order,
            unit_flag=int(UnitFlag.SUBSCRIBED_BY_UNIT) if consumer.unit_mode else 0,
        )

    def unregister(self, connection: Connection, request: Command) -> Command:
        """Let a client leave groups."""
        asked = UnregisterClient.decode(request.fields)
        departure = self._members.unregister(
            connection,
            producer_group=asked.producer_group or None,
            consumer_group=asked.consumer_group or None,
        )
        for group, client_id in departure.left:
            self._locks.unlock_all(group, client_id)
        self._tell(departure.changes)
        return request.reply()

    def connection_lost(self, connection: Connection) -> None:
        """Note that a client is gone."""
        self._lose(self._members.lose(connection))

    def expire(self) -> None:
        """Take out clients that fell silent, and locks that ended."""
        departure = self._members.expire()
        self._lose(departure)
        for connection in departure.silent:
            connection.close("no heartbeat for too long")
        self._locks.expire()

    def _lose(self, departure: Departure) -> None:
        for group, client_id in departure.left:
            self._locks.lose(group, client_id)
        self._tell(departure.changes)

    def _tell(self, changes: Iterable[GroupChange]) -> None:
        if not self._config().notify_members:
            return
        for change in changes:
            group = self._groups.get(change.group)
            if group is not None and not group.tells_of_changes:
                continue
            for connection in change.tell:
                notice = make_request(NotifyMembersChanged(consumer_group=change.group))
                try:
                    connection.call_oneway(notice)
                except TransportError as error:
                    log.info("member not told group=%s reason=%s", change.group, error)

    # --- asking -------------------------------------------------------------------------------

    def list_members(self, _: Connection, request: Command) -> Command:
        """List the client ids of a group."""
        asked = ListGroupMembers.decode(request.fields)
        client_ids = self._members.client_ids(asked.consumer_group)
        if not client_ids:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {asked.consumer_group}"
            )
        return request.reply(body=java_json.encode(GroupMembers(client_ids=client_ids)))

    def check_subscription(self, _: Connection, request: Command) -> Command:
        """Say whether the expression of a subscription can be read."""
        asked = java_json.decode(request.body, SubscriptionToCheck)
        subscription = asked.subscription
        if not subscription.is_by_tag and not self._config().property_filter:
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
        """Show who consumes for a group, and how."""
        asked = ListConsumerConnections.decode(request.fields)
        group = self._members.groups.get(asked.consumer_group)
        if group is None:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{asked.consumer_group}] not online",
            )
        connections = ConsumerConnections(
            connections=[_shown(member.client) for member in group.members.values()],
            consume_from=group.consume_from,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscriptions=dict(group.subscriptions),
        )
        return request.reply(body=java_json.encode(connections))

    def list_producers(self, _: Connection, request: Command) -> Command:
        """Show who produces for a group."""
        asked = ListProducerConnections.decode(request.fields)
        producers = self._members.producers.get(asked.producer_group)
        if not producers:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the producer group[{asked.producer_group}] not exist",
            )
        connections = ProducerConnections(
            connections=[_shown(client) for client in producers.values()]
        )
        return request.reply(body=java_json.encode(connections))

    def list_all_producers(self, _: Connection, request: Command) -> Command:
        """Show every producer by group."""
        table = ProducerTable(
            groups={
                group: [
                    ListedProducer(
                        client_id=client.client_id,
                        language=client.language,
                        version=client.version,
                        host=parse_address(connection.address)[0],
                        last_heard_ms=self._at(client.produces_ms[group]),
                    )
                    for connection, client in clients.items()
                ]
                for group, clients in self._members.producers.items()
            }
        )
        return request.reply(body=java_json.encode(table))

    def _at(self, monotonic_ms: float) -> int:
        """Tell a moment by the clock on the wall."""
        return int(self._clock.now_ms() - (self._clock.monotonic_ms() - monotonic_ms))


def _shown(client: ConnectedClient) -> ClientConnection:
    return ClientConnection(
        address=client.connection.address,
        client_id=client.client_id,
        language=client.language,
        version=client.version,
    )


class ClientListener:
    """Tells the clients' handler of connections that close."""

    def __init__(self, clients: ClientRequests) -> None:
        self._clients = clients

    def on_open(self, connection: Connection) -> None:
        """Nothing is known of a connection before its first heartbeat."""

    def on_idle(self, connection: Connection) -> None:
        """A connection that is idle is about to be closed."""

    def on_close(self, connection: Connection, _error: Exception | None) -> None:
        """Take the client out of its groups."""
        self._clients.connection_lost(connection)
