"""What blocking pull consumers can be asked about queues."""

from __future__ import annotations

from typing import TypeVar

from orbitmq.client.aio.pull.queue_lookups import QueueLookups as AioQueueLookups
from orbitmq.client.sync.blocking_client import BlockingClient, waiting

L_co = TypeVar("L_co", bound=AioQueueLookups, covariant=True)


class QueueLookups(BlockingClient[L_co]):
    """Questions about queues; queues are named as users of the namespace know them."""

    queues = waiting(AioQueueLookups.queues)
    min_offset = waiting(AioQueueLookups.min_offset)
    max_offset = waiting(AioQueueLookups.max_offset)
    offset_for_time = waiting(AioQueueLookups.offset_for_time)
    oldest_ms = waiting(AioQueueLookups.oldest_ms)
