"""Clients that write down what they do and see: producers, a group's member, auditors.

Producers and consumers reach servers over links, and meet all faults. Auditors ask servers directly,
so they see what each of them holds while others cannot reach it.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import Sequence
from typing import Final

from orbitmq.client import Message, MessageQueue
from orbitmq.client.aio import Producer, PullConsumer
from orbitmq.client.core.consuming.received_message import received_messages
from orbitmq.client.core.sending.send_results import Durability, SendResult
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError, RemoteError, SendError, StateError
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.offsets import GetCommittedOffset, OffsetReply
from orbitmq.protocol.requests.statistics import GetRuntime
from orbitmq.record.message_id import decode_message_id
from orbitmq.transport.rpc_client import RpcClient
from tests.replication.asking import ASK_TIMEOUT_MS as CALL_TIMEOUT_MS
from tests.replication.asking import pull
from tests.replication.cluster import Cluster, Server
from tests.replication.history import (
    Assigned,
    CommitAcked,
    CommitInvoked,
    CommittedSeen,
    Delivered,
    History,
    LogEndSeen,
    MessageRead,
    Queue,
    ScanEnded,
    SendAcked,
    SendFailed,
    SendInvoked,
    SendUnknown,
)

CLOCK: Final = SystemClock()
GROUP: Final = "consumers"
_SEND_PAUSE_MS: Final = 8
_IDLE_PAUSE_MS: Final = 20
_FAILED_PAUSE_MS: Final = 50
_PULL_COUNT: Final = 32
# How much of what an auditor has seen before it reads again.
_OVERLAP: Final = 16


def client_queue(queue: Queue) -> MessageQueue:
    """A queue as clients name it."""
    return MessageQueue(broker_name=queue.broker, queue_id=queue.queue_id, topic=queue.topic)


class Producing:
    """A producer that sends one message after the other, each once."""

    def __init__(
        self, name: str, cluster: Cluster, history: History, queues: Sequence[Queue], seed: int
    ) -> None:
        self.name = name
        # How many messages of each queue were acknowledged.
        self.acked = dict.fromkeys(queues, 0)
        self._cluster = cluster
        self._history = history
        self._chance = random.Random(f"{name} {seed}")
        self._numbers = itertools.count()
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Send until told to stop."""
        async with Producer(
            "producers",
            namesrv=self._cluster.namesrv,
            retries=0,
            send_timeout_ms=CALL_TIMEOUT_MS,
            call_timeout_ms=CALL_TIMEOUT_MS,
            connect_timeout_ms=CALL_TIMEOUT_MS,
            route_interval_ms=CALL_TIMEOUT_MS,
        ) as producer:
            while not self.stopping.is_set():
                queue = self._chance.choice(list(self.acked))
                is_acked = await self._send(producer, queue)
                pause_ms = _SEND_PAUSE_MS if is_acked else _FAILED_PAUSE_MS
                await CLOCK.sleep_ms(self._chance.random() * pause_ms)

    async def _send(self, producer: Producer, queue: Queue) -> bool:
        value = f"{self.name}-{next(self._numbers)}"
        # Some fill a page and more, so that files change.
        body = value + " " * self._chance.choice((0, 0, 0, 5_000))
        send = self._history.record(SendInvoked(producer=self.name, value=value)).number
        try:
            result = await producer.send(Message(queue.topic, body), queue=client_queue(queue))
        except SendError as error:
            kind = SendUnknown if error.may_be_stored else SendFailed
            self._history.record(kind(send=send, value=value, reason=str(error)))
            return False
        except OrbitError as error:
            self._history.record(SendUnknown(send=send, value=value, reason=str(error)))
            return False
        self._history.record(self._receipt(send, value, queue, result))
        self.acked[queue] += 1
        return True

    def _receipt(self, send: int, value: str, queue: Queue, result: SendResult) -> SendAcked:
        host, port, physical_offset = decode_message_id(result.offset_message_id)
        return SendAcked(
            send=send,
            producer=self.name,
            value=value,
            queue=queue,
            offset=result.queue_offset,
            server=self._cluster.server_at(f"{host}:{port}"),
            message_id=result.message_id,
            status=result.status.name,
            flushed=bool(result.copies_on_disk) or result.durability is Durability.DISK,
            copies=result.copies or 1,
            physical_offset=physical_offset,
        )


