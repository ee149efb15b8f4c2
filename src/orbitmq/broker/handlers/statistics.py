"""Statistics requests: group progress, counters, time spans, broker state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.broker.statistics.samples import CounterKind
from orbitmq.disk import off_loop
from orbitmq.errors import RequestRefusedError
from orbitmq.java_json import ObjectKeyed
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.key_values import KeyValueTable
from orbitmq.protocol.requests.routing import TopicList
from orbitmq.protocol.requests.statistics import (
    BrokerConsumeStats,
    ConsumeProgress,
    ConsumeStats,
    CounterReply,
    CounterWindow,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetCounter,
    GetSubscription,
    GetTimeSpans,
    ListConsumedTopics,
    QueueTimeSpans,
    Replication,
    SubscriptionReply,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.statistics.group_progress import ProgressMeter
    from orbitmq.broker.statistics.runtime import Runtime
    from orbitmq.broker.statistics.samples import Samples
    from orbitmq.broker.statistics.windows import Growth
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.model.queues import MessageQueue
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


def _messages(growth: Growth) -> CounterWindow:
    return CounterWindow(
        sum=growth.messages,
        per_second=growth.messages_per_second,
        average=1.0 if growth.messages else 0.0,
    )


def _bytes(growth: Growth) -> CounterWindow:
    return CounterWindow(
        sum=growth.bytes,
        per_second=growth.bytes_per_second,
        average=growth.bytes / growth.messages if growth.messages else 0.0,
    )


# Counters by RocketMQ's names; those that it keys by cluster name have no key here.
_COUNTERS: Final[dict[str, tuple[CounterKind, Callable[[Growth], CounterWindow]]]] = {
    "TOPIC_PUT_NUMS": (CounterKind.PUTS, _messages),
    "TOPIC_PUT_SIZE": (CounterKind.PUTS, _bytes),
    "GROUP_GET_NUMS": (CounterKind.READS, _messages),
    "GROUP_GET_SIZE": (CounterKind.READS, _bytes),
    "SNDBCK_PUT_NUMS": (CounterKind.SEND_BACKS, _messages),
    "BROKER_PUT_NUMS": (CounterKind.ALL_PUTS, _messages),
    "BROKER_GET_NUMS": (CounterKind.ALL_READS, _messages),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": (CounterKind.USER_PUTS, _messages),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": (CounterKind.USER_READS, _messages),
}
_WHOLE_BROKER: Final = frozenset(
    {CounterKind.ALL_PUTS, CounterKind.ALL_READS, CounterKind.USER_PUTS, CounterKind.USER_READS}
)


@dataclass(slots=True, eq=False, kw_only=True)
class StatisticsRequests:
    """Returns statistics."""

    cluster_name: str
    address: str
    topics: TopicTable
    groups: GroupTable
    members: Members
    progress: ProgressMeter
    samples: Samples
    # Reads the log.
    replication: Callable[[], Replication]
    runtime: Runtime

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_CONSUME_STATS: self.measure_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.measure_groups,
            RequestCode.VIEW_BROKER_STATS_DATA: self.show_counter,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.measure_times,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.list_topics,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.show_subscription,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.show_runtime,
            RequestCode.GET_BROKER_HA_STATUS: self.show_replication,
        }

    # --- progress of groups -------------------------------------------------------------------

    async def measure_group(self, _: Connection, request: Command) -> Command:
        """Return the progress of a group in some topics, or in all that it consumes."""
        asked = GetConsumeStats.decode(request.fields)
        group = asked.consumer_group
        # Compat: a list of topics is used as given; a single topic only if the group subscribes to it.
        if asked.topic_list:
            names = asked.topics
        elif asked.topic:
            names = self.progress.still_subscribed(group, asked.topics)
        else:
            names = self.progress.topics_of(group)
        topics = [topic for name in names if (topic := self.topics.get(name)) is not None]

        def measure() -> ObjectKeyed[MessageQueue, ConsumeProgress]:
            queues: ObjectKeyed[MessageQueue, ConsumeProgress] = ObjectKeyed()
            for topic in topics:
                queues.update(self.progress.by_queue(group, topic, topic.read_queues))
            return queues

        stats = ConsumeStats(
            queues=await off_loop(measure),
            consumed_per_second=sum(
                self.samples.reads_per_second(topic.name, group) for topic in topics
            ),
        )
        return request.reply(body=await off_loop(java_json.encode, stats))

    async def measure_groups(self, _: Connection, request: Command) -> Command:
        """Return the progress of all groups, by topic."""
        asked = GetBrokerConsumeStats.decode(request.fields)
        wanted = [
            (
                group,
                [
                    (topic, self.samples.reads_per_second(name, group))
                    for name in self.progress.topics_of(group)
                    if (topic := self.topics.get(name)) is not None
                    and (topic.order or not asked.ordered_topics_only)
                ],
            )
            for group in self.groups.groups
        ]

        def measure() -> BrokerConsumeStats:
            result = BrokerConsumeStats(broker_address=self.address)
            for group, topics in wanted:
                listed: list[ConsumeStats] = []
                for topic, per_second in topics:
                    queues = self.progress.by_queue(group, topic, topic.write_queues)
                    listed.append(ConsumeStats(queues=queues, consumed_per_second=per_second))
                    for queue in queues.values():
                        result.lag += queue.broker_offset - queue.consumer_offset
                        result.in_flight += queue.pull_offset - queue.consumer_offset
                result.groups.append({group: listed})
            return result

        return request.reply(body=await off_loop(lambda: java_json.encode(measure())))

    async def measure_times(self, _: Connection, request: Command) -> Command:
        """Return the age of the messages that a group has not consumed."""
        asked = GetTimeSpans.decode(request.fields)
        topic = self.topics.require(asked.topic)
        spans = await off_loop(self.progress.time_spans, asked.group, topic)
        return request.reply(body=await off_loop(java_json.encode, QueueTimeSpans(queues=spans)))

    def list_topics(self, _: Connection, request: Command) -> Command:
        """List the topics in which a group committed offsets."""
        asked = ListConsumedTopics.decode(request.fields)
        topics = sorted(self.progress.committed_topics(asked.group))
        return request.reply(
            body=java_json.encode(TopicList(topics=topics, broker_address=self.address))
        )

    def show_subscription(self, _: Connection, request: Command) -> Command:
        """Return the subscription of a group to a topic; none if it is not online."""
        asked = GetSubscription.decode(request.fields)
        group = self.members.groups.get(asked.group)
        subscription = group.subscriptions.get(asked.topic or "") if group is not None else None
        reply = SubscriptionReply(group=asked.group, topic=asked.topic, subscription=subscription)
        return request.reply(body=java_json.encode(reply))

    # --- the broker ---------------------------------------------------------------------------

    def show_counter(self, _: Connection, request: Command) -> Command:
        """Return one counter over the last minute, hour and day."""
        asked = GetCounter.decode(request.fields)
        kind, to_window = _COUNTERS.get(asked.name, (None, _messages))
        grown = None
        if kind in _WHOLE_BROKER:
            grown = self.samples.growth(kind) if asked.key == self.cluster_name else None
        elif kind is CounterKind.PUTS:
            grown = self.samples.growth(kind, asked.key)
        elif kind is not None:
            topic, _at, group = asked.key.partition("@")
            grown = self.samples.growth(kind, (topic, group))
        if grown is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{asked.name[:255]}> <{asked.key[:511]}> not exist",
                hint=f"known counters: {', '.join(_COUNTERS)}; a key exists once it was counted",
            )
        counter = CounterReply(
            minute=to_window(grown.minute), hour=to_window(grown.hour), day=to_window(grown.day)
        )
        return request.reply(body=java_json.encode(counter))

    async def show_runtime(self, _: Connection, request: Command) -> Command:
        """Return the broker's state, as `mqadmin brokerStatus` prints it."""
        table = self.runtime.from_memory() | await off_loop(self.runtime.from_disk)
        return request.reply(body=java_json.encode(KeyValueTable(table=table)))

    async def show_replication(self, _: Connection, request: Command) -> Command:
        """Return the slaves of this master, or the master of this slave."""
        return request.reply(body=java_json.encode(await off_loop(self.replication)))
