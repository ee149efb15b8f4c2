"""What slaves copy from a master: progress of delays and timers, store tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from orbitmq import java_json
from orbitmq.disk import off_loop
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.requests.metadata import (
    ConsumeModeTable,
    ReservedNumbers,
    StoreTables,
    TimerCheckpoint,
    TimerMetrics,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.delay.progress import DelayProgress
    from orbitmq.broker.timers.timer_delivery import TimerDelivery
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.model.queues import QueueOffset
    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False, kw_only=True)
class ReplicationRequests:
    """Hands the state of a master to its slaves."""

    topics: TopicTable
    delays: DelayProgress
    # How far each delay level is delivered; nothing at a slave, which delivers none.
    delay_offsets: Callable[[], Mapping[int, QueueOffset]]
    timers: TimerDelivery
    store: MessageStore

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delay_progress,
            RequestCode.GET_TIMER_CHECK_POINT: self.get_timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self.get_timer_metrics,
            RequestCode.LIST_STORE_TABLES: self.list_store_tables,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.list_consume_modes,
        }

    def get_delay_progress(self, _: Connection, request: Command) -> Command:
        """Return the content of the file of delay progress, as it would be saved now."""
        document = self.delays.document(self.delay_offsets())
        return request.reply(body=java_json.encode(document))

    async def get_timer_checkpoint(self, _: Connection, request: Command) -> Command:
        """Return the saved progress of the timers."""
        async with self.timers.turn:
            progress, version = self.timers.timers.saved()
        checkpoint = TimerCheckpoint(
            read_ms=progress.read_ms,
            timer_log_end=progress.log_end,
            queue_offset=progress.queue_offset,
            master_queue_offset=progress.queue_offset,
            data_version=version,
        )
        return request.reply(body=checkpoint.encode())

    def get_timer_metrics(self, _: Connection, request: Command) -> Command:
        """Return counts of timers by topic: none, as this broker counts them when it is asked."""
        return request.reply(body=java_json.encode(TimerMetrics()))

    async def list_store_tables(self, _: Connection, request: Command) -> Command:
        """Return what of this store is not in its log.

        A slave that has seen a topic leave the table learns here where in the log it was deleted.
        """
        await self.topics.until_deleted()
        return request.reply(body=await off_loop(self._store_tables))

    def _store_tables(self) -> bytes:
        reserved = [
            ReservedNumbers(topic, queue_id, end)
            for (topic, queue_id), end in self.store.reserved_offsets().items()
        ]
        tables = StoreTables(
            reserved=reserved,
            deleted=dict(self.store.deleted_topics()),
            log_start=self.store.log_start,
        )
        return msgspec.json.encode(tables)

    def list_consume_modes(self, _: Connection, request: Command) -> Command:
        """Return which groups pop: none, as this broker has no pops."""
        return request.reply(body=java_json.encode(ConsumeModeTable()))
