"""Questions about queues that all blocking pull consumers answer."""

from __future__ import annotations

from typing import TypeVar

from orbitmq.client.aio.pull.queue_lookups import QueueLookups as AioQueueLookups
from orbitmq.client.sync.blocking_client import BlockingClient, waiting

L_co = TypeVar("L_co", bound=AioQueueLookups, covariant=True)


class QueueLookups(BlockingClient[L_co]):
    """Lists queues and finds offsets; names of queues are without the namespace."""

    queues = waiting(AioQueueLookups.queues)
    missing_queues = waiting(AioQueueLookups.missing_queues)
    min_offset = waiting(AioQueueLookups.min_offset)
    max_offset = waiting(AioQueueLookups.max_offset)
    offset_for_time = waiting(AioQueueLookups.offset_for_time)
    oldest_ms = waiting(AioQueueLookups.oldest_ms)
