"""A running lite pull consumer as a group member: queues, offsets, heartbeats.

Threads: one event loop.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from orbitmq.client.aio.group.offset_stores import offset_store_of
from orbitmq.client.aio.group.rebalancing import Rebalancing
from orbitmq.client.aio.group.start_offsets import start_offsets_of
from orbitmq.client.aio.pull.prefetching import Prefetching, PullPace
from orbitmq.client.aio.pull.queue_reads import QueueReads
from orbitmq.client.core.consuming.assignment import Membership
from orbitmq.client.core.consuming.flow_control import MIB
from orbitmq.client.core.consuming.poll_buffer import PollBuffer
from orbitmq.client.core.consuming.start_offsets import CONSUME_FROM
from orbitmq.errors import OrbitError, RouteNotFoundError
from orbitmq.java_json import ObjectKeyed
from orbitmq.lifecycle import OwnedTasks, Periodic
from orbitmq.model.subscriptions import PULL, MessageModel
from orbitmq.protocol.requests.clients import ConsumerGroup
from orbitmq.protocol.requests.relays import DirectResult, QueueProgress, RunningConsumer

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.core.consuming.allocation import Allocation
    from orbitmq.client.core.subscriptions import Subscriptions
    from orbitmq.client.options import LitePullOptions
    from orbitmq.model.queues import MessageQueue
    from orbitmq.model.subscriptions import Subscription

log = logging.getLogger(__name__)

# Called with a topic and queues of it.
QueuesListener = Callable[[str, list["MessageQueue"]], Awaitable[None] | None]


class LitePullMember:
    """A lite pull consumer from its start to its stop."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: LitePullOptions,
        *,
        subscriptions: Subscriptions,
        filters: Subscriptions,
        allocation: Allocation,
        on_assigned: QueuesListener | None,
        listeners: Mapping[str, QueuesListener],
    ) -> None:
        """Assemble the parts.

        Args:
            instance: the client instance whose connections to use.
            group: the group, as brokers know it.
            options: how to read and commit.
            subscriptions: the topics whose queues the group shares.
            filters: the subscriptions of topics whose queues the user assigns.
            allocation: how the members share the queues.
            on_assigned: called with the queues of a topic that this consumer now has.
            listeners: by topic, called with all its queues when these change.
        """
        self.group = group
        self._instance = instance
        self._options = options
        self._subscriptions = subscriptions
        self._filters = filters
        self._on_assigned = on_assigned
        self._listeners = listeners
        self._tasks = OwnedTasks()
        self._watched: dict[str, set[MessageQueue]] = {}
        self._model = MessageModel(options.message_model)
        self._started_ms = instance.clock.now_ms()
        self.offset_store = offset_store_of(instance, group, options)
        self.buffer = PollBuffer(
            queue_count_max=options.pull_threshold_for_queue,
            queue_bytes_max=options.pull_threshold_size_for_queue * MIB,
            count_max=options.pull_threshold_for_all,
        )
        starts = start_offsets_of(instance, self.offset_store, options)
        self.prefetching = Prefetching(
            self.buffer,
            QueueReads(instance, group, namespace=options.namespace, lite=True),
            PullPace(
                batch_max=options.pull_batch_size,
                hold_ms=options.hold_ms,
                timeout_ms=options.held_pull_timeout_ms,
                retry_ms=options.pull_retry_ms,
            ),
            subscription_of=self._subscription_of,
            start_offset=starts.of,
            clock=instance.clock,
        )
        self._rebalancing = Rebalancing(
            Membership(
                group=group,
                client_id=instance.client_id,
                allocation=allocation,
                model=self._model,
            ),
            self,
            instance,
            topics=subscriptions.topics,
            offsets=self.offset_store,
            starts=starts,
            interval_ms=options.rebalance_interval_ms,
        )
        self._is_sharing = False
        self._auto_commits = Periodic(
            f"auto commit {group}",
            options.auto_commit_interval_ms,
            self._commit_consumed,
            instance.clock,
        )

    def _subscription_of(self, topic: str) -> Subscription:
        return (self._filters if topic in self._filters else self._subscriptions).of(topic)

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group."""
        await self.offset_store.load()
        await self._instance.add_consumer(self)
        try:
            await self._check_filters()
            await self._watch_topics()
        except BaseException:
            await self._instance.remove_consumer(self)
            raise
        self._auto_commits.start()

    async def stop(self) -> None:
        """Commit what is done, and leave the group."""
        await self._auto_commits.stop()
        await self._tasks.cancel()
        self._record_consumed()
        if self._is_sharing:
            await self._rebalancing.stop()
        elif self._commits_unasked:
            await self.offset_store.persist(self.buffer.queues)
        await self.prefetching.stop_all()
        await self._instance.remove_consumer(self)

    def share(self) -> None:
        """Start to share the queues of subscribed topics with the group."""
        self._is_sharing = True
        self._rebalancing.start()

    def subscriptions_changed(self) -> None:
        """Announce changed subscriptions to the brokers, then rebalance."""
        self._tasks.start(self._announce_subscriptions(), name="announce subscriptions")

    def read(self, queues: Collection[MessageQueue]) -> None:
        """Read exactly these queues, which the user assigned."""
        gone = set(self.buffer.queues) - set(queues)
        if gone:
            self._record_consumed()
            for queue in gone:
                self.prefetching.drop(queue)
            self._tasks.start(self._forget_offsets(gone), name="commit offsets of dropped queues")
        for queue in queues:
            self.prefetching.start(queue)

    async def _forget_offsets(self, queues: set[MessageQueue]) -> None:
        if self._commits_unasked:
            await self.offset_store.persist(queues)
        for queue in queues - set(self.buffer.queues):
            self.offset_store.remove(queue)

    async def _announce_subscriptions(self) -> None:
        await self._refresh_routes()
        try:
            await self._check_filters()
        except OrbitError as error:
            log.warning("subscription refused group=%s reason=%s", self.group, error)
        await self._instance.heartbeat_now()
        if self._is_sharing:
            self._rebalancing.run_soon()
        else:
            self.share()

    async def _refresh_routes(self) -> None:
        """Look up the routes of new topics: their brokers must know this consumer first."""
        routes = self._instance.routes
        for topic in self._subscriptions.topics():
            if routes.cached_reading(topic) is None:
                try:
                    await routes.refresh(topic)
                except OrbitError as error:
                    log.info("consumer waits for a topic topic=%s reason=%s", topic, error)

    async def _check_filters(self) -> None:
        for subscription in (*self._subscriptions.all(), *self._filters.all()):
            if not subscription.is_by_tag:
                await self._instance.brokers.check_subscription(self.group, subscription)

    # --- offsets ------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Resume reading a queue at another offset."""
        self.buffer.seek(queue, offset)
        await self.prefetching.restart(queue)

    @property
    def _commits_unasked(self) -> bool:
        """Whether it commits where it starts and how far it is, or only what the user commits.

        A member of a group commits where it starts: what arrives meanwhile is for the group.
        """
        return self._is_sharing or self._options.auto_commit

    async def _commit_consumed(self) -> None:
        self._record_consumed()
        await self.persist_offsets()

    def _record_consumed(self) -> None:
        if self._options.auto_commit:
            for queue, offset in self.buffer.committable().items():
                # A seek may have lowered it.
                self.offset_store.update(queue, offset, increase_only=False)

    # --- as rebalancing sees it -----------------------------------------------------------------

    async def add_queue(self, queue: MessageQueue, start_offset: int) -> None:
        """Start to read a queue."""
        self.prefetching.start(queue, start_offset)

    async def drop_queue(self, queue: MessageQueue) -> bool:
        """Stop reading a queue; messages returned but not done go to another member."""
        self._record_consumed()
        self.prefetching.drop(queue)
        return True

    async def queues_changed(
        self, topic: str, queues: Sequence[MessageQueue], own: AbstractSet[MessageQueue]
    ) -> None:
        """Tell the user which queues this consumer now has."""
        del queues
        if self._on_assigned is not None:
            await self._call_listener(self._on_assigned, topic, sorted(own))

    # --- as the instance sees it ----------------------------------------------------------------

    def heartbeat(self) -> ConsumerGroup:
        """Describe what it consumes, and how."""
        return ConsumerGroup(
            consume_from=CONSUME_FROM[self._options.consume_from],
            consume_type=PULL,
            group=self.group,
            message_model=self._model,
            subscriptions=self._subscriptions.all(),
        )

    def topics(self) -> Iterable[str]:
        """Return the topics it reads or watches, whose routes are kept fresh."""
        return {*self._subscriptions.topics(), *self._filters.topics(), *self._listeners}

    def rebalance_soon(self) -> None:
        """Rebalance now: members joined or left."""
        self._rebalancing.run_soon()

    def route_changed(self, topic: str) -> None:
        """Rebalance, and notify the listener of the topic if its queues changed."""
        self._rebalancing.run_soon()
        if topic in self._watched:
            queues = self._instance.routes.cached_reading(topic) or []
            if set(queues) != self._watched[topic]:
                self._watched[topic] = set(queues)
                self._tasks.start(
                    self._call_listener(self._listeners[topic], topic, queues),
                    name="tell of queues",
                )

    async def persist_offsets(self) -> None:
        """Commit the recorded offsets."""
        if self._commits_unasked:
            await self.offset_store.persist_all()

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Resume at offsets that an operator has set."""
        for queue, offset in offsets.items():
            if queue in self.buffer:
                log.info(
                    "offset reset group=%s topic=%s queue=%s to=%d",
                    self.group,
                    topic,
                    queue,
                    offset,
                )
                self.offset_store.update(queue, offset, increase_only=False)
                self.prefetching.choose(queue, offset)
                await self.seek(queue, offset)

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the recorded offsets of the queues of a topic."""
        return self.offset_store.offsets(topic)

    def running(self, *, with_stacks: bool) -> RunningConsumer:
        """Describe its state, for tools."""
        del with_stacks
        return RunningConsumer(
            properties={
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
            },
            queues=ObjectKeyed({queue: self._progress(queue) for queue in self.buffer.queues}),
            subscriptions=[*self._subscriptions.all(), *self._filters.all()],
        )

    async def consume_directly(self, record: bytes, broker_name: str) -> DirectResult | None:
        """Refuse, since there is no listener."""
        del record, broker_name
        return None

    def _progress(self, queue: MessageQueue) -> QueueProgress:
        waiting = self.buffer.buffered(queue)
        return QueueProgress(
            cached_messages=len(waiting),
            cached_min_offset=waiting[0].queue_offset if waiting else 0,
            cached_max_offset=waiting[-1].queue_offset if waiting else 0,
            cached_mib=sum(message.size for message in waiting) // MIB,
            commit_offset=self.offset_store.cached(queue) or 0,
        )

    # --- topics that the user watches -----------------------------------------------------------

    async def watch(self, topic: str) -> None:
        """Remember the present queues of a topic, to report later changes."""
        try:
            queues = await self._instance.routes.reading(topic)
        except RouteNotFoundError:
            queues = []
        self._watched[topic] = set(queues)

    async def _watch_topics(self) -> None:
        for topic in self._listeners:
            await self.watch(topic)

    async def _call_listener(
        self, listener: QueuesListener, topic: str, queues: list[MessageQueue]
    ) -> None:
        try:
            outcome = listener(topic, queues)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception:
            log.exception("listener failed group=%s topic=%s", self.group, topic)
