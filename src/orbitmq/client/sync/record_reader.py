"""The blocking record reader: whole stretches of queues as stored records.

    with RecordReader(namesrv="127.0.0.1:9876") as reader:
        for queue in reader.queues("orders"):
            for run in reader.read([(queue, 0, reader.max_offset(queue))]):
                ...  # run.records: bytes as the store keeps them, back to back

While the caller works on one run, the next ones are on their way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from orbitmq.client.aio.instance.broker_calls import PULL_TIMEOUT_MS
from orbitmq.client.aio.pull.record_reader import (
    PULL_BYTES_MAX,
    PULLS_AHEAD,
    RETRIES,
    RETRY_PAUSE_MS,
    Range,
    RecordRun,
)
from orbitmq.client.aio.pull.record_reader import RecordReader as AioRecordReader
from orbitmq.client.sync.queue_lookups import QueueLookups
from orbitmq.errors import StateError
from orbitmq.model.names import TOOLS_GROUP
from orbitmq.model.subscriptions import EVERYTHING

if TYPE_CHECKING:
    from typing import Unpack

    from orbitmq.client.core.subscriptions import Expression
    from orbitmq.client.keywords import ClientKeywords
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue

__all__ = ["RecordReader", "RecordRun"]


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
        """Make a reader; `start` connects it. See the asyncio form for the arguments."""
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

    def topics(self) -> list[str]:
        """Name every topic of the cluster, those of the system too."""
        return self._call(self._client.topics())

    def server_names(self) -> set[str]:
        """Name all clusters and brokers; topics with these names are the brokers' own."""
        return self._call(self._client.server_names())

    def present_queues(self, topic: str) -> list[MessageQueue]:
        """List the queues of a topic, as name servers tell of them now."""
        return self._call(self._client.present_queues(topic))

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Give the offset of the oldest message of each queue."""
        return self._call(self._client.min_offsets(queues))

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Give the offset that the next message of each queue will have."""
        return self._call(self._client.max_offsets(queues))

    def offsets_for_times(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Give for each queue the offset of the first message stored at its time or later."""
        return self._call(self._client.offsets_for_times(times_ms))

    def read(
        self, ranges: Iterable[Range], expression: Expression = EVERYTHING
    ) -> Iterator[RecordRun]:
        """Read ranges of queues, one after the other; their ends must have been there before."""
        runs = self._client.read(ranges, expression)
        try:
            while (run := self._call(_next(runs))) is not None:
                yield run
        finally:
            # Whoever stopped the reader has ended them.
            with suppress(StateError):
                self._call(_end(runs))


async def _end(runs: AsyncGenerator[RecordRun, None]) -> None:
    await runs.aclose()


async def _next(runs: AsyncGenerator[RecordRun, None]) -> RecordRun | None:
    return await anext(runs, None)