class _Answering:
    """Remembers which server answered the last request of each kind about a queue."""

    def __init__(self) -> None:
        self.addresses: dict[tuple[int, str], str] = {}

    def before_request(self, address: str, request: Command) -> None:
        """Do nothing."""

    def after_response(self, address: str, request: Command, response: Command | None) -> None:
        """Note who answered."""
        if response is not None:
            self.addresses[request.code, request.fields.get("queueId", "")] = address


class Consuming:
    """The one member of a group: it reads every queue in order, and commits as it goes."""

    def __init__(self, cluster: Cluster, history: History, queues: Sequence[Queue]) -> None:
        self._cluster = cluster
        self._history = history
        # Where it is in each queue.
        self.reached = dict.fromkeys(queues, 0)
        self._answering = _Answering()

    async def run(self) -> None:
        """Consume until cancelled."""
        async with (
            PullConsumer(
                GROUP,
                namesrv=self._cluster.namesrv,
                rpc_hooks=[self._answering],
                call_timeout_ms=CALL_TIMEOUT_MS,
                pull_timeout_ms=CALL_TIMEOUT_MS,
                connect_timeout_ms=CALL_TIMEOUT_MS,
                route_interval_ms=CALL_TIMEOUT_MS,
            ) as consumer,
            asyncio.TaskGroup() as lives,
        ):
            for queue in self.reached:
                lives.create_task(self._consume(consumer, queue))

    async def _consume(self, consumer: PullConsumer, queue: Queue) -> None:
        """Read a queue from its committed offset, again after each failure."""
        for life in itertools.count(1):
            try:
                reign = self._cluster.reigns[queue.broker]
                offset = await consumer.committed(client_queue(queue)) or 0
                server = self._server(RequestCode.QUERY_CONSUMER_OFFSET, queue)
                self._check_past(server, queue, reign)
                member = f"member {life}"
                self._history.record(
                    Assigned(group=GROUP, member=member, queue=queue, start=offset)
                )
                while True:
                    offset = await self._step(consumer, member, queue, offset, reign)
                    self.reached[queue] = offset
            except OrbitError:
                await CLOCK.sleep_ms(_FAILED_PAUSE_MS)

    async def _step(
        self, consumer: PullConsumer, member: str, queue: Queue, offset: int, reign: int
    ) -> int:
        """Get some messages and commit them; returns where to go on."""
        asked = len(self._history)
        result = await consumer.pull(client_queue(queue), "*", offset, _PULL_COUNT)
        server = self._server(RequestCode.PULL_MESSAGE, queue)
        self._check_past(server, queue, reign)
        if not result.messages:
            await CLOCK.sleep_ms(_IDLE_PAUSE_MS)
            return offset
        for message in result.messages:
            self._history.record(
                Delivered(
                    group=GROUP,
                    member=member,
                    queue=queue,
                    offset=message.queue_offset,
                    value=message.body.decode().rstrip(),
                    server=server,
                    asked=asked,
                )
            )
        commit = self._history.record(
            CommitInvoked(group=GROUP, member=member, queue=queue, offset=result.next_offset)
        )
        await consumer.commit({client_queue(queue): result.next_offset})
        self._history.record(
            CommitAcked(
                commit=commit.number,
                group=GROUP,
                member=member,
                queue=queue,
                offset=result.next_offset,
                server=self._server(RequestCode.UPDATE_CONSUMER_OFFSET, queue),
            )
        )
        return result.next_offset

    def _check_past(self, server: str, queue: Queue, reign: int) -> None:
        """Begin anew after a promotion, or if a server may show the past before it.

        Clients are not told of promotions. One that keeps its position, and has read more than the
        new master has, misses what is stored there up to its position.
        """
        if self._cluster.reigns[queue.broker] != reign or server in self._cluster.turning:
            raise StateError(f"{queue.broker} has a new master, or {server} had one")

    def _server(self, code: int, queue: Queue) -> str:
        address = self._answering.addresses.get((code, str(queue.queue_id)), "")
        return self._cluster.server_at(address)


