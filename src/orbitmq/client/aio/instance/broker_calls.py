"""Calls to brokers: one typed method per request, with Java's timeouts."""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from orbitmq import java_json
from orbitmq.client.core.consuming.received_message import received_messages
from orbitmq.errors import (
    BrokerUnknownError,
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    OrbitError,
    ProtocolError,
    RemoteError,
)
from orbitmq.model.queues import MessageQueue
from orbitmq.model.recall_handles import RecallHandle
from orbitmq.model.routes import MASTER_ID
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.failures import raise_for_failure
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import (
    CheckSubscription,
    GroupMembers,
    ListGroupMembers,
    SubscriptionToCheck,
    UnregisterClient,
)
from orbitmq.protocol.requests.locking import (
    LockedQueues,
    LockQueues,
    QueuesToLock,
    UnlockQueues,
)
from orbitmq.protocol.requests.offsets import (
    CommitOffset,
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    GetOldestTime,
    OffsetReply,
    OldestTimeReply,
    SearchOffset,
)
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.protocol.requests.queries import FindMessages, ReadMessage
from orbitmq.protocol.requests.retries import SendBack
from orbitmq.protocol.requests.sending import RecallMessage, RecallReply
from orbitmq.record.message_id import decode_message_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.client.aio.instance.routes import Routes
    from orbitmq.model.subscriptions import Subscription
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.headers import Header
    from orbitmq.protocol.requests.transactions import EndTransaction
    from orbitmq.transport.rpc_client import RpcClient

CALL_TIMEOUT_MS: Final = 3_000
OFFSET_TIMEOUT_MS: Final = 5_000
SEND_BACK_TIMEOUT_MS: Final = 5_000
LOCK_TIMEOUT_MS: Final = 1_000
PULL_TIMEOUT_MS: Final = 30_000
# The broker may be gone: another of its group may answer.
NO_ANSWER: Final = (ConnectError, ConnectionLostError, CallTimeoutError)


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = "found"
    NO_NEW = "nothing new"
    NO_MATCH = "nothing matches the filter"
    OFFSET_ILLEGAL = "an offset outside the queue"


