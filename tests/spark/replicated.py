"""Broker groups for Spark: masters that wait for their slaves, killed and replaced.

The first master is a process of its own and gets SIGKILL; the others are dropped in this process.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Self

from orbitmq.client import Message, Producer, PullConsumer
from orbitmq.client.sync.background_loop import BackgroundLoop
from orbitmq.errors import OrbitError
from orbitmq.model.queues import MessageQueue
from orbitmq.record.decode import decode_record
from orbitmq.store.message_store import MessageStore
from tests.integration.replication.group import Group
from tests.spark.topics import PATIENCE_MS
from tests.waiting import until

# The first of them decides for all queries.
GROUPS = ("group-a", "group-b")
_OPTIONS = {
    "brokerRole": "SYNC_MASTER",
    # A slave on a busy machine is not a slave that is gone.
    "slaveTimeout": "60000",
    "syncFlushTimeout": "60000",
}
_BATCH_MESSAGES = 4

# A message of a topic: its queue, and its number there.
Place = tuple[MessageQueue, int]


class ReplicatedCluster(AbstractContextManager["ReplicatedCluster"]):
    """Two groups of a master and a slave; the first master is a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._loop = BackgroundLoop("replicated-cluster", owner="cluster")
        self._opened = AsyncExitStack()
        first = Group(folder / GROUPS[0], name=GROUPS[0])
        second = Group(folder / GROUPS[1], name=GROUPS[1], beside=first)
        self._groups = {group.name: group for group in (first, second)}

    def __enter__(self) -> Self:
        self._loop.start()
        self._loop.call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.call(self._opened.aclose())
        finally:
            self._loop.end()

    async def _start(self) -> None:
        for group in self._groups.values():
            await self._opened.enter_async_context(group)
        first, second = self._groups.values()
        await asyncio.gather(_start_pair_apart(first), _start_pair(second))

    @property
    def namesrv(self) -> str:
        """The address of the name server."""
        return self._groups[GROUPS[0]].namesrv

    def create_topic(self, name: str, *, queues: int) -> None:
        """Create a topic with this many queues at each group; the slaves know it, too."""

        async def create(group: Group) -> None:
            await group.create_topic(name, queues)
            await until(lambda: group.brokers[1].topics.get(name) is not None)

        for group in self._groups.values():
            self._loop.call(create(group))

    def replace_master(self, name: str) -> None:
        """Kill the master of a group, and promote its slave."""

        async def replace(group: Group) -> None:
            await group.kill(0)
            await group.until_missed(0)
            await group.promote(1, role="ASYNC_MASTER")

        self._loop.call(replace(self._groups[name]))

    def return_as_slave(self, name: str) -> None:
        """Start the master that died."""
        self._loop.call(self._groups[name].start(0))

    def until_copied(self) -> None:
        """Wait until the masters that died have what the new ones have."""
        for group in self._groups.values():
            self._loop.call(group.until_copied(0, master=1))

    def bodies_at(self, broker_id: int, topic: str, *, queues: int) -> Counter[str]:
        """The messages that the brokers of this id show, one of each group."""

        async def read() -> Counter[str]:
            return Counter(
                decode_record(record).body.decode()
                for group in self._groups.values()
                for queue_id in range(queues)
                for record in _records_of(group.brokers[broker_id].store, topic, queue_id)
            )

        return self._loop.call(read())


def _records_of(store: MessageStore, topic: str, queue_id: int) -> Iterator[bytes]:
    """All records of a queue; one read ends with a file of the queue."""
    offset, end = 0, store.end_of(topic, queue_id)
    while offset < end:
        found = store.read_bulk(topic, queue_id, offset, 100_000, 1 << 26)
        assert found.next_offset > offset
        yield from found.records
        offset = found.next_offset


async def _start_pair(group: Group) -> None:
    master, _ = await group.pair(options=_OPTIONS)
    gate = master.replication.gate
    assert gate is not None
    await until(lambda: not gate.is_short)


async def _start_pair_apart(group: Group) -> None:
    """Start a pair whose master is a process of its own, which a kill ends without a word."""
    await group.start_apart(**_OPTIONS)
    await group.start(1)
    await group.until_in_sync()


class PlaceLedger(AbstractContextManager["PlaceLedger"]):
    """Sends messages whatever happens, and records the place of each that was acknowledged."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self._namesrv = namesrv
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="place ledger")
        # Replaced as a whole.
        self.acknowledged: dict[Place, str] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()
        self._thread.join()

    def acknowledged_by(self, broker_name: str) -> int:
        """How many messages a group has acknowledged."""
        return sum(queue.broker_name == broker_name for queue, _ in self.acknowledged)

    def _send(self) -> None:
        with Producer(
            "place-ledger",
            namesrv=self._namesrv,
            send_timeout_ms=PATIENCE_MS,
            # It notices a new master soon.
            route_interval_ms=200,
        ) as producer:
            queues = producer.queues(self._topic)
            number = 0
            while not self._ended.wait(0.02):
                queue = queues[number % len(queues)]
                keys = [f"key-{number}-{row}" for row in range(_BATCH_MESSAGES)]
                number += 1
                try:
                    self._send_batch(producer, queue, keys)
                except OrbitError:
                    # Perhaps it is stored: then the topic has more than the ledger.
                    continue

    def _send_batch(self, producer: Producer, queue: MessageQueue, keys: Sequence[str]) -> None:
        batch = [Message(self._topic, b"a row", keys=key) for key in keys]
        first = producer.send(batch, queue=queue).queue_offset
        added = {(queue, offset): key for offset, key in enumerate(keys, first)}
        self.acknowledged = {**self.acknowledged, **added}


def messages_of(namesrv: str, topic: str) -> dict[Place, str]:
    """The key of each message of a topic."""
    found: dict[Place, str] = {}
    with PullConsumer("auditors", namesrv=namesrv, call_timeout_ms=PATIENCE_MS) as consumer:
        for queue in consumer.queues(topic):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                pulled = consumer.pull(queue, "*", offset)
                for message in pulled.messages:
                    found[queue, message.queue_offset] = "".join(message.keys)
                offset = pulled.next_offset
    return found
