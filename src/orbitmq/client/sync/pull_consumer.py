"""The blocking pull consumer: reads where and when it is told to.

    with PullConsumer("auditors", namesrv="127.0.0.1:9876") as consumer:
        for queue in consumer.queues("orders"):
            offset = consumer.committed(queue) or 0
            result = consumer.pull(queue, "*", offset)
            ...
            consumer.commit({queue: result.next_offset})

Most programs are better served by `LitePullConsumer`, which shares queues with the other members
of its group, reads ahead and commits by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orbitmq.client.aio.pull.pull_consumer import COUNT, RETRIES_MAX
from orbitmq.client.aio.pull.pull_consumer import PullConsumer as AioPullConsumer
from orbitmq.client.sync.queue_lookups import QueueLookups

if TYPE_CHECKING:
    from typing import Unpack

    from orbitmq.client.aio.pull.queue_reads import PullResult
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.client.core.subscriptions import Expression
    from orbitmq.client.keywords import PullKeywords
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.transport.hooks import RpcHook


class PullConsumer(QueueLookups[AioPullConsumer]):
    """Reads queues at offsets that the caller gives."""

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
            group: the consumer group, in whose name offsets are committed.
            rpc_hooks: called before and after each request.
            clock: where the time comes from.
            options: see `PullOptions`.
        """
        client = AioPullConsumer(group, rpc_hooks=rpc_hooks, clock=clock, **options)
        super().__init__(client, what=f"pull consumer of group {group!r}")

    def pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        count: int = COUNT,
        *,
        timeout_ms: int | None = None,
    ) -> PullResult:
        """Read what a queue has at an offset; an answer without messages comes at once.

        A broker may give fewer messages than asked for, though more are there; go on at the
        result's `next_offset`, whatever its status.
        """
        return self._call(
            self._client.pull(queue, expression, offset, count, timeout_ms=timeout_ms)
        )

    def pull_held(
        self, queue: MessageQueue, expression: Expression, offset: int, count: int = COUNT
    ) -> PullResult:
        """Read like `pull`; where there is nothing yet, the broker waits for it, `hold_ms` long."""
        return self._call(self._client.pull_held(queue, expression, offset, count))

    def send_back(
        self, message: ReceivedMessage, *, delay_level: int = 0, retries_max: int = RETRIES_MAX
    ) -> None:
        """Let the group get a message again later, from its retry topic.

        Without a level the broker chooses the delay by how often the message came back already.
        """
        self._call(
            self._client.send_back(message, delay_level=delay_level, retries_max=retries_max)
        )

    def committed(self, queue: MessageQueue) -> int | None:
        """Say how far the group has committed in a queue; None for not at all."""
        return self._call(self._client.committed(queue))

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets; returns once they are kept.

        An offset is that of the first message that is not done.
        """
        self._call(self._client.commit(offsets))