_PULL_STATUSES: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCH,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class Pulled(NamedTuple):
    """The result of a pull; the body holds the records, back to back."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes


class FailedMessage(Protocol):
    """What a send-back needs to know of a message."""

    @property
    def topic(self) -> str:
        """Its topic, as the listener saw it."""

    @property
    def message_id(self) -> str:
        """Its unique id."""

    @property
    def stored_queue(self) -> MessageQueue:
        """The queue it was read from, as brokers know it."""

    @property
    def physical_offset(self) -> int:
        """Its position in the commit log."""


class BrokerCalls:
    """Calls the brokers of the cached routes, or a broker at an address."""

    def __init__(
        self,
        rpc: RpcClient,
        routes: Routes,
        *,
        client_id: str,
        vip_channel: bool,
        call_timeout_ms: float = CALL_TIMEOUT_MS,
    ) -> None:
        """Call brokers; `call_timeout_ms` is for calls without a timeout of their own."""
        self._rpc = rpc
        self._routes = routes
        self._client_id = client_id
        self._vip_channel = vip_channel
        self._call_timeout_ms = call_timeout_ms

    def sending_address(self, address: str) -> str:
        """Return the address for sends and small calls: with the VIP channel, port - 2."""
        if not self._vip_channel:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"

    # --- messages -----------------------------------------------------------------------------

    async def pull(
        self, address: str, header: PullMessages, *, timeout_ms: float = PULL_TIMEOUT_MS
    ) -> Pulled:
        """Read messages of a queue; an offset outside it is a status, not an error."""
        pull = request(header)
        reply = await self._rpc.invoke(address, pull, timeout_ms=timeout_ms)
        status = _PULL_STATUSES.get(reply.code)
        if status is None:
            raise_for_failure(pull, reply, address)
            raise AssertionError("success is a status")
        fields = reply.fields
        try:
            # Perf: four fields read in place; a header object would cost more than they do.
            return Pulled(
                status,
                int(fields["nextBeginOffset"]),
                int(fields["minOffset"]),
                int(fields["maxOffset"]),
                int(fields["suggestWhichBrokerId"]),
                reply.body,
            )
        except (KeyError, ValueError) as error:
            raise ProtocolError(
                f"{address} replied to a pull with the fields {fields!r}"
            ) from error

    async def send_back(
        self,
        message: FailedMessage,
        group: str,
        *,
        delay_level: int,
        retries_max: int,
        reason: str = "",
        timeout_ms: float = SEND_BACK_TIMEOUT_MS,
    ) -> None:
        """Send a message back that a consumer failed on; the broker delivers it later.

        An OrbitMQ broker keeps the reason with the message.
        """
        header = SendBack(
            physical_offset=Long(message.physical_offset),
            group=group,
            delay_level=delay_level,
            original_message_id=message.message_id,
            original_topic=message.topic,
            retries_max=retries_max,
            broker_name=message.stored_queue.broker_name,
            reason=reason or None,
        )
        await self._call(await self._master(message.stored_queue), header, timeout_ms=timeout_ms)

    async def end_transaction(
        self, queue: MessageQueue, header: EndTransaction, *, timeout_ms: float | None = None
    ) -> None:
        """Commit a half message or roll it back, at the broker of its queue."""
        await self._call(await self._master(queue), header, timeout_ms=timeout_ms)

    async def recall(
        self, recall_handle: str, group: str, *, timeout_ms: float | None = None
    ) -> str:
        """Take back a message that is not due yet; returns its unique id."""
        handle = RecallHandle.decode(recall_handle)
        header = RecallMessage(
            producer_group=group,
            topic=handle.topic,
            recall_handle=recall_handle,
            broker_name=handle.broker_name,
        )
        queue = MessageQueue(topic=handle.topic, broker_name=handle.broker_name, queue_id=0)
        reply = await self._call(await self._master(queue), header, timeout_ms=timeout_ms)
        return RecallReply.decode(reply.fields).message_id

    async def view_message(
        self,
        offset_message_id: str,
        *,
        topic: str | None = None,
        slave: str | None = None,
        timeout_ms: float | None = None,
    ) -> bytes:
        """Read the record of a message by its offset message id, or what is there at a slave."""
        address, physical_offset = location_of(offset_message_id)
        if slave is not None:
            # Its log is a copy of the master's.
            address = slave
        header = ReadMessage(physical_offset=Long(physical_offset), topic=topic)
        return (await self._call(address, header, timeout_ms=timeout_ms)).body

    async def query(
        self,
        address: str,
        topic: str,
        key: str,
        *,
        messages_max: int,
        begin_ms: int,
        end_ms: int,
        by_unique_key: bool = False,
        timeout_ms: float | None = None,
    ) -> bytes:
        """Find messages of one broker by a key; returns their records, back to back."""
        header = FindMessages(
            topic=topic,
            key=key,
            messages_max=messages_max,
            begin_ms=Long(begin_ms),
            end_ms=Long(end_ms),
            by_unique_key=by_unique_key,
        )
        try:
            return (await self._call(address, header, timeout_ms=timeout_ms)).body
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return b""
            raise

    # --- offsets ------------------------------------------------------------------------------

    async def committed_offset(
        self, queue: MessageQueue, group: str, *, timeout_ms: float = OFFSET_TIMEOUT_MS
    ) -> int | None:
        """Return the committed offset of a group in a queue; None if it committed nothing.

        Slaves know older ones. So they are asked only if no name server lists the master.
        """
        header = GetCommittedOffset(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
        )
        try:
            reply, _ = await self._call_group(
                queue, header, timeout_ms=timeout_ms, avoids_silent=False
            )
        except RemoteError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return OffsetReply.decode(reply.fields).offset

    async def commit_offset(
        self,
        queue: MessageQueue,
        group: str,
        offset: int,
        *,
        oneway: bool = True,
        at_master: bool = False,
        timeout_ms: float = OFFSET_TIMEOUT_MS,
    ) -> bool:
        """Commit the offset of a group in a queue; False if only a slave has it now.

        With `at_master` no slave is asked.
        """
        header = CommitOffset(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=Long(offset),
            broker_name=queue.broker_name,
        )
        if at_master:
            await self._call(await self._master(queue), header, timeout_ms=timeout_ms)
            return True
        if oneway:
            address, is_slave = await self._master_or_slave(queue, avoids_silent=True)
            await self._call_oneway(address, header, timeout_ms=timeout_ms)
        else:
            _, is_slave = await self._call_group(queue, header, timeout_ms=timeout_ms)
        return not is_slave

    async def max_offset(
        self, queue: MessageQueue, *, at_master: bool = False, timeout_ms: float | None = None
    ) -> int:
        """Return the offset that the next message of a queue will have.

        A slave, which may lag, is asked if the master does not answer, unless `at_master`.
        """
        header = GetMaxOffset(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self._offset(queue, header, timeout_ms, at_master=at_master)

    async def min_offset(self, queue: MessageQueue, *, timeout_ms: float | None = None) -> int:
        """Return the offset of the oldest message of a queue."""
        header = GetMinOffset(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        return await self._offset(queue, header, timeout_ms)

    async def offset_at(
        self,
        queue: MessageQueue,
        timestamp_ms: int,
        *,
        at_master: bool = False,
        address: str | None = None,
        timeout_ms: float | None = None,
    ) -> int:
        """Return the offset of the first message stored at a time or later.

        A slave, which may lag, is asked if the master does not answer, unless `at_master`. With an
        `address` only the broker there is asked.
        """
        header = SearchOffset(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp_ms=Long(timestamp_ms),
            broker_name=queue.broker_name,
        )
        if address is not None:
            reply = await self._call(address, header, timeout_ms=timeout_ms)
            return OffsetReply.decode(reply.fields).offset
        return await self._offset(queue, header, timeout_ms, at_master=at_master)

    async def oldest_ms(
        self, queue: MessageQueue, *, timeout_ms: float | None = None
    ) -> int | None:
        """Return when the oldest message of a queue was stored; None if it has no message."""
        header = GetOldestTime(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        reply, _ = await self._call_group(queue, header, timeout_ms=timeout_ms)
        stored_ms = OldestTimeReply.decode(reply.fields).timestamp_ms
        return None if stored_ms < 0 else stored_ms

    async def stored_ms_of(
        self, queue: MessageQueue, offset: int, *, group: str, address: str
    ) -> int | None:
        """Return when a message was stored, as one broker has it; None if it has none there."""
        header = PullMessages(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=Long(offset),
            messages_max=1,
            system_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=Long(0),
            suspend_timeout_ms=Long(0),
            expression="*",
            subscription_version=Long(0),
            broker_name=queue.broker_name,
        )
        pulled = await self.pull(address, header)
        found = received_messages(pulled.body, queue.broker_name)
        first = next((one for one in found if one.queue_offset == offset), None)
        return first.store_ms if first is not None else None

    # --- groups -------------------------------------------------------------------------------

    async def group_members(
        self, topic: str, group: str, *, timeout_ms: float | None = None
    ) -> list[str]:
        """List the clients of a group that consumes a topic, as one broker knows them."""
        address = self._routes.broker_of_topic(topic)
        if address is None:
            await self._routes.refresh(topic)
            address = self._routes.broker_of_topic(topic)
        if address is None:
            raise BrokerUnknownError("any", topic=topic)
        header = ListGroupMembers(consumer_group=group)
        reply = await self._call(address, header, timeout_ms=timeout_ms)
        return java_json.decode(reply.body, GroupMembers).client_ids

    async def lock(
        self,
        broker_name: str,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        trust_ms: int | None = None,
        timeout_ms: float = LOCK_TIMEOUT_MS,
    ) -> set[MessageQueue]:
        """Lock queues of one broker for a client, or renew the locks; returns those it holds.

        `trust_ms` is how long the client consumes without a renewal, for brokers of ours.
        """
        wanted = QueuesToLock(
            client_id=client_id, consumer_group=group, queues=list(queues), trust_ms=trust_ms
        )
        address = self._locking_address(broker_name, wanted.queues)
        reply = await self._call(
            address, LockQueues(), java_json.encode(wanted), timeout_ms=timeout_ms
        )
        return set(java_json.decode(reply.body, LockedQueues).queues)

    async def unlock(
        self,
        broker_name: str,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        *,
        oneway: bool = False,
        timeout_ms: float = LOCK_TIMEOUT_MS,
    ) -> None:
        """Unlock queues of one broker."""
        unlocked = QueuesToLock(client_id=client_id, consumer_group=group, queues=list(queues))
        address = self._locking_address(broker_name, unlocked.queues)
        body = java_json.encode(unlocked)
        if oneway:
            await self._call_oneway(address, UnlockQueues(), body, timeout_ms=timeout_ms)
        else:
            await self._call(address, UnlockQueues(), body, timeout_ms=timeout_ms)

    async def check_subscription(
        self,
        group: str,
        subscription: Subscription,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Have one broker of the topic check a filter; raises if it refuses it."""
        topic = subscription.topic
        address = self._routes.broker_of_topic(topic)
        if address is None:
            return
        body = SubscriptionToCheck(
            client_id=self._client_id, group=group, subscription=subscription
        )
        await self._call(
            address, CheckSubscription(), java_json.encode(body), timeout_ms=timeout_ms
        )

    async def unregister(
        self,
        address: str,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
        keeps_locks: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Tell one broker that a client leaves its group, and whether its locks are to expire."""
        header = UnregisterClient(
            client_id=client_id,
            producer_group=producer_group,
            consumer_group=consumer_group,
            keeps_locks=keeps_locks or None,
        )
        # Not the VIP channel: the broker ties the client to the connection of its heartbeats.
        await self._rpc.call(address, header, timeout_ms=self._limit(timeout_ms))

    # --- inside -------------------------------------------------------------------------------

    async def _call(
        self, address: str, header: Header, body: bytes = b"", *, timeout_ms: float | None
    ) -> Command:
        return await self._rpc.call(
            self.sending_address(address), header, body, timeout_ms=self._limit(timeout_ms)
        )

    async def _call_oneway(
        self, address: str, header: Header, body: bytes = b"", *, timeout_ms: float
    ) -> None:
        await self._rpc.invoke_oneway(
            self.sending_address(address), request(header, body), timeout_ms=timeout_ms
        )

    def _limit(self, timeout_ms: float | None) -> float:
        return self._call_timeout_ms if timeout_ms is None else timeout_ms

    async def _offset(
        self,
        queue: MessageQueue,
        header: Header,
        timeout_ms: float | None,
        *,
        at_master: bool = False,
    ) -> int:
        if at_master:
            reply = await self._call(await self._master(queue), header, timeout_ms=timeout_ms)
        else:
            reply, _ = await self._call_group(queue, header, timeout_ms=timeout_ms)
        return OffsetReply.decode(reply.fields).offset

    async def _call_group(
        self,
        queue: MessageQueue,
        header: Header,
        *,
        timeout_ms: float | None,
        avoids_silent: bool = True,
    ) -> tuple[Command, bool]:
        """Ask a queue's master, or a slave if that does not answer; says whether it was a slave."""
        address, is_slave = await self._master_or_slave(queue, avoids_silent=avoids_silent)
        try:
            return await self._call(address, header, timeout_ms=timeout_ms), is_slave
        except NO_ANSWER:
            self._routes.silent.note(address)
            with suppress(OrbitError):
                await self._routes.refresh(queue.topic)
            other, is_slave = await self._master_or_slave(queue, avoids_silent=avoids_silent)
            if other == address:
                raise
        return await self._call(other, header, timeout_ms=timeout_ms), is_slave

    async def _master(self, queue: MessageQueue) -> str:
        """Return the address of a queue's master, looking up the route if it is unknown."""
        address = self._routes.master_of(queue.broker_name)
        if address is None:
            await self._routes.refresh(queue.topic)
            address = self._routes.master_of(queue.broker_name)
        if address is None:
            raise BrokerUnknownError(queue.broker_name, topic=queue.topic)
        return address

    async def _master_or_slave(
        self, queue: MessageQueue, *, avoids_silent: bool
    ) -> tuple[str, bool]:
        """Return the address of a queue's master, or of a slave if there is no master."""
        routes, name = self._routes, queue.broker_name
        found = routes.address_of(name, MASTER_ID, avoids_silent=avoids_silent)
        if found is None:
            await routes.refresh(queue.topic)
            found = routes.address_of(name, MASTER_ID, avoids_silent=avoids_silent)
        if found is None:
            raise BrokerUnknownError(name, topic=queue.topic)
        return found

    def _locking_address(self, broker_name: str, queues: list[MessageQueue]) -> str:
        address = self._routes.master_of(broker_name)
        if address is None:
            raise BrokerUnknownError(broker_name, topic=queues[0].topic if queues else "")
        return address


def location_of(offset_message_id: str) -> tuple[str, int]:
    """Decode an offset message id: the broker's address, and the position in its log."""
    host, port, physical_offset = decode_message_id(offset_message_id)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}", physical_offset
