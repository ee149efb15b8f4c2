"""The pull consumer: reads queues at offsets that the caller chooses.

    async with PullConsumer("auditors", namesrv="127.0.0.1:9876") as consumer:
        for queue in await consumer.queues("orders"):
            offset = await consumer.committed(queue) or 0
            result = await consumer.pull(queue, "*", offset)
            ...
            await consumer.commit({queue: result.next_offset})

For most programs `LitePullConsumer` is the better choice: it shares queues with the other members
of its group, reads ahead and commits automatically.

Threads: the event loop it was started on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.group.offset_stores import offset_store_of
from orbitmq.client.aio.instance.broker_calls import PullStatus
from orbitmq.client.aio.instance.instances import acquire, with_own_instance
from orbitmq.client.aio.pull.poll_tracing import PollTracing, poll_tracing_of
from orbitmq.client.aio.pull.queue_lookups import QueueLookups
from orbitmq.client.aio.pull.queue_reads import PullResult, QueueReads
from orbitmq.client.aio.sending.traced_client import TracedClient
from orbitmq.client.core.namespaces import wrap
from orbitmq.client.core.subscriptions import Expression, subscription_of
from orbitmq.client.keywords import PullKeywords, options_of
from orbitmq.client.options import PullOptions
from orbitmq.clock import SystemClock
from orbitmq.errors import OffsetRefusedError, RemoteError, SettingsError
from orbitmq.model.names import check_group
from orbitmq.model.subscriptions import BROADCASTING, PULL, MessageModel
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.clients import ConsumerGroup
from orbitmq.protocol.requests.relays import DirectResult, RunningConsumer

if TYPE_CHECKING:
    from typing import Unpack

    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.transport.hooks import RpcHook

__all__ = ["PullConsumer", "PullResult", "PullStatus"]

PULL_COUNT: Final = 32
# Compat: as many retries as Java's client allows.
RETRIES_MAX: Final = 16


class PullConsumer(QueueLookups, TracedClient):
    """Reads queues at offsets that the caller chooses."""

    def __init__(
        self,
        group: str,
        *,
        rpc_hooks: Sequence[RpcHook] = (),
        clock: Clock | None = None,
        **options: Unpack[PullKeywords],
    ) -> None:
        """Make a consumer; `start` connects it.

        Args:
            group: the consumer group, for which offsets are committed.
            rpc_hooks: called before and after each request to a server.
            clock: the source of time.
            options: see `PullOptions`.
        """
        check_group(group)
        super().__init__(f"the pull consumer of the group {group!r}")
        self._clock = clock or SystemClock()
        self._options = options_of(PullOptions, options)
        if self._options.message_model != BROADCASTING:
            self._options = with_own_instance(self._options, self._clock)
        self._namespace = self._options.namespace
        self._group = wrap(self._namespace, group)
        self._rpc_hooks = tuple(rpc_hooks)
        self._member: _PullMember | None = None
        self._poll_tracing: PollTracing | None = None

    # --- life ---------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Connect, and announce the group to the known brokers."""
        instance = await acquire(self._options, rpc_hooks=self._rpc_hooks, clock=self._clock)
        self._instance = instance
        self._member = _PullMember(instance, self._group, self._options)
        self._poll_tracing = poll_tracing_of(
            await self._start_tracing(
                self._group, self._options, rpc_hooks=self._rpc_hooks, clock=self._clock
            ),
            self._options,
            client_id=instance.client_id,
            group=self._group,
            clock=self._clock,
        )
        await self._member.offset_store.load()
        await instance.add_consumer(self._member)

    async def _close(self) -> None:
        """Leave the group."""
        try:
            if self._member is not None and self._instance is not None:
                await self._instance.remove_consumer(self._member)
        finally:
            await self._stop_tracing()

    def _running_member(self) -> _PullMember:
        self._running()
        assert self._member is not None
        return self._member

    # --- messages -----------------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        count: int = PULL_COUNT,
        *,
        timeout_ms: int | None = None,
    ) -> PullResult:
        """Read up to `count` messages of a queue from an offset; never waits for new ones.

        A broker may return fewer messages than it has. Resume at the result's `next_offset`,
        whatever its status.
        """
        return await self._pull(
            queue, expression, offset, count, 0, timeout_ms or self._options.pull_timeout_ms
        )

    async def pull_held(
        self, queue: MessageQueue, expression: Expression, offset: int, count: int = PULL_COUNT
    ) -> PullResult:
        """Read like `pull`, but let the broker wait up to `hold_ms` for a message."""
        options = self._options
        return await self._pull(
            queue, expression, offset, count, options.hold_ms, options.held_pull_timeout_ms
        )

    async def _pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        count: int,
        hold_ms: int,
        timeout_ms: int,
    ) -> PullResult:
        member = self._running_member()
        if offset < 0:
            raise OffsetRefusedError(
                f"offset {offset} is below 0", hint="min_offset() returns the first offset"
            )
        if count < 1:
            raise SettingsError(f"count {count} is below 1", hint="ask for one message or more")
        inner = self._with_namespace(queue)
        subscription = subscription_of(inner.topic, expression, version_ms=self._clock.now_ms())
        result = await member.reads.read(
            inner,
            subscription,
            offset,
            messages_max=count,
            hold_ms=hold_ms,
            timeout_ms=timeout_ms,
        )
        if self._poll_tracing is not None and result.messages:
            self._poll_tracing.note(result.messages)
        return result

    async def send_back(
        self, message: ReceivedMessage, *, delay_level: int = 0, retries_max: int = RETRIES_MAX
    ) -> None:
        """Have a message delivered to the group again later, through its retry topic.

        With `delay_level` 0 the broker chooses the delay, which grows with each retry.
        """
        instance = self._running()

        async def hand_back() -> None:
            await instance.brokers.send_back(
                message, self._group, delay_level=delay_level, retries_max=retries_max
            )

        try:
            await hand_back()
        except RemoteError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            # A broker creates the group on its first heartbeat.
            await instance.heartbeat_now()
            await hand_back()

    # --- offsets ------------------------------------------------------------------------------

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed in a queue; None if there is none."""
        member = self._running_member()
        inner = self._with_namespace(queue)
        # Another member may have committed since: do not answer from memory.
        member.offset_store.remove(inner)
        committed = await member.offset_store.read(inner)
        if committed is not None:
            member.reads.lives.note_start(inner, committed)
        return committed

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets, and wait until they are stored.

        The offset to commit is that of the first message that is not done.
        """
        member = self._running_member()
        for queue, offset in offsets.items():
            if offset < 0:
                raise OffsetRefusedError(
                    f"offset {offset} cannot be committed to queue {queue.queue_id} of topic "
                    f"{queue.topic!r}",
                    hint="offsets start at 0",
                )
        chosen = {self._with_namespace(queue): offset for queue, offset in offsets.items()}
        await member.offset_store.commit(chosen)


