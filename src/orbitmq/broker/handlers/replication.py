"""What slaves copy from a master: progress of delays and timers, modes of groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.requests.metadata import ConsumeModeTable, TimerCheckpoint, TimerMetrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.delay.progress import DelayProgress
    from orbitmq.broker.timers.timer_delivery import TimerDelivery
    from orbitmq.model.queues import QueueOffset
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False, kw_only=True)
class ReplicationRequests:
    """Hands the state of a master to its slaves."""

    delays: DelayProgress
    # How far each delay level is delivered; nothing at a slave, which delivers none.
    delay_offsets: Callable[[], Mapping[int, QueueOffset]]
    timers: TimerDelivery

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_ALL_DELAY_OFFSET: self.get_delay_progress,
            RequestCode.GET_TIMER_CHECK_POINT: self.get_timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self.get_timer_metrics,
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

    def list_consume_modes(self, _: Connection, request: Command) -> Command:
        """Return which groups pop: none, as this broker has no pops."""
        return request.reply(body=java_json.encode(ConsumeModeTable()))
