"""Message queries: by key, by position in the log, and queue entries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.broker.delivery.filters import make_filter
from orbitmq.disk import off_loop
from orbitmq.errors import FilterSyntaxError, RequestRefusedError
from orbitmq.model.queues import QueueOffset
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.queries import (
    FindMessages,
    FindMessagesReply,
    KeyType,
    QueueEntries,
    QueueEntry,
    ReadMessage,
    ReadQueueEntries,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.model.subscriptions import Subscription
    from orbitmq.protocol.command import Command
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

# Compat: a query by unique id returns up to this many, whatever was asked for.
_UNIQUE_ID_COUNT: Final = 32
ENTRIES_MAX: Final = 1000
REPLY_BYTES_MAX: Final = 8 * 1024 * 1024
# No message has a longer key or tag.
_PROPERTIES_BYTES_MAX: Final = 0x7FFF


@dataclass(slots=True, eq=False, kw_only=True)
class QueryRequests:
    """Looks messages up."""

    store: MessageStore
    topics: TopicTable
    members: Members

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.QUERY_MESSAGE: self.find,
            RequestCode.VIEW_MESSAGE_BY_ID: self.read_message,
            RequestCode.QUERY_CONSUME_QUEUE: self.read_entries,
        }

    async def find(self, _: Connection, request: Command) -> Command:
        """Find messages by key or unique id."""
        asked = FindMessages.decode(request.fields)
        records = await off_loop(self._find, asked)
        header = FindMessagesReply(
            indexed_until_ms=Long(self.store.indexed_until_ms),
            indexed_until=Long(self.store.visible),
        )
        if not records:
            return request.reply(
                header,
                code=ResponseCode.QUERY_NOT_FOUND,
                remark="can not find message, maybe time range not correct",
            )
        return request.reply(header, body=b"".join(records))

    def _find(self, asked: FindMessages) -> list[bytes]:
        """The records of the newest messages that fit into a reply, oldest first."""
        if len(asked.key) > _PROPERTIES_BYTES_MAX:
            return []
        by_tag = _key_type(asked) is KeyType.TAG
        found = (self.store.find_tagged if by_tag else self.store.find)(
            asked.topic,
            asked.key,
            begin_ms=asked.begin_ms,
            end_ms=asked.end_ms,
            count_max=_UNIQUE_ID_COUNT if asked.by_unique_key else asked.messages_max,
        )
        records: list[bytes] = []
        reply_bytes = 0
        for message in reversed(found):
            record = self.store.record_at(message.physical_offset)
            if record is None:
                continue
            reply_bytes += len(record)
            if records and reply_bytes > REPLY_BYTES_MAX:
                break
            records.append(record)
        return records[::-1]

    async def read_message(self, _: Connection, request: Command) -> Command:
        """Read one message by its position in the log."""
        asked = ReadMessage.decode(request.fields)
        record = await off_loop(
            partial(self.store.record_at, asked.physical_offset, hidden=asked.hidden is True)
        )
        if record is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {asked.physical_offset}",
                hint="it was deleted, or no message starts there",
            )
        return request.reply(body=record)

    async def read_entries(self, _: Connection, request: Command) -> Command:
        """Return entries of a queue, and whether a group's filter accepts them."""
        asked = ReadQueueEntries.decode(request.fields)
        self._require_queue(asked)
        subscription = None
        if asked.consumer_group:
            group = self.members.groups.get(asked.consumer_group)
            subscription = group.subscriptions.get(asked.topic) if group is not None else None
        entries = await off_loop(self._read_entries, asked, subscription)
        body = QueueEntries(
            filter_text=_filter_text(asked, subscription),
            min_offset=self.store.start_of(asked.topic, asked.queue_id),
            max_offset=self.store.end_of(asked.topic, asked.queue_id),
            entries=entries,
            subscription=subscription,
        )
        return request.reply(body=java_json.encode(body))

    def _require_queue(self, asked: ReadQueueEntries) -> None:
        topic = self.topics.get(asked.topic)
        queues = max(topic.read_queues, topic.write_queues) if topic is not None else 0
        if 0 <= asked.queue_id < queues or self.store.end_of(asked.topic, asked.queue_id):
            return
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"{asked.queue_id}@{asked.topic[:255]} is not exist!",
            hint=f"the topic has the queues 0 to {queues - 1}"
            if queues
            else "the broker does not have the topic",
        )

    def _read_entries(
        self, asked: ReadQueueEntries, subscription: Subscription | None
    ) -> list[QueueEntry]:
        accepts = None
        if subscription is not None and subscription.is_by_tag:
            try:
                accepts = make_filter(
                    subscription.expression, subscription.expression_type
                ).accepts_tag
            except FilterSyntaxError:
                accepts = None
        entries = self.store.entries(
            asked.topic,
            asked.queue_id,
            QueueOffset(asked.queue_offset),
            min(asked.count, ENTRIES_MAX),
        )
        return [
            QueueEntry(
                matches=accepts is not None and accepts(tag_hash),
                physical_offset=physical_offset,
                record_bytes=record_bytes,
                tag_hash=tag_hash,
            )
            for physical_offset, record_bytes, tag_hash in entries
        ]


def _filter_text(asked: ReadQueueEntries, subscription: Subscription | None) -> str | None:
    """Describe the filter of the group in RocketMQ's words; None if no group was asked for."""
    if not asked.consumer_group:
        return None
    if subscription is None:
        return f"{asked.consumer_group[:255]}@{asked.topic[:255]} is not online!"
    if subscription.is_by_tag:
        return "null"
    described = {
        "clientVersion": subscription.version,
        "consumerGroup": asked.consumer_group,
        "dead": False,
        "expression": subscription.expression,
        "expressionType": subscription.expression_type,
        "topic": asked.topic,
    }
    return json.dumps(described, indent="\t", ensure_ascii=False)


def _key_type(asked: FindMessages) -> KeyType:
    try:
        return KeyType(asked.key_type or KeyType.KEY)
    except ValueError:
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"no key type {(asked.key_type or '')[:60]!r}",
            hint="use K for keys, U for unique ids, or T for tags",
        ) from None
