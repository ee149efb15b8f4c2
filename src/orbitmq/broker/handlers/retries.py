"""Messages that consumers send back: retried later, or made dead letters."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.broker.send_rules import Destination, delay
from orbitmq.disk import off_loop
from orbitmq.errors import RequestRefusedError
from orbitmq.model import property_names
from orbitmq.model.names import (
    BROKER_ONLY_TOPICS,
    CHECKED_TOO_OFTEN_TOPIC,
    OFFSET_MOVED_TOPIC,
    SELF_TEST_TOPIC,
)
from orbitmq.model.topics import Permission, UnitFlag
from orbitmq.model.versions import V3_4_9
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.requests.retries import SendBack
from orbitmq.record.layout import PROPERTIES_BYTES_MAX
from orbitmq.record.properties import encode_properties, property_value
from orbitmq.store.log.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.statistics.counters import Counters
    from orbitmq.broker.storing import Storing
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.model.groups import GroupConfig
    from orbitmq.protocol.command import Command
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

# What the broker keeps for itself. Operators and monitors consume the three that are left out.
_NEVER_DELIVERED: Final = BROKER_ONLY_TOPICS - {
    CHECKED_TOO_OFTEN_TOPIC,
    OFFSET_MOVED_TOPIC,
    SELF_TEST_TOPIC,
}
# Compat: the first retry uses the third delay level.
_FIRST_LEVEL: Final = 3
# Compat: what dead letters carry, instead of the level of their last retry.
_NO_DELAY: Final = "0"
_REASON_LENGTH_MAX: Final = 200
# The reason of consumers that want no retry and do not say why, as Java's cannot.
_REJECTED: Final = "rejected"
# Properties below this size have room for a reason, and for where a delayed message goes.
_PROPERTIES_BYTES_ROOM: Final = PROPERTIES_BYTES_MAX - 2048


@dataclass(slots=True, eq=False, kw_only=True)
class RetryRequests:
    """Stores messages that consumers send back."""

    config: Callable[[], BrokerConfig]
    store: MessageStore
    storing: Storing
    topics: TopicTable
    groups: GroupTable
    delay_levels: int
    counters: Counters

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    async def send_back(self, _: Connection, request: Command) -> Command:
        """Store a copy for later delivery, or as a dead letter."""
        asked = SendBack.decode(request.fields)
        group = self.groups.require(asked.group)
        config = self.config()
        if not config.permission & Permission.WRITE:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker {config.broker_name} does not allow sending",
            )
        if group.retry_queues <= 0:
            # The group wants no retries: the message counts as consumed.
            return request.reply()
        message = await off_loop(self.store.message_at, asked.physical_offset)
        if message is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"look message by offset failed, {asked.physical_offset}",
                hint="the message was deleted meanwhile, or never was there",
            )
        if message.topic in _NEVER_DELIVERED:
            # Half messages and messages that are not due would reach consumers by this.
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the message at {asked.physical_offset} in the log is of the topic "
                f"{message.topic!r}, which no consumer gets messages from",
                hint="send back a message that was delivered, by its own position in the log",
            )
        retries_max = group.retries_max
        if request.version >= V3_4_9 and asked.retries_max is not None:
            retries_max = asked.retries_max
        properties = dict(message.properties)
        properties.setdefault(property_names.RETRY_TOPIC, message.topic)
        properties.setdefault(property_names.ORIGIN_MESSAGE_ID, message.message_id)
        is_rejected = asked.delay_level < 0
        _keep_reason(properties, asked.reason or (_REJECTED if is_rejected else None))
        original = properties[property_names.RETRY_TOPIC]
        if message.reconsume_times >= retries_max or is_rejected:
            destination = await self._dead_letter_destination(asked.group, properties)
            self.counters.dead_letter(original, asked.group).add(1, message.size)
        else:
            destination = await self._retry_destination(asked, group, message, properties)
        await self.storing.put(
            [
                Draft(
                    topic=destination.topic,
                    queue_id=destination.queue_id,
                    body=message.stored_body,
                    properties=encode_properties(properties),
                    flag=message.flag,
                    system_flag=message.system_flag,
                    born_ms=message.born_ms,
                    born_host=message.born_host_bytes,
                    reconsume_times=message.reconsume_times + 1,
                )
            ]
        )
        self.counters.send_back(original, asked.group).add(1, message.size)
        return request.reply()

    async def _retry_destination(
        self,
        asked: SendBack,
        group: GroupConfig,
        message: StoredMessage,
        properties: dict[str, str],
    ) -> Destination:
        unit_flag = int(UnitFlag.SUBSCRIBED_BY_UNIT) if asked.unit_mode else 0
        topic = await self.topics.ensure_retry(
            asked.group, queues=group.retry_queues, unit_flag=unit_flag
        )
        if not topic.permission & Permission.WRITE:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION, f"the topic {topic.name!r} cannot be written to"
            )
        level = asked.delay_level or _FIRST_LEVEL + message.reconsume_times
        properties[property_names.DELAY_LEVEL] = str(level)
        queue_id = random.randrange(group.retry_queues)  # noqa: S311  # any queue will do
        return delay(
            properties, Destination(topic=topic.name, queue_id=queue_id), self.delay_levels
        )

    async def _dead_letter_destination(self, group: str, properties: dict[str, str]) -> Destination:
        properties[property_names.DELAY_LEVEL] = _NO_DELAY
        topic = await self.topics.ensure_dead_letter(group)
        return Destination(topic=topic.name, queue_id=0)


def _keep_reason(properties: dict[str, str], reason: str | None) -> None:
    """Keep why the message failed, unless there is no room for it."""
    properties.pop(property_names.FAILURE_REASON, None)
    if reason and len(encode_properties(properties)) < _PROPERTIES_BYTES_ROOM:
        properties[property_names.FAILURE_REASON] = property_value(reason[:_REASON_LENGTH_MAX])