class _PullMember:
    """A pull consumer, as its instance sees it: it reads on request and shares no queues."""

    def __init__(self, instance: ClientInstance, group: str, options: PullOptions) -> None:
        self.group = group
        self._model = MessageModel(options.message_model)
        self._started_ms = instance.clock.now_ms()
        self.reads = QueueReads(instance, group, namespace=options.namespace)
        self.offset_store = offset_store_of(instance, group, options)

    def heartbeat(self) -> ConsumerGroup:
        """Announce the group without subscriptions; each pull carries its own."""
        return ConsumerGroup(
            consume_type=PULL, group=self.group, message_model=self._model, subscriptions=[]
        )

    def topics(self) -> Iterable[str]:
        """Return none: routes are looked up when needed."""
        return ()

    def rebalance_soon(self) -> None:
        """Do nothing: queues are not shared."""

    def route_changed(self, topic: str) -> None:
        """Do nothing: the next pull uses the new route."""

    async def persist_offsets(self) -> None:
        """Do nothing: commits are sent at once."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Do nothing: the caller decides where to read."""

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the last committed offsets of a topic."""
        return self.offset_store.offsets(topic)

    def running(self, *, with_stacks: bool) -> RunningConsumer:
        """Describe the consumer, for tools."""
        del with_stacks
        return RunningConsumer(
            properties={
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
            }
        )

    async def consume_directly(self, record: bytes, broker_name: str) -> DirectResult | None:
        """Refuse, since there is no listener."""
        del record, broker_name
        return None
