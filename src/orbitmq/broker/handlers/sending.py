"""Sends, the ordinary way: all rules of RocketMQ, for what the hot path passes on."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.broker.hot_path import born_host
from orbitmq.broker.send_rules import (
    Destination,
    delay,
    has_plain_properties,
    waits_for_store,
    with_broker_properties,
)
from orbitmq.broker.timers.timer_rules import asks_for_timer, recall_handle_of, set_timer
from orbitmq.broker.transactions.half_messages import QUEUE_ID, is_half
from orbitmq.clock import settle
from orbitmq.errors import MessageError, OrbitError, RequestRefusedError
from orbitmq.model import property_names
from orbitmq.model.names import (
    BROKER_ONLY_TOPICS,
    HALF_TOPIC,
    RETRY_PREFIX,
    check_topic,
    is_retry_topic,
)
from orbitmq.model.topics import MULTI_TAG, Permission, UnitFlag
from orbitmq.model.versions import V3_4_9
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.sending import SendBatch, SendMessage, SendMessageShort, SendReply
from orbitmq.record.batch import BatchedMessage, decode_batch
from orbitmq.record.layout import TRANSACTION_MASK, SystemFlag
from orbitmq.record.properties import decode_properties, encode_properties
from orbitmq.store.log.draft import Draft
from orbitmq.transport.request_loop import starts_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.queue_locks import QueueLocks
    from orbitmq.broker.statistics.counters import Counters
    from orbitmq.broker.storing import Stored, Storing
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.broker.transactions.preparing import Preparing
    from orbitmq.clock import Clock
    from orbitmq.model.topics import TopicConfig
    from orbitmq.model.unique_ids import UniqueIds
    from orbitmq.protocol.command import Command
    from orbitmq.store.config import StoreConfig
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)

# A batch may hold 100,000 messages; other tasks get their turn after this many.
_BATCH_TURN: Final = 1000
# What a batch adds to a body: its fields, and properties with a two-byte length.
_ONE_MESSAGE_BYTES_MAX: Final = 22 + 0x7FFF
# Compat: what RocketMQ 5 gives to such a dead letter, instead of the level of its last retry.
_NO_DELAY: Final = "-1"
_HEADERS: Final[dict[int, type[SendMessage]]] = {
    RequestCode.SEND_MESSAGE: SendMessage,
    RequestCode.SEND_MESSAGE_V2: SendMessageShort,
    RequestCode.SEND_BATCH_MESSAGE: SendBatch,
}


@dataclass(slots=True, eq=False, kw_only=True)
class SendRequests:
    """Stores messages of producers."""

    config: Callable[[], BrokerConfig]
    store_config: Callable[[], StoreConfig]
    # Why sends are refused now, as a code and a remark; None if they are accepted.
    refusal: Callable[[], tuple[ResponseCode, str] | None]
    topics: TopicTable
    # Waits until the name servers know of changed topics.
    changes_reported: Callable[[], Awaitable[None]]
    groups: GroupTable
    locks: QueueLocks
    storing: Storing
    preparing: Preparing
    delay_levels: int
    # Properties that the broker adds to every message.
    broker_properties: Mapping[str, str]
    unique_ids: UniqueIds
    counters: Counters
    clock: Clock
    _encoded_broker_properties: bytes = field(init=False)

    def __post_init__(self) -> None:
        """Encode the broker's properties once, for batches."""
        self._encoded_broker_properties = encode_properties(self.broker_properties)

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return dict.fromkeys(_HEADERS, self.send)

    @starts_at_once
    async def send(self, connection: Connection, request: Command) -> Command:
        """Store a message, or all messages of a batch."""
        refusal = self.refusal()
        if refusal is not None:
            code, reason = refusal
            raise RequestRefusedError(code, reason)
        asked = _HEADERS[request.code].decode(request.fields)
        if asked.batch:
            return await self._send_batch(connection, request, asked)
        topic = await self._topic(connection, asked)
        return await self._send_one(connection, request, asked, topic)

    # --- topic and queue ----------------------------------------------------------------------

    async def destination_of(self, connection: Connection, asked: SendMessage) -> Destination:
        """Find the topic and queue that a message is sent to; creates the topic if it may."""
        topic = await self._topic(connection, asked)
        return Destination(topic=topic.name, queue_id=self._queue_id(asked, topic))

    async def _topic(self, connection: Connection, asked: SendMessage) -> TopicConfig:
        config = self.config()
        if not config.permission & Permission.WRITE:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker {config.broker_name} does not allow sending",
                hint="set brokerPermission=6 to allow it",
            )
        check_topic(asked.topic)
        if asked.topic in BROKER_ONLY_TOPICS:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{asked.topic}] is forbidden: only the broker writes it",
            )
        topic = self.topics.get(asked.topic)
        if topic is None:
            # Reports have a time limit, which needs a task.
            await settle(1)
            unit_flag = 0
            if asked.unit_mode:
                is_retry = is_retry_topic(asked.topic)
                unit_flag = UnitFlag.SUBSCRIBED_BY_UNIT if is_retry else UnitFlag.UNIT
            topic = await self.topics.ensure_for_send(
                asked.topic,
                template=asked.template_topic,
                queues=asked.template_queues,
                unit_flag=int(unit_flag),
            )
            # The sender may look up the topic next.
            await self.changes_reported()
            log.info(
                "topic created by a send topic=%s queues=%d broker=%s peer=%s hint=it is on this "
                "broker only; create it on all with: orbitmq topic create %s",
                topic.name,
                topic.write_queues,
                config.broker_name,
                connection.address,
                topic.name,
            )
        if not topic.permission & Permission.WRITE:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"the topic {asked.topic!r} cannot be written to"
            )
        queues = max(topic.read_queues, topic.write_queues)
        if asked.queue_id >= queues:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the topic {asked.topic!r} has no queue {asked.queue_id}",
                hint=f"its queues are 0 to {queues - 1}",
            )
        return topic

    def _queue_id(self, asked: SendMessage, topic: TopicConfig) -> int:
        if asked.queue_id >= 0:
            return asked.queue_id
        return random.randrange(max(topic.write_queues, 1))  # noqa: S311  # any queue will do

    # --- one message --------------------------------------------------------------------------

    async def _send_one(
        self, connection: Connection, request: Command, asked: SendMessage, topic: TopicConfig
    ) -> Command:
        if not request.body:
            raise MessageError("the message has no body", hint="send at least one byte")
        properties = decode_properties((asked.properties or "").encode())
        properties.pop(property_names.POP_CHECK_POINT, None)
        unique_id = properties.get(property_names.UNIQUE_ID)
        if unique_id is None:
            unique_id = properties[property_names.UNIQUE_ID] = self.unique_ids.make()
        properties.update(self.broker_properties)
        waits = waits_for_store(properties)
        destination = Destination(topic=topic.name, queue_id=self._queue_id(asked, topic))
        requested_queue_id = destination.queue_id
        if is_half(properties, system_flag=asked.system_flag, retries=asked.retries or 0):
            return await self._prepare(connection, request, asked, topic, destination, properties)
        if is_retry_topic(topic.name):
            destination = await self._retry_destination(request, asked, destination, properties)
        destination = self._delayed(properties, destination)
        draft = self._draft(
            connection, request, asked, topic, destination=destination, properties=properties
        )
        stored = await self.put([draft], wait=waits)
        return self._reply(
            request,
            stored,
            requested_queue_id,
            unique_id,
            recall_handle_of(properties, destination, self.config().broker_name),
        )

    async def _prepare(
        self,
        connection: Connection,
        request: Command,
        asked: SendMessage,
        topic: TopicConfig,
        destination: Destination,
        properties: Mapping[str, str],
    ) -> Command:
        """Store a half message, unless it is open already."""
        properties = self.preparing.properties_of_half(
            properties, topic, destination.queue_id, asked.producer_group
        )
        draft = self._draft(
            connection,
            request,
            asked,
            topic,
            destination=Destination(topic=HALF_TOPIC, queue_id=QUEUE_ID),
            properties=properties,
        )
        unique_id = properties[property_names.UNIQUE_ID]
        earlier = self.preparing.earlier(draft, properties)
        if earlier is not None:
            stored = await self.preparing.confirm(earlier, properties)
            return self._reply(request, stored, earlier.queue_id, unique_id)
        storing = self.preparing.put(draft, properties, destination)
        stored = await self._count(HALF_TOPIC, storing)
        return self._reply(request, stored, destination.queue_id, unique_id)

    def _draft(
        self,
        connection: Connection,
        request: Command,
        asked: SendMessage,
        topic: TopicConfig,
        *,
        destination: Destination,
        properties: Mapping[str, str],
    ) -> Draft:
        return Draft(
            topic=destination.topic,
            queue_id=destination.queue_id,
            body=request.body,
            properties=encode_properties(properties),
            flag=asked.flag,
            # A half gets an entry in its queue like any other message, and so does a retry.
            system_flag=self._system_flag(asked, topic) & ~TRANSACTION_MASK,
            born_ms=asked.born_timestamp_ms,
            born_host=born_host(connection.address),
            reconsume_times=asked.retries or 0,
        )

    def _delayed(self, properties: dict[str, str], destination: Destination) -> Destination:
        """Redirect a message that asks for a delay, by level or by time."""
        if not asks_for_timer(properties):
            return delay(properties, destination, self.delay_levels)
        config = self.store_config()
        return set_timer(
            properties,
            destination,
            is_enabled=config.timers_enable,
            now_ms=self.clock.now_ms(),
            seconds_max=config.timer_delay_seconds_max,
        )

    async def _retry_destination(
        self,
        request: Command,
        asked: SendMessage,
        destination: Destination,
        properties: dict[str, str],
    ) -> Destination:
        """Make a message that a consumer sent back a dead letter, if its retries are used up."""
        group_name = asked.topic.removeprefix(RETRY_PREFIX)
        group = self.groups.require(group_name)
        retries_max = group.retries_max
        if request.version >= V3_4_9 and asked.retries_max is not None:
            retries_max = asked.retries_max
        # Compat: a group with locked queues consumes in order and retries by itself, so what it
        # sends back becomes a dead letter.
        if (asked.retries or 0) <= retries_max and not self.locks.has_any(group_name):
            return destination
        properties[property_names.DELAY_LEVEL] = _NO_DELAY
        topic = await self.topics.ensure_dead_letter(group_name)
        return Destination(topic=topic.name, queue_id=0)

    # --- many messages ------------------------------------------------------------------------

    async def _send_batch(
        self, connection: Connection, request: Command, asked: SendMessage
    ) -> Command:
        drafts = await self.drafts_of(connection, request.body, asked)
        waits = waits_for_store(decode_properties((asked.properties or "").encode()))
        stored = await self.put(drafts, wait=waits)
        return self._reply(request, stored, drafts[0].queue_id, None)

    async def drafts_of(
        self, connection: Connection, body: bytes, asked: SendMessage
    ) -> list[Draft]:
        """Turn a batch into drafts, by all rules of a send."""
        if is_retry_topic(asked.topic):
            raise MessageError(
                "a batch cannot be sent to a retry topic", hint="send its messages one by one"
            )
        messages = await self._batched(body, asked)
        # After the last await that lets others run: the topic must not change before the append.
        topic = await self._topic(connection, asked)
        queue_id = self._queue_id(asked, topic)
        host = born_host(connection.address)
        system_flag = self._system_flag(asked, topic)
        return [
            Draft(
                topic=topic.name,
                queue_id=queue_id,
                body=message.body,
                properties=message.properties,
                flag=message.flag,
                system_flag=system_flag,
                born_ms=asked.born_timestamp_ms,
                born_host=host,
                reconsume_times=asked.retries or 0,
            )
            for message in messages
        ]

    async def _batched(self, body: bytes, asked: SendMessage) -> list[BatchedMessage]:
        """Decode the messages of a batch, with the properties to store."""
        # The flags of the header apply to every message.
        _refuse_halves({}, asked)
        body_bytes_max = self.storing.body_bytes_max
        too_large = MessageError(
            f"a batch of {len(body)} bytes is above the limit of {body_bytes_max}",
            hint="send smaller batches, or raise maxMessageSize",
        )
        if len(body) > body_bytes_max + _ONE_MESSAGE_BYTES_MAX:
            raise too_large
        messages = decode_batch(body)
        if not messages:
            raise MessageError("the batch holds no message", hint="send at least one")
        # A batch of one message may hold as large a body as a plain send.
        if len(body) > body_bytes_max and (
            len(messages) > 1 or len(messages[0].body) > body_bytes_max
        ):
            raise too_large
        for index, message in enumerate(messages):
            if index % _BATCH_TURN == _BATCH_TURN - 1:
                await settle(1)
            messages[index] = message._replace(
                properties=self._batched_properties(message.properties, asked)
            )
        return messages

    def _batched_properties(self, encoded: bytes, asked: SendMessage) -> bytes:
        if has_plain_properties(encoded):
            # Perf: nearly all messages of batches; takes a fifth of the time of what follows.
            return with_broker_properties(encoded, self._encoded_broker_properties)
        properties = decode_properties(encoded)
        if property_names.DELAY_LEVEL in properties or asks_for_timer(properties):
            raise MessageError("a batch cannot be delayed", hint="send its messages one by one")
        _refuse_halves(properties, asked)
        if property_names.UNIQUE_ID not in properties:
            properties[property_names.UNIQUE_ID] = self.unique_ids.make()
        properties.update(self.broker_properties)
        return encode_properties(properties)

    async def put(self, drafts: list[Draft], *, wait: bool) -> Stored:
        """Store messages of one queue, and count them."""
        return await self._count(drafts[0].topic, self.storing.put(drafts, wait=wait))

    async def _count(self, topic: str, storing: Awaitable[Stored]) -> Stored:
        try:
            stored = await storing
        except OrbitError:
            self.counters.failed_puts += 1
            raise
        size = sum(receipt.record_bytes for receipt in stored.receipts)
        self.counters.put(topic).add(len(stored.receipts), size)
        return stored

    # --- replies ------------------------------------------------------------------------------

    def _system_flag(self, asked: SendMessage, topic: TopicConfig) -> int:
        flag = asked.system_flag
        return flag | SystemFlag.MULTI_TAGS if topic.filter_type == MULTI_TAG else flag

    def _reply(
        self,
        request: Command,
        stored: Stored,
        queue_id: int,
        unique_id: str | None,
        recall_handle: str | None = None,
    ) -> Command:
        config = self.config()
        return request.reply(
            SendReply(
                message_id=",".join(receipt.message_id for receipt in stored.receipts),
                queue_id=queue_id,
                queue_offset=Long(stored.receipts[0].queue_offset),
                transaction_id=unique_id,
                recall_handle=recall_handle,
                region=config.region,
                trace=config.trace_on,
                durability=stored.durability.place,
                copies=stored.durability.copies,
                copies_on_disk=stored.durability.copies_on_disk,
            ),
            code=stored.durability.code,
        )


def _refuse_halves(properties: Mapping[str, str], asked: SendMessage) -> None:
    """Refuse a batch with half messages."""
    if is_half(properties, system_flag=asked.system_flag, retries=0):
        raise MessageError(
            "a batch cannot have messages of transactions", hint="send its messages one by one"
        )
