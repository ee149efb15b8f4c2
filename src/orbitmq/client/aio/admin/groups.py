"""Administers consumer groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from orbitmq import java_json
from orbitmq.client.aio.instance.broker_calls import location_of
from orbitmq.errors import RemoteError, RouteNotFoundError
from orbitmq.model.groups import GroupConfig
from orbitmq.model.names import check_group, dead_letter_topic, retry_topic
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.clients import (
    ConsumerConnections,
    ListConsumerConnections,
    ListProducerConnections,
    ProducerConnections,
)
from orbitmq.protocol.requests.groups import (
    ConsumeMode,
    DeleteGroup,
    ForbidReading,
    GroupConfigTable,
    ListGroupConfigs,
    Readability,
    SetConsumeMode,
    UpdateGroup,
)
from orbitmq.protocol.requests.relays import (
    ConsumeDirectly,
    DirectResult,
    GetRunningConsumer,
    RunningConsumer,
)
from orbitmq.protocol.requests.statistics import ConsumeProgress, ConsumeStats, GetConsumeStats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.client.aio.admin.topics import Topics
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.model.queues import MessageQueue

# Brokers wait up to 10 s for a consumer; give them a little more.
_RELAY_TIMEOUT_MS = 12_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """The progress of a group in each queue, and its speed."""

    queues: dict[MessageQueue, ConsumeProgress] = field(default_factory=dict)
    consumed_per_second: float = 0.0

    @property
    def lag(self) -> int:
        """How many messages the group has not consumed, in all queues."""
        return sum(lag_of(progress) for progress in self.queues.values())


def lag_of(progress: ConsumeProgress) -> int:
    """How many messages of a queue a group has not consumed."""
    return max(0, progress.broker_offset - progress.consumer_offset)


@dataclass(slots=True, eq=False)
class Groups:
    """Creates, changes, deletes and describes consumer groups and their members."""

    _reach: Reach
    _topics: Topics

    async def configs(self, *, cluster: str | None = None) -> dict[str, GroupConfig]:
        """Return the groups of all masters, or of a cluster, with their options."""
        masters = await self._reach.masters(cluster)
        replies = await self._reach.ask_each(masters.values(), ListGroupConfigs())
        found: dict[str, GroupConfig] = {}
        for reply in replies.values():
            found.update(java_json.decode(reply.body, GroupConfigTable).groups)
        return dict(sorted(found.items()))

    async def create(
        self, config: GroupConfig, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, str]:
        """Create or change a group, on all masters of a cluster or on one broker."""
        check_group(config.name)
        masters = await self._reach.targets(cluster, broker)
        await self._reach.ask_each(masters.values(), UpdateGroup(), java_json.encode(config))
        return masters

    async def change(
        self,
        group: str,
        options: Mapping[str, object],
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> dict[str, str]:
        """Set options of a group, named as in `GroupConfig`; creates it where it is missing.

        Other options keep their values on each master, or on the one broker.
        """
        check_group(group)
        masters = await self._reach.targets(cluster, broker)
        for address in masters.values():
            table = await self._reach.ask_for(address, ListGroupConfigs(), GroupConfigTable)
            old = table.groups.get(group) or GroupConfig(name=group)
            new = msgspec.structs.replace(old, **options)
            await self._reach.ask(address, UpdateGroup(), java_json.encode(new))
        return masters

    async def delete(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        clean_offsets: bool = True,
    ) -> dict[str, str]:
        """Delete a group, on all masters of a cluster or on one broker.

        Its retries and dead letters are deleted, too, unless only one broker is given.
        """
        masters = await self._reach.targets(cluster, broker)
        await self._reach.ask_each(
            masters.values(), DeleteGroup(group=group, clean_offsets=clean_offsets)
        )
        if broker is None:
            for topic in (retry_topic(group), dead_letter_topic(group)):
                await self._topics.delete(topic, cluster=cluster)
        return masters

    async def progress(self, group: str, *, topic: str | None = None) -> GroupProgress:
        """Return the progress of a group, in one topic or in all that it consumes."""
        masters = await self._masters(group, topic)
        header = GetConsumeStats(consumer_group=group, topic=topic)
        replies = await self._reach.ask_each(masters.values(), header)
        queues: dict[MessageQueue, ConsumeProgress] = {}
        per_second = 0.0
        for reply in replies.values():
            stats = java_json.decode(reply.body, ConsumeStats)
            queues.update(stats.queues)
            per_second += stats.consumed_per_second
        return GroupProgress(queues=dict(sorted(queues.items())), consumed_per_second=per_second)

    async def connections(self, group: str) -> ConsumerConnections:
        """Return the members of a group and their subscriptions; empty if there are none."""
        merged: ConsumerConnections | None = None
        for address in (await self._masters(group, None)).values():
            try:
                found = await self._reach.ask_for(
                    address, ListConsumerConnections(consumer_group=group), ConsumerConnections
                )
            except RemoteError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                continue
            if merged is None:
                merged = found
            else:
                known = {client.client_id for client in merged.connections}
                merged.connections += [
                    client for client in found.connections if client.client_id not in known
                ]
        return merged or ConsumerConnections()

    async def producers(self, group: str, topic: str) -> ProducerConnections:
        """Return the producers of a group that are connected to brokers of a topic."""
        merged = ProducerConnections()
        for address in (await self._reach.masters_of(topic)).values():
            try:
                found = await self._reach.ask_for(
                    address, ListProducerConnections(producer_group=group), ProducerConnections
                )
            except RemoteError as error:
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
                continue
            merged.connections += [
                client for client in found.connections if client not in merged.connections
            ]
        return merged

    async def running(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> RunningConsumer:
        """Ask a consumer what it is doing, if wanted with the stacks of its threads."""
        header = GetRunningConsumer(
            consumer_group=group, client_id=client_id, with_stacks=with_stacks
        )
        address = await self._any_master(group)
        reply = await self._reach.ask(address, header, timeout_ms=_RELAY_TIMEOUT_MS)
        return java_json.decode(reply.body, RunningConsumer)

    async def may_read(self, group: str, topic: str) -> bool:
        """Whether a group may read a topic on every broker that has it."""
        return all((await self._readability(group, topic)).values())

    async def forbid_reading(self, group: str, topic: str) -> list[str]:
        """Forbid a group to read a topic; returns the brokers."""
        return list(await self._readability(group, topic, readable=False))

    async def allow_reading(self, group: str, topic: str) -> list[str]:
        """Allow a group to read a topic again; returns the brokers."""
        return list(await self._readability(group, topic, readable=True))

    async def set_consume_mode(
        self, group: str, topic: str, mode: str, *, pop_share_queues: int = 0
    ) -> list[str]:
        """Let a group pull or pop a topic; needs RocketMQ 5 brokers. Returns the brokers."""
        body = ConsumeMode(topic=topic, group=group, mode=mode, pop_share_queues=pop_share_queues)
        masters = await self._reach.masters_of(topic)
        await self._reach.ask_each(masters.values(), SetConsumeMode(), java_json.encode(body))
        return list(masters)

    async def _readability(
        self, group: str, topic: str, *, readable: bool | None = None
    ) -> dict[str, bool]:
        masters = await self._reach.masters_of(topic)
        header = ForbidReading(group=group, topic=topic, readable=readable)
        replies = await self._reach.ask_each(masters.values(), header)
        return {
            name: java_json.decode(replies[address].body, Readability).readable
            for name, address in masters.items()
        }

    async def consume_directly(
        self, group: str, client_id: str, message: ReceivedMessage
    ) -> DirectResult:
        """Make a consumer consume one message now; returns how that ended."""
        address, _ = location_of(message.offset_message_id)
        header = ConsumeDirectly(
            consumer_group=group,
            client_id=client_id,
            message_id=message.offset_message_id,
            broker_name=message.broker_name,
            topic=message.stored_queue.topic,
        )
        reply = await self._reach.ask(address, header, timeout_ms=_RELAY_TIMEOUT_MS)
        return java_json.decode(reply.body, DirectResult)

    async def _any_master(self, group: str) -> str:
        return next(iter((await self._masters(group, None)).values()))

    async def _masters(self, group: str, topic: str | None) -> dict[str, str]:
        if topic is not None:
            return await self._reach.masters_of(topic)
        try:
            return await self._reach.masters_of_group(group)
        except RouteNotFoundError as error:
            # It has no retry topic, as it never had a member; an operator may have created it.
            masters = await self._reach.masters()
            if not masters:
                raise error from None
            return masters
