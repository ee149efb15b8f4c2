"""Draining a broker: stops sends to it, and finds what it has yet to deliver.

Two things stop sends, and each is needed. Name servers take the right to write from the broker's
topics: producers go elsewhere as soon as they look up their routes again, and none of their sends
fails. But a name server forgets that when it restarts, or when the broker reports a new topic. The
broker's own `brokerPermission` stays, and outlives restarts. But our brokers refuse sends then, so
it comes second, when producers have moved.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq import java_json
from orbitmq.client.aio.admin.groups import lag_of
from orbitmq.errors import (
    ClusterMissingError,
    MasterMissingError,
    NotSupportedError,
    RemoteError,
    SettingsError,
)
from orbitmq.model.names import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    REPLY_TOPIC_SUFFIX,
    TRANSACTION_GROUP,
    is_group_topic,
    is_system_group,
    is_system_topic,
)
from orbitmq.model.routes import MASTER_ID
from orbitmq.model.subscriptions import BROADCASTING
from orbitmq.model.topics import Permission
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.clients import ConsumerConnections, ListConsumerConnections
from orbitmq.protocol.requests.offsets import GetCommittedOffset, OffsetReply
from orbitmq.protocol.requests.topics import (
    GetTopicStats,
    GroupNames,
    ListTopicConsumers,
    TopicStats,
)
from orbitmq.protocol.requests.transactions import ListTransactions, TransactionPage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.client.aio.admin.brokers import Brokers
    from orbitmq.client.aio.admin.pending import Pending
    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.client.aio.admin.topics import Topics
    from orbitmq.model.topics import TopicConfig

_READ_ONLY: Final = int(Permission.READ)
_READ_AND_WRITE: Final = int(Permission.READ | Permission.WRITE)
_PERMISSION: Final = "brokerPermission"
_TOPICS_AT_ONCE: Final = 16
# Longer than any due time, so that one span has all timers.
_ANY_SPAN_MS: Final = 100 * 365 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerToDrain:
    """A master that is taken out of service."""

    name: str
    address: str
    # Of its slaves, which have to be stopped with it.
    slaves: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacles:
    """Topics whose sends would fail if this broker took none."""

    # No other broker has them, or may be sent to.
    only_here: tuple[str, ...] = ()
    # Brokers that have one of those, and take no messages: they are drained, too.
    read_only: tuple[str, ...] = ()
    # Their producers stay with the brokers that an operator listed.
    ordered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """A group that has not consumed all that a broker has for it."""

    group: str
    lag: int
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What a broker still has to deliver."""

    log_end: int
    groups: tuple[GroupLag, ...]
    # Messages that become visible later: by a delay level, at a due time, when they are committed.
    delayed: int = 0
    timed: int = 0
    half: int = 0

    @property
    def lag(self) -> int:
        """How many messages groups have not consumed, each counted for every group."""
        return sum(one.lag for one in self.groups)

    @property
    def pending(self) -> int:
        """How many messages are not visible yet."""
        return self.delayed + self.timed + self.half


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What nobody waits for, and what stays on the broker when it is switched off."""

    # Groups with members that committed nothing in a topic with messages, by group.
    uncommitted: Mapping[str, int]
    # Messages by topic that no group consumes.
    topics: Mapping[str, int]
    dead_letters: int
    # Groups each of whose members reads for itself: no broker knows how far.
    broadcasting: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Draining:
    """Stops sends to a broker, and measures what it still has to deliver."""

    _reach: Reach
    _brokers: Brokers
    _topics: Topics
    _pending: Pending

    async def find(self, broker: str) -> BrokerToDrain:
        """Find a master by name or address; raises if it is a slave or unknown."""
        view = await self._brokers.clusters()
        for name, group in view.brokers.items():
            address = group.addresses.get(MASTER_ID)
            if address is not None and broker in {name, address}:
                slaves = tuple(one for number, one in group.addresses.items() if number)
                return BrokerToDrain(name=name, address=address, slaves=slaves)
            if broker == name:
                raise MasterMissingError(name)
            if broker in group.addresses.values():
                raise SettingsError(
                    f"the broker {broker} is a slave of {name}", hint=f"name its master: {name}"
                )
        raise ClusterMissingError("master", broker, there=await self._reach.masters())

    async def obstacles(self, broker: BrokerToDrain) -> Obstacles:
        """Find the topics whose sends would fail."""
        own = await self._users_topics(broker)
        read_only: set[str] = set()
        at_once = asyncio.Semaphore(_TOPICS_AT_ONCE)

        async def look(topic: str) -> tuple[bool, bool]:
            async with at_once:
                route = await self._reach.name_servers.route(topic)
            listed = (part.rpartition(":")[0] for part in (route.order_config or "").split(";"))
            masters = {one.name for one in route.brokers if MASTER_ID in one.addresses}
            others = [one for one in route.queues if one.broker_name in masters - {broker.name}]
            elsewhere = any(one.permission & Permission.WRITE for one in others)
            if not elsewhere:
                read_only.update(one.broker_name for one in others)
            return elsewhere, broker.name in listed

        names = sorted(name for name, config in own.items() if config.is_writable)
        found = dict(zip(names, await asyncio.gather(*map(look, names)), strict=True))
        return Obstacles(
            only_here=tuple(name for name, (elsewhere, _) in found.items() if not elsewhere),
            read_only=tuple(sorted(read_only)),
            ordered=tuple(name for name, (_, ordered) in found.items() if ordered),
        )

    # --- sends ----------------------------------------------------------------------------------

    async def refuses_sends(self, broker: BrokerToDrain) -> bool:
        """Whether the broker's own permission forbids sends."""
        permission = (await self._brokers.options(broker.address)).get(_PERMISSION, "")
        return permission.isdecimal() and not int(permission) & Permission.WRITE

    async def send_producers_away(self, broker: BrokerToDrain) -> None:
        """Take the right to write from the routes; the broker still takes what arrives."""
        await self._brokers.forbid_writing(broker.name)

    async def refuse_sends(self, broker: BrokerToDrain) -> None:
        """Make the broker one that is only read; it remembers that."""
        await self._brokers.set_options(broker.address, {_PERMISSION: str(_READ_ONLY)})

    async def undo(self, broker: BrokerToDrain) -> None:
        """Let producers send to the broker again."""
        await self._brokers.set_options(broker.address, {_PERMISSION: str(_READ_AND_WRITE)})
        await self._brokers.allow_writing(broker.name)

    # --- what is left ---------------------------------------------------------------------------

    async def log_end(self, broker: BrokerToDrain) -> int:
        """The end of the broker's log: it grows with every message."""
        return _number((await self._brokers.runtime(broker.address)).get("commitLogMaxOffset"))

    async def backlog(self, broker: BrokerToDrain) -> Backlog:
        """Measure what groups have not consumed, and what is not due yet."""
        runtime = await self._brokers.runtime(broker.address)
        lags: dict[str, int] = {}
        for groups in (await self._brokers.progress(broker.address)).groups:
            for group, topics in groups.items():
                if not is_system_group(group):
                    lag = sum(lag_of(one) for topic in topics for one in topic.queues.values())
                    lags[group] = lags.get(group, 0) + lag
        behind = sorted(group for group, lag in lags.items() if lag)
        return Backlog(
            log_end=_number(runtime.get("commitLogMaxOffset")),
            groups=tuple(
                [
                    GroupLag(
                        group=group,
                        lag=lags[group],
                        members=len((await self._members(broker, group)).connections),
                    )
                    for group in behind
                ]
            ),
            delayed=_delayed(runtime),
            timed=await self._timed(broker, runtime),
            half=await self._half(broker),
        )

    async def unread(self, broker: BrokerToDrain) -> Unread:
        """Find the messages that no group has consumed or will."""
        progress = await self._brokers.progress(broker.address)
        committed = {
            (group, queue.topic)
            for groups in progress.groups
            for group, topics in groups.items()
            for topic in topics
            for queue in topic.queues
        }
        uncommitted: dict[str, int] = {}
        topics: dict[str, int] = {}
        broadcasting: set[str] = set()
        for topic in sorted(await self._users_topics(broker)):
            count = await self._count(broker, topic)
            groups = await self._consumers(broker, topic) if count else []
            if count and not groups:
                topics[topic] = count
            for group in groups:
                if is_system_group(group) or (group, topic) in committed:
                    continue
                found = await self._members(broker, group)
                if found.message_model == BROADCASTING:
                    broadcasting.add(group)
                elif found.connections:
                    uncommitted[group] = uncommitted.get(group, 0) + count
        return Unread(
            uncommitted=uncommitted,
            topics=topics,
            dead_letters=await self._dead_letters(broker),
            broadcasting=tuple(sorted(broadcasting)),
        )

    async def _users_topics(self, broker: BrokerToDrain) -> dict[str, TopicConfig]:
        view = await self._brokers.clusters()
        own = {
            *view.brokers,
            *view.clusters,
            *(f"{one}{REPLY_TOPIC_SUFFIX}" for one in view.clusters),
        }
        return {
            name: config
            for name, config in (await self._topics.configs(broker.address)).items()
            if name not in own and not is_system_topic(name) and not is_group_topic(name)
        }

    async def _count(self, broker: BrokerToDrain, topic: str) -> int:
        stats = await self._reach.ask_for(broker.address, GetTopicStats(topic=topic), TopicStats)
        return sum(max(one.max_offset - one.min_offset, 0) for one in stats.queues.values())

    async def _dead_letters(self, broker: BrokerToDrain) -> int:
        topics: Iterable[str] = await self._topics.configs(broker.address)
        return sum(
            [
                await self._count(broker, topic)
                for topic in topics
                if topic.startswith(DEAD_LETTER_PREFIX)
            ]
        )

    async def _consumers(self, broker: BrokerToDrain, topic: str) -> list[str]:
        header = ListTopicConsumers(topic=topic)
        return list((await self._reach.ask_for(broker.address, header, GroupNames)).groups)

    async def _members(self, broker: BrokerToDrain, group: str) -> ConsumerConnections:
        header = ListConsumerConnections(consumer_group=group)
        try:
            return await self._reach.ask_for(broker.address, header, ConsumerConnections)
        except RemoteError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return ConsumerConnections()

    async def _timed(self, broker: BrokerToDrain, runtime: Mapping[str, str]) -> int:
        try:
            counts = await self._pending.counts(broker.address, span_ms=_ANY_SPAN_MS)
        except RemoteError as error:
            # Our brokers refuse it if their timers are off.
            if error.code not in {
                ResponseCode.SYSTEM_ERROR,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            }:
                raise
            # Compat: RocketMQ 5 counts those in its wheel, and those that wait for their place.
            return _number(runtime.get("timerCongestNum")) + _number(
                runtime.get("timerOffsetBehind")
            )
        return sum(counts.values())

    async def _half(self, broker: BrokerToDrain) -> int:
        header = ListTransactions(transaction_id=None, limit=1)
        try:
            reply = await self._reach.ask(broker.address, header)
        except NotSupportedError:
            return await self._half_at_java(broker)
        return msgspec.json.decode(reply.body, type=TransactionPage).count

    async def _half_at_java(self, broker: BrokerToDrain) -> int:
        """Half messages above the one below which all have ended."""
        try:
            reply = await self._reach.ask(broker.address, GetTopicStats(topic=HALF_TOPIC))
        except RemoteError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return 0
        open_ones = 0
        for queue, stats in java_json.decode(reply.body, TopicStats).queues.items():
            header = GetCommittedOffset(
                consumer_group=TRANSACTION_GROUP,
                topic=HALF_TOPIC,
                queue_id=queue.queue_id,
                zero_if_missing=False,
            )
            try:
                found = await self._reach.ask(broker.address, header)
                ended = int(OffsetReply.decode(found.fields).offset)
            except RemoteError as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
                ended = stats.min_offset
            open_ones += max(stats.max_offset - ended, 0)
        return open_ones


def _delayed(runtime: Mapping[str, str]) -> int:
    """Messages of all delay levels that are not delivered yet."""
    total = 0
    for name, value in runtime.items():
        if name.startswith("scheduleMessageOffset_"):
            delivered, _, end = value.partition(",")
            total += max(_number(end) - _number(delivered), 0)
    return total


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.strip().isdecimal() else 0