class Auditing:
    """Asks each server what it holds."""

    def __init__(self, cluster: Cluster, history: History, queues: Sequence[Queue]) -> None:
        self._cluster = cluster
        self._history = history
        self._queues = queues
        self._rpc = RpcClient()
        self._seen: dict[tuple[str, Queue], int] = {}

    async def run(self, pause_ms: float) -> None:
        """Look at all servers again and again until cancelled."""
        while True:
            for server in list(self._cluster.servers.values()):
                # One that is down, or stands still, is asked again later.
                with contextlib.suppress(OrbitError):
                    await self._ask_log_end(server)
                    for queue in self._queues_of(server):
                        await self._look(server, queue)
            await CLOCK.sleep_ms(pause_ms)

    async def open(self) -> None:
        """Get ready to ask."""
        await self._rpc.start()

    async def close(self) -> None:
        """Close the connections."""
        await self._rpc.stop()

    def _queues_of(self, server: Server) -> list[Queue]:
        return [queue for queue in self._queues if queue.broker == server.broker]

    async def _look(self, server: Server, queue: Queue) -> None:
        low = max(0, self._seen.get((server.name, queue), 0) - _OVERLAP)
        self._seen[server.name, queue] = await self.scan(server, queue, low=low)
        await self._ask_committed(server, queue)

    async def read_all(self) -> None:
        """Read every queue of every server from its start."""
        for server in self._cluster.servers.values():
            for queue in self._queues_of(server):
                await self.scan(server, queue, final=True)
                await self._ask_committed(server, queue)

    async def end(self, server: Server, queue: Queue) -> int:
        """Ask where a queue of a server ends."""
        reply = await self._pull(server, queue, 0, count=1)
        return int(reply.fields["maxOffset"])

    async def scan(self, server: Server, queue: Queue, *, low: int = 0, final: bool = False) -> int:
        """Read a queue of a server up to its present end, which is returned."""
        asked = len(self._history)
        offset, end = low, low + 1
        while offset < end:
            reply = await self._pull(server, queue, offset, count=_PULL_COUNT)
            if offset == low:
                end = int(reply.fields["maxOffset"])
                # A promotion may have cut the queue below what was read before.
                low = max(low, int(reply.fields["minOffset"])) if end > low else end
                offset = min(offset, end)
            if reply.code != ResponseCode.SUCCESS:
                break
            for message in received_messages(reply.body, queue.broker):
                self._history.record(
                    MessageRead(
                        reader=f"auditor of {server.name}",
                        queue=queue,
                        offset=message.queue_offset,
                        value=message.body.decode().rstrip(),
                        server=server.name,
                        asked=asked,
                    )
                )
                offset = message.queue_offset + 1
        self._history.record(
            ScanEnded(
                reader=f"auditor of {server.name}",
                queue=queue,
                low=low,
                end=max(offset, end),
                server=server.name,
                asked=asked,
                final=final,
            )
        )
        return end

    async def _pull(self, server: Server, queue: Queue, offset: int, *, count: int) -> Command:
        reply = await pull(self._rpc, server, queue, offset, count=count)
        self._check_past(server)
        return reply

    def _check_past(self, server: Server) -> None:
        """Drop what a server shows while nobody knows of which past it is."""
        if server.name in self._cluster.turning:
            raise StateError(f"{server.name} may follow its new master, or not yet")

    async def _ask_log_end(self, server: Server) -> None:
        asked = len(self._history)
        reply = await self._rpc.call(server.address, GetRuntime(), timeout_ms=CALL_TIMEOUT_MS)
        end = int(json.loads(reply.body)["table"]["commitLogMaxOffset"])
        self._check_past(server)
        self._history.record(
            LogEndSeen(server=server.name, broker=server.broker, end=end, asked=asked)
        )

    async def _ask_committed(self, server: Server, queue: Queue) -> None:
        asked = len(self._history)
        header = GetCommittedOffset(
            consumer_group=GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            zero_if_missing=False,
            broker_name=queue.broker,
        )
        try:
            reply = await self._rpc.call(server.address, header, timeout_ms=CALL_TIMEOUT_MS)
            offset = int(OffsetReply.decode(reply.fields).offset)
        except RemoteError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            offset = 0
        self._check_past(server)
        self._history.record(
            CommittedSeen(group=GROUP, queue=queue, offset=offset, server=server.name, asked=asked)
        )
