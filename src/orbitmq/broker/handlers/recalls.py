"""Taking back messages that are not due yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.broker.hot_path import born_host
from orbitmq.broker.timers.recall_markers import recall_draft, recall_of
from orbitmq.errors import RecallHandleError, RequestRefusedError
from orbitmq.model.recall_handles import ID_BYTES_MAX, RecallHandle
from orbitmq.model.topics import Permission
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.sending import RecallMessage, RecallReply

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.storing import Storing
    from orbitmq.broker.timers.timer_delivery import TimerDelivery
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.store.config import StoreConfig
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False, kw_only=True)
class RecallRequests:
    """Takes back messages."""

    config: Callable[[], BrokerConfig]
    store_config: Callable[[], StoreConfig]
    # Why sends are refused now, as a code and a remark; None if they are accepted.
    refusal: Callable[[], tuple[ResponseCode, str] | None]
    topics: TopicTable
    storing: Storing
    delivery: TimerDelivery
    clock: Clock

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.RECALL_MESSAGE: self.recall}

    async def recall(self, connection: Connection, request: Command) -> Command:
        """Store what takes a message back; it works if that message is not delivered yet."""
        asked = RecallMessage.decode(request.fields)
        self._check_allowed()
        self.topics.require(asked.topic)
        handle = self._checked(asked)
        recall = recall_of(handle, self.store_config())
        draft = recall_draft(
            handle,
            self.store_config(),
            now_ms=self.clock.now_ms(),
            producer_group=asked.producer_group,
            born_host=born_host(connection.address),
        )
        queue_offset: int | None = None
        self.delivery.begin_recall(recall)
        try:
            stored = await self.storing.put([draft])
            queue_offset = stored.receipts[0].queue_offset
        finally:
            self.delivery.end_recall(recall, queue_offset)
        return request.reply(RecallReply(message_id=handle.unique_id))

    def _check_allowed(self) -> None:
        config = self.config()
        if not config.recall_enable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                "messages cannot be recalled from this broker",
                hint="set recallMessageEnable=true",
            )
        refusal = self.refusal()
        if refusal is not None:
            raise RequestRefusedError(*refusal)
        if not config.permission & Permission.WRITE:
            raise RequestRefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the broker {config.broker_name} does not allow sending",
                hint="set brokerPermission=6 to allow it",
            )

    def _checked(self, asked: RecallMessage) -> RecallHandle:
        handle = RecallHandle.decode(asked.recall_handle)
        name = self.config().broker_name
        if handle.topic != asked.topic:
            raise RecallHandleError(
                asked.recall_handle, f"it is for topic {handle.topic[:255]!r}, not {asked.topic!r}"
            )
        if handle.broker_name != name:
            raise RecallHandleError(
                asked.recall_handle,
                f"it is for broker {handle.broker_name[:255]!r}, and this is {name!r}",
                hint="send the request to that broker",
            )
        if handle.id_bytes > ID_BYTES_MAX:
            raise RecallHandleError(
                asked.recall_handle,
                f"its id has {handle.id_bytes} bytes, above the limit of {ID_BYTES_MAX}",
                hint="no message with such an id can be recalled here",
            )
        left_ms = handle.time_ms - self.clock.now_ms()
        seconds_max = self.store_config().timer_delay_seconds_max
        if left_ms <= 0:
            raise RecallHandleError(
                asked.recall_handle,
                "it comes too late",
                hint="the message is delivered, or due within a second",
            )
        if left_ms >= seconds_max * 1000:
            raise RecallHandleError(
                asked.recall_handle,
                f"its message would be due in {left_ms // 1000} s, above the limit of {seconds_max}",
                hint="no message here is due so late; see timerMaxDelaySec",
            )
        return handle
