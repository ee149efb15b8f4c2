"""The blocking staged writer: rows become visible once their batch is committed.

Needs OrbitMQ brokers; docs/decisions/0004 explains how it works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.aio.sending.staged_writer import STAGE_TIMEOUT_MS
from orbitmq.client.aio.sending.staged_writer import StagedWriter as AioStagedWriter
from orbitmq.client.sync.blocking_client import BlockingClient, waiting

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future
    from typing import Unpack

    from orbitmq.client.keywords import ClientKeywords
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue
    from orbitmq.protocol.requests.staged_writes import StagedReply


class StagedWriter(BlockingClient[AioStagedWriter]):
    """Stages rows at the brokers of their queues, and commits them by batch."""

    def __init__(self, *, clock: Clock | None = None, **options: Unpack[ClientKeywords]) -> None:
        """Make a writer; `start` makes it usable.

        Args:
            clock: the source of time.
            options: see `ClientOptions`.
        """
        super().__init__(AioStagedWriter(clock=clock, **options), what="staged writer")

    commit = waiting(AioStagedWriter.commit)

    def stage_async(
        self,
        queue: MessageQueue,
        packed_rows: bytes,
        *,
        write_id: str,
        first_sequence: int,
        timeout_ms: float = STAGE_TIMEOUT_MS,
    ) -> Future[StagedReply]:
        """Start to stage rows, packed like a batch, at the broker of a queue; return a future."""

        def start() -> asyncio.Future[StagedReply]:
            return self._client.begin_stage(
                queue,
                packed_rows,
                write_id=write_id,
                first_sequence=first_sequence,
                timeout_ms=timeout_ms,
            )

        return self._running().start_future(start)
