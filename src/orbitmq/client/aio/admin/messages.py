"""Finds messages by id, key, offset and time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.client.aio.admin.reach import readers_of
from orbitmq.client.aio.instance.broker_calls import location_of
from orbitmq.client.core.consuming.received_message import ReceivedMessage, received_messages
from orbitmq.errors import MessageNotFoundError, ProtocolError, RemoteError
from orbitmq.model.names import TOOLS_GROUP
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.protocol.requests.queries import QueueEntries, ReadQueueEntries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.client.aio.admin.offsets import Offsets
    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.model.queues import MessageQueue

_END_OF_TIME_MS: Final = 2**62
_PULL_COUNT: Final = 32


@dataclass(slots=True, eq=False)
class Messages:
    """Finds messages that brokers have stored."""

    _reach: Reach
    _offsets: Offsets

    async def by_id(self, message_id: str, *, topic: str = "") -> ReceivedMessage:
        """Find a message by its offset message id or, given its topic, by its unique id."""
        try:
            if message := await self._by_location(message_id, topic):
                return message
        except (ProtocolError, RemoteError) as error:
            reason = f": {error}"
        else:
            reason = ", which points to a broker that no name server knows"
        if not topic:
            raise MessageNotFoundError(
                f"no message has the id {message_id}{reason}",
                hint="to find it by the id that its producer gave it, pass its topic, too",
            )
        found = await self._find(topic, message_id, 32, 0, _END_OF_TIME_MS, is_unique=True)
        if not found:
            raise MessageNotFoundError(
                f"no message of topic {topic!r} has the id {message_id}",
                hint="it may have expired, or be in another topic",
            )
        return found[0]

    async def all_by_id(self, topic: str, message_id: str) -> list[ReceivedMessage]:
        """Find all messages of a topic that have an id of either kind; none is no error."""
        found = await self.by_unique_id(topic, message_id)
        if found:
            return found
        try:
            message = await self._by_location(message_id, topic)
        except (ProtocolError, RemoteError):
            return []
        return [message] if message is not None and message.stored_queue.topic == topic else []

    async def by_unique_id(self, topic: str, unique_id: str) -> list[ReceivedMessage]:
        """Find all messages of a topic that have the id that a producer gave them."""
        return await self._find(topic, unique_id, 32, 0, _END_OF_TIME_MS, is_unique=True)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 64,
        begin_ms: int = 0,
        end_ms: int = _END_OF_TIME_MS,
    ) -> list[ReceivedMessage]:
        """Find the newest messages of a topic by one of their keys, oldest first."""
        return await self._find(topic, key, count_max, begin_ms, end_ms, is_unique=False)

    async def at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """Read the message at an offset of a queue."""
        messages, _ = await self._pull(queue, offset, 1)
        if not messages or messages[0].queue_offset != offset:
            raise MessageNotFoundError(
                f"queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name} has no message "
                f"at offset {offset}",
                hint="orbitmq topic stats shows where its queues begin and end",
            )
        return messages[0]

    async def between(
        self,
        topic: str,
        begin_ms: int,
        end_ms: int,
        *,
        broker: str | None = None,
        queue_id: int | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """Yield the messages stored in a span of time, queue by queue.

        `broker` and `queue_id` limit the queues.
        """
        if broker is not None:
            await self._reach.check_broker(broker)
        for queue in await self._offsets.queues(topic):
            if broker not in {None, queue.broker_name} or queue_id not in {None, queue.queue_id}:
                continue
            async for message in self._from_time(queue, begin_ms):
                if message.store_ms > end_ms:
                    break
                yield message

    async def newest(self, topic: str, count: int) -> AsyncIterator[ReceivedMessage]:
        """Yield the newest messages of a topic, queue by queue, an equal share of each.

        At most about `count`; more only if there are more queues.
        """
        queues = await self._offsets.queues(topic)
        share = max(count // max(len(queues), 1), 1)
        for queue in queues:
            first, end = await self._offsets.first(queue), await self._offsets.end(queue)
            async for message in self._span(queue, max(first, end - share), end):
                yield message

    async def entries(
        self, queue: MessageQueue, offset: int, *, count: int = 10, group: str | None = None
    ) -> QueueEntries:
        """Read entries of a queue: the position and size of each message."""
        header = ReadQueueEntries(
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=Long(offset),
            count=count,
            consumer_group=group,
        )
        address = await self._reach.reader(queue.broker_name)
        return await self._reach.ask_for(address, header, QueueEntries)

    async def _from_time(
        self, queue: MessageQueue, begin_ms: int
    ) -> AsyncIterator[ReceivedMessage]:
        offset = await self._offsets.at_time(queue, begin_ms)
        async for message in self._span(queue, offset, await self._offsets.end(queue)):
            yield message

    async def _span(
        self, queue: MessageQueue, offset: int, end: int
    ) -> AsyncIterator[ReceivedMessage]:
        while offset < end:
            messages, next_offset = await self._pull(queue, offset, _PULL_COUNT)
            for message in messages:
                yield message
            if next_offset <= offset:
                return
            offset = next_offset

    async def _by_location(self, message_id: str, topic: str) -> ReceivedMessage | None:
        address, _ = location_of(message_id)
        # A producer's unique id decodes to some address, too, which need not be a broker.
        name = await self._reach.name_of(address)
        if name:
            record = await self._reach.calls.view_message(message_id, topic=topic or None)
            return received_messages(record, name)[0]
        return await self._at_slaves(message_id, topic)

    async def _at_slaves(self, message_id: str, topic: str) -> ReceivedMessage | None:
        """Find the message of a master that is gone at its slave."""
        for name, slave in (await self._reach.lone_slaves()).items():
            try:
                record = await self._reach.calls.view_message(
                    message_id, topic=topic or None, slave=slave
                )
            except RemoteError:
                continue
            message = received_messages(record, name)[0]
            if message.offset_message_id == message_id:
                return message
        return None

    async def _find(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, *, is_unique: bool
    ) -> list[ReceivedMessage]:
        readers = readers_of(await self._reach.route(topic))
        bodies = await asyncio.gather(
            *(
                self._reach.calls.query(
                    address,
                    topic,
                    key,
                    messages_max=count_max,
                    begin_ms=begin_ms,
                    end_ms=end_ms,
                    by_unique_key=is_unique,
                )
                for address in readers.values()
            )
        )
        # Compat: the index finds by hash, so messages with other keys may be among them.
        wanted = [
            message
            for name, body in zip(readers, bodies, strict=True)
            for message in received_messages(body, name)
            if (message.message_id == key if is_unique else key in message.keys)
        ]
        return sorted(wanted, key=lambda message: message.store_ms)[-count_max:]

    async def _pull(
        self, queue: MessageQueue, offset: int, count: int
    ) -> tuple[list[ReceivedMessage], int]:
        header = PullMessages(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=Long(offset),
            messages_max=count,
            system_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=Long(0),
            suspend_timeout_ms=Long(0),
            expression="*",
            subscription_version=Long(0),
        )
        address = await self._reach.reader(queue.broker_name)
        pulled = await self._reach.calls.pull(address, header)
        return received_messages(pulled.body, queue.broker_name), pulled.next_offset
