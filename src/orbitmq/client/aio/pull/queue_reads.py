"""Single reads of a queue: chooses the broker and the request code.

Lite consumers of RocketMQ 5 pull with a request code of their own, so that operators can tell them
apart. Brokers of 4.9 do not know it: after one refusal, they get the older code.

Threads: one event loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from orbitmq.client.aio.group.queue_lives import QueueLives
from orbitmq.client.aio.instance.broker_calls import PullStatus
from orbitmq.client.aio.instance.read_targets import ReadTargets
from orbitmq.client.core.consuming.received_message import ReceivedMessage, received_messages
from orbitmq.client.core.subscriptions import tag_check
from orbitmq.errors import NotSupportedError, OrbitError, RemoteError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pulling import LitePullMessages, PullFlag, PullMessages

if TYPE_CHECKING:
    from orbitmq.client.aio.instance.broker_calls import Pulled
    from orbitmq.client.aio.instance.client_instance import ClientInstance
    from orbitmq.model.queues import MessageQueue
    from orbitmq.model.subscriptions import Subscription

log = logging.getLogger(__name__)

_CODES: Final = {False: PullMessages, True: LitePullMessages}


class _Pull(Protocol):
    """Pulls at an address, with one of two request codes."""

    async def __call__(self, address: str, *, lite: bool) -> Pulled:
        """Pull."""


class PullResult(NamedTuple):
    """The result of a pull."""

    status: PullStatus
    messages: list[ReceivedMessage]
    # Where to resume: after these messages and those that the filter left out.
    next_offset: int
    # Of the queue: the offset of its oldest message, and the one that its next message will have.
    min_offset: int
    max_offset: int


class QueueReads:
    """Reads queues for a group."""

    def __init__(
        self, instance: ClientInstance, group: str, *, namespace: str = "", lite: bool = False
    ) -> None:
        self._instance = instance
        self._group = group
        self._namespace = namespace
        self._lite = lite
        # Brokers that do not know the code of lite pulls, by address.
        self._older_brokers: set[str] = set()
        self._targets = ReadTargets(instance.routes)
        self.lives = QueueLives(group, instance.brokers)

    def forget(self, queue: MessageQueue) -> None:
        """Drop the suggested broker: the next read goes to the master."""
        self._targets.forget(queue)

    async def read(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        *,
        messages_max: int,
        hold_ms: int = 0,
        timeout_ms: float,
    ) -> PullResult:
        """Read from an offset; at the end of the queue the broker may wait up to `hold_ms`.

        Reading on in a queue that was replaced since returns where the new one starts.
        """

        async def pull(address: str, *, lite: bool) -> Pulled:
            header = self._header(
                queue, subscription, offset, messages_max=messages_max, hold_ms=hold_ms, lite=lite
            )
            return await self._instance.brokers.pull(address, header, timeout_ms=timeout_ms)

        if (start := await self.lives.replaced_at(queue, offset)) is not None:
            return await self._moved(queue, start)
        target = await self._targets.choose(queue)
        try:
            pulled = await self._pull_with_either_code(target.address, pull)
        except OrbitError as error:
            # A slave learns of topics later than its master.
            if _says_missing(error) and not target.is_slave:
                self.lives.note_missing(queue)
            if not await self._targets.note_failure(queue, target, error):
                raise
            target = await self._targets.choose(queue)
            pulled = await self._pull_with_either_code(target.address, pull)
        start = await self.lives.differs_at(queue, offset, pulled, target.address)
        if start is not None:
            return await self._moved(queue, start)
        pause_ms = await self._targets.note_reply(queue, target, offset, pulled)
        if pause_ms and hold_ms:
            await self._instance.clock.sleep_ms(pause_ms)
        return await self._result(queue, subscription, offset, pulled, target.address)

    async def _moved(self, queue: MessageQueue, start: int) -> PullResult:
        """The result for a queue that has other messages than were read of it."""
        end = await self._instance.brokers.max_offset(queue)
        return PullResult(PullStatus.OFFSET_ILLEGAL, [], start, start, end)

    async def _pull_with_either_code(self, address: str, pull: _Pull) -> Pulled:
        lite = self._lite and address not in self._older_brokers
        try:
            return await pull(address, lite=lite)
        except NotSupportedError:
            if not lite:
                raise
            # Pulls of several queues may meet this at once.
            if address not in self._older_brokers:
                log.info("broker does not know lite pulls address=%s", address)
                self._older_brokers.add(address)
            return await pull(address, lite=False)

    async def _result(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        pulled: Pulled,
        address: str,
    ) -> PullResult:
        next_offset, messages = pulled.next_offset, self._messages(queue, pulled)
        if pulled.status is PullStatus.OFFSET_ILLEGAL:
            next_offset = await self.lives.resume_at(queue, offset, pulled)
        self.lives.note_pull(queue, next_offset, messages[-1] if messages else None, address)
        if subscription.tags:
            # The broker filters by the hash of a tag, which two tags may share.
            is_wanted = tag_check(subscription)
            messages = [message for message in messages if is_wanted(message.tags)]
        return PullResult(
            pulled.status, messages, next_offset, pulled.min_offset, pulled.max_offset
        )

    def _header(
        self,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        *,
        messages_max: int,
        hold_ms: int,
        lite: bool,
    ) -> PullMessages:
        flag = PullFlag.SUBSCRIPTION
        if hold_ms:
            flag |= PullFlag.SUSPEND
        if self._lite:
            flag |= PullFlag.LITE_PULL
        return _CODES[lite](
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=Long(offset),
            messages_max=messages_max,
            system_flag=int(flag),
            commit_offset=Long(0),
            suspend_timeout_ms=Long(hold_ms),
            expression=subscription.expression,
            # Compat: brokers compile the tags of each request, and look up only SQL conditions.
            subscription_version=Long(0 if subscription.is_by_tag else subscription.version),
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )

    def _messages(self, queue: MessageQueue, pulled: Pulled) -> list[ReceivedMessage]:
        if pulled.status is not PullStatus.FOUND:
            return []
        return received_messages(pulled.body, queue.broker_name, namespace=self._namespace)


def _says_missing(error: OrbitError) -> bool:
    return isinstance(error, RemoteError) and error.code == ResponseCode.TOPIC_NOT_EXIST
