"""The blocking record reader: reads ranges of queues in bulk, as stored records.

    with RecordReader(namesrv="127.0.0.1:9876") as reader:
        for queue in reader.queues("orders"):
            for run in reader.read([(queue, 0, reader.max_offset(queue))]):
                ...  # run.records: stored records, back to back

While the caller processes one run, the next ones are being pulled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.aio.instance.broker_calls import PULL_TIMEOUT_MS
from orbitmq.client.aio.pull.record_reader import (
    PULL_BYTES_MAX,
    PULLS_AHEAD,
    RETRIES,
    RETRY_PAUSE_MS,
    RecordRun,
    TopicLook,
)
from orbitmq.client.aio.pull.record_reader import RecordReader as AioRecordReader
from orbitmq.client.sync.blocking_client import iterating, waiting
from orbitmq.client.sync.queue_lookups import QueueLookups
from orbitmq.model.names import TOOLS_GROUP

if TYPE_CHECKING:
    from typing import Unpack

    from orbitmq.client.keywords import ClientKeywords
    from orbitmq.clock import Clock

__all__ = ["RecordReader", "RecordRun", "TopicLook"]


class RecordReader(QueueLookups[AioRecordReader]):
    """Reads ranges of queues in bulk."""

    def __init__(
        self,
        *,
        group: str = TOOLS_GROUP,
        pull_bytes_max: int = PULL_BYTES_MAX,
        pulls_ahead: int = PULLS_AHEAD,
        pull_timeout_ms: float = PULL_TIMEOUT_MS,
        retries: int = RETRIES,
        retry_pause_ms: float = RETRY_PAUSE_MS,
        clock: Clock | None = None,
        **options: Unpack[ClientKeywords],
    ) -> None:
        """Make a reader; `start` connects it. The asyncio reader explains the arguments."""
        client = AioRecordReader(
            group=group,
            pull_bytes_max=pull_bytes_max,
            pulls_ahead=pulls_ahead,
            pull_timeout_ms=pull_timeout_ms,
            retries=retries,
            retry_pause_ms=retry_pause_ms,
            clock=clock,
            **options,
        )
        super().__init__(client, what="record reader")

    topics = waiting(AioRecordReader.topics)
    server_names = waiting(AioRecordReader.server_names)
    live_brokers = waiting(AioRecordReader.live_brokers)
    present_queues = waiting(AioRecordReader.present_queues)
    look_up = waiting(AioRecordReader.look_up)
    min_offsets = waiting(AioRecordReader.min_offsets)
    max_offsets = waiting(AioRecordReader.max_offsets)
    offsets_for_times = waiting(AioRecordReader.offsets_for_times)
    slave_queues = waiting(AioRecordReader.slave_queues)
    runs_at = waiting(AioRecordReader.runs_at)
    read = iterating(AioRecordReader.read)
