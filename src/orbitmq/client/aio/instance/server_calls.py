"""Requests from brokers to their clients, answered as Java's client does.

code request                                reply
39   check a transaction                    none; the producer reports by a call of its own
40   members of a group joined or left      none
220  reset the offsets of a consumer        none
221  show the offsets of a consumer         offsets; none for an unknown group
307  show what a consumer is doing          its state; an error for an unknown group
309  consume this message now               the outcome; an error without a push consumer
326  the answer to a request by message     success; an error if nobody waits for it
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.client.core.request_reply import received_reply
from orbitmq.errors import OrbitError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model import property_names
from orbitmq.model.versions import OUR_VERSION, version_name
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.answers import PushAnswer
from orbitmq.protocol.requests.clients import NotifyMembersChanged
from orbitmq.protocol.requests.offsets import QueueOffsetTable, ResetConsumerOffsets
from orbitmq.protocol.requests.relays import (
    ConsumeDirectly,
    ConsumerOffsets,
    GetConsumerOffsets,
    GetRunningConsumer,
)
from orbitmq.protocol.requests.transactions import CheckTransaction
from orbitmq.record.decode import decode_records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orbitmq.client.aio.instance.members import ConsumerMember, ProducerMember
    from orbitmq.client.aio.instance.pending_answers import PendingAnswers
    from orbitmq.clock import Clock
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)

# Names that RocketMQ's tools read in the state of a consumer.
_NAME_SERVERS: Final = "PROP_NAMESERVER_ADDR"
_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"

# Characters of a foreign correlation id that a reply quotes.
_SHOWN_MAX: Final = 100


class ServerCalls:
    """Passes requests of brokers to the producer or consumer concerned."""

    def __init__(
        self,
        *,
        producers: Mapping[str, ProducerMember],
        consumers: Mapping[str, ConsumerMember],
        answers: PendingAnswers,
        name_servers: Callable[[], Sequence[str]],
        clock: Clock,
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._answers = answers
        self._name_servers = name_servers
        self._clock = clock

    def by_code(self) -> Mapping[int, Handler]:
        """Return the handler of each request code."""
        return {
            RequestCode.CHECK_TRANSACTION_STATE: self.check_transaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self.members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self.reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self.show_offsets,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.show_running,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.deliver_answer,
        }

    async def check_transaction(self, connection: Connection, request: Command) -> None:
        """Have the producer of a half message report how its transaction ended."""
        check = CheckTransaction.decode(request.fields)
        records = decode_records(request.body)
        group = records[0].properties.get(property_names.PRODUCER_GROUP) if records else None
        producer = self._producers.get(group or "")
        if producer is None:
            log.warning(
                "transaction check for an unknown producer group=%s broker=%s",
                group,
                connection.address,
            )
            return
        await producer.check_transaction(connection.address, check, request.body)

    def members_changed(self, connection: Connection, request: Command) -> None:
        """Rebalance every consumer."""
        group = NotifyMembersChanged.decode(request.fields).consumer_group
        log.info("members changed group=%s broker=%s", group, connection.address)
        for consumer in list(self._consumers.values()):
            consumer.rebalance_soon()

    async def reset_offsets(self, connection: Connection, request: Command) -> None:
        """Move a consumer to other offsets."""
        reset = ResetConsumerOffsets.decode(request.fields)
        offsets = java_json.decode(request.body, QueueOffsetTable).offsets if request.body else {}
        log.info(
            "offsets reset group=%s topic=%s queues=%d broker=%s",
            reset.group,
            reset.topic,
            len(offsets),
            connection.address,
        )
        consumer = self._consumers.get(reset.group)
        if consumer is None:
            log.warning("offsets reset for an unknown consumer group=%s", reset.group)
            return
        await consumer.reset_offsets(reset.topic, dict(offsets))

    def show_offsets(self, _: Connection, request: Command) -> Command:
        """Reply with a consumer's offsets in a topic."""
        asked = GetConsumerOffsets.decode(request.fields)
        consumer = self._consumers.get(asked.group)
        offsets = {} if consumer is None else consumer.offsets(asked.topic)
        return request.reply(body=java_json.encode(ConsumerOffsets(queues=ObjectKeyed(offsets))))

    def show_running(self, _: Connection, request: Command) -> Command:
        """Reply with what a consumer is doing."""
        asked = GetRunningConsumer.decode(request.fields)
        consumer = self._consumers.get(asked.consumer_group)
        if consumer is None:
            return _unknown_group(request, asked.consumer_group)
        running = consumer.running(with_stacks=asked.with_stacks)
        running.properties = running.properties | {
            # Compat: Java writes a semicolon after each, the last one too.
            _NAME_SERVERS: "".join(f"{address};" for address in self._name_servers()),
            _CONSUME_TYPE: str(consumer.heartbeat().consume_type),
            _CLIENT_VERSION: version_name(OUR_VERSION),
        }
        return request.reply(body=java_json.encode(running))

    async def consume_directly(self, _: Connection, request: Command) -> Command:
        """Pass a message to the listener of a push consumer now."""
        asked = ConsumeDirectly.decode(request.fields)
        consumer = self._consumers.get(asked.consumer_group)
        if consumer is None:
            return _unknown_group(request, asked.consumer_group)
        result = await consumer.consume_directly(request.body, asked.broker_name or "")
        if result is None:
            return _unknown_group(request, asked.consumer_group)
        return request.reply(body=java_json.encode(result))

    def deliver_answer(self, connection: Connection, request: Command) -> Command:
        """Deliver an answer to the caller that waits for it."""
        try:
            header = PushAnswer.decode(request.fields)
            answer = received_reply(header, request.body, self._clock.now_ms())
        except OrbitError as error:
            log.warning("answer refused broker=%s reason=%s", connection.address, error)
            return request.reply(
                code=ResponseCode.SYSTEM_ERROR, remark="process reply message fail"
            )
        correlation_id = answer.properties.get(property_names.CORRELATION_ID, "")
        if not self._answers.deliver(correlation_id, answer):
            log.debug(
                "answer that nobody waits for correlation=%s from=%s",
                correlation_id,
                header.born_host,
            )
            # Compat: Java's client reports success, so that the replier never learns of it.
            return request.reply(
                code=ResponseCode.SYSTEM_ERROR,
                remark=f"the reply to {correlation_id[:_SHOWN_MAX]!r} came too late, or is not the "
                "first one",
            )
        return request.reply()


def _unknown_group(request: Command, group: str) -> Command:
    return request.reply(
        code=ResponseCode.SYSTEM_ERROR,
        remark=f"The Consumer Group <{group}> not exist in this consumer",
    )
