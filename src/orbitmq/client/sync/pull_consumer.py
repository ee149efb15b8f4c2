"""The blocking pull consumer: the program decides what to read, where and when.

    with PullConsumer("auditors", namesrv="127.0.0.1:9876") as consumer:
        for queue in consumer.queues("orders"):
            offset = consumer.committed(queue) or 0
            result = consumer.pull(queue, "*", offset)
            ...
            consumer.commit({queue: result.next_offset})

Most programs should use `LitePullConsumer`, which shares queues with the other members of its
group, prefetches, and commits automatically.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbitmq.client.aio.pull.pull_consumer import PullConsumer as AioPullConsumer
from orbitmq.client.sync.blocking_client import waiting
from orbitmq.client.sync.queue_lookups import QueueLookups

if TYPE_CHECKING:
    from typing import Unpack

    from orbitmq.client.aio.sending.trace_writer import TraceCounts
    from orbitmq.client.keywords import PullKeywords
    from orbitmq.clock import Clock
    from orbitmq.transport.hooks import RpcHook


class PullConsumer(QueueLookups[AioPullConsumer]):
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
        client = AioPullConsumer(group, rpc_hooks=rpc_hooks, clock=clock, **options)
        super().__init__(client, what=f"pull consumer of group {group!r}")

    pull = waiting(AioPullConsumer.pull)
    pull_held = waiting(AioPullConsumer.pull_held)
    send_back = waiting(AioPullConsumer.send_back)
    committed = waiting(AioPullConsumer.committed)
    commit = waiting(AioPullConsumer.commit)

    @property
    def trace_counts(self) -> TraceCounts | None:
        """What became of its trace records; None without `trace`."""
        return self._client.trace_counts
