"""Our clients at an official master with a slave: they read on while the master is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.client import Message
from orbitmq.client.aio import LitePullConsumer, Producer, PushConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage, received_messages
from orbitmq.client.keywords import ClientKeywords
from orbitmq.client.sync.record_reader import RecordReader
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.offsets import StreamOffset, read_stream_offset
from orbitmq.spark.reading.stream_reader import StreamReader
from orbitmq.spark.rows.schema import table_projection
from orbitmq.spark.sessions import reader_pool
from tests.interop import wire
from tests.interop.official import OfficialNameServer
from tests.interop.pairs import OfficialPair
from tests.interop.peers import BROKERS, REFERENCE_LINE
from tests.interop.python_trials import Inbox, Site, Trial, numbered
from tests.waiting import beside, until

pytestmark = pytest.mark.interop

ROUTE_INTERVAL_MS = 1_000


@pytest.fixture(params=BROKERS, ids=str)
def pair(
    request: pytest.FixtureRequest, new_folder: Callable[[str], Path], new_topic: str
) -> Iterator[OfficialPair]:
    """A master and a slave with a topic and a name server of their own."""
    server = OfficialNameServer(REFERENCE_LINE, new_folder("pair name server"))
    made = OfficialPair(
        request.param.line, f"pair-{request.param.line}", new_folder, server.address
    )
    try:
        server.process.start()
        server.wait_ready()
        made.start(new_topic)
        yield made
    finally:
        reader_pool.stop_all()
        made.stop()
        server.process.kill()


@pytest.fixture
async def trial(pair: OfficialPair, new_topic: str) -> AsyncIterator[Trial]:
    """Our clients at the pair, with a topic of four queues."""
    site = Site(pair.master.line, pair.name_server, pair.master)
    async with Trial(site, new_topic) as made:
        yield made


class Gated:
    """A listener that waits with its messages until it is opened."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.opened = asyncio.Event()
        self.waiting = 0

    async def take(self, message: ReceivedMessage) -> None:
        self.waiting += 1
        await self.opened.wait()
        await self.inbox.take(message)

    async def all_of(self, count: int) -> list[bytes]:
        """The bodies of all messages, sorted: there shall be so many, each once."""
        return sorted(message.body for message in await self.inbox.wait_exactly(count))


def quick(trial: Trial) -> ClientKeywords:
    """Options of clients that notice changes soon."""
    return {
        "namesrv": trial.site.name_server,
        "route_interval_ms": ROUTE_INTERVAL_MS,
        "heartbeat_interval_ms": 1_000,
        "persist_interval_ms": 500,
    }


async def push(trial: Trial, kind: str, *, ordered: bool = False) -> Gated:
    """Start a push consumer in a group of its own."""
    gated = Gated()
    consumer = PushConsumer(
        f"{kind}-{trial.topic}",
        on_message=gated.take,
        ordered=ordered,
        consume_from="first",
        # So few that most messages are still at the broker when the master ends.
        pull_batch_size=1,
        pull_threshold_for_queue=1,
        **quick(trial),
    )
    consumer.subscribe(trial.topic)
    await trial.opened(consumer)
    return gated


async def lite_pull(trial: Trial) -> LitePullConsumer:
    consumer = LitePullConsumer(
        f"lite-{trial.topic}",
        consume_from="first",
        pull_batch_size=1,
        pull_threshold_for_queue=1,
        auto_commit_interval_ms=1_000,
        **quick(trial),
    )
    consumer.subscribe(trial.topic)
    await trial.opened(consumer)
    return consumer


async def send(producer: Producer, topic: str, bodies: list[bytes]) -> None:
    """Send to the four queues in turn."""
    queues = await producer.queues(topic)
    for number, body in enumerate(bodies):
        message = Message(topic, body, keys=[body.decode().replace(" ", "-")])
        await producer.send(message, queue=queues[number % 4])


async def poll_all(consumer: LitePullConsumer, count: int) -> list[bytes]:
    """The bodies of so many messages, sorted; there shall be no more."""
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [message.body for message in await consumer.poll(timeout_ms=500)]
    found += [message.body for message in await consumer.poll(timeout_ms=300)]
    return sorted(found)


async def read_all(pair: OfficialPair, topic: str) -> list[bytes]:
    """The bodies of all messages, as readers of Spark get them."""

    def read() -> list[bytes]:
        with RecordReader(namesrv=pair.name_server) as reader:
            queues = reader.queues(topic)
            ends = reader.max_offsets(queues)
            runs = reader.read([(queue, 0, ends[queue]) for queue in queues])
            return [
                message.body
                for run in runs
                for message in received_messages(run.records, run.queue.broker_name)
            ]

    return sorted(await beside(read))


async def stream_rows(pair: OfficialPair, topic: str, start: dict[str, Any]) -> tuple[int, Any]:
    """How many rows the next batch of a Spark stream has, and where it ends."""

    def read() -> tuple[int, Any]:
        given = {"namesrvAddr": pair.name_server, "subscribe": topic, "startingOffsets": "earliest"}
        options = ReadOptions.from_spark(given, streaming=True)
        reader = StreamReader(options, table_projection())
        try:
            begin = start or reader.initialOffset()
            end = reader.latestOffset(begin, ReadAllAvailable())
            parts = reader.partitions(begin, end)
            return sum(batch.num_rows for part in parts for batch in reader.read(part)), end
        finally:
            reader.stop()

    return await beside(read)


@pytest.mark.scenario("pair", "our consumers read on at a slave, and return to the master")
async def test_consumers_read_on_at_the_slave_and_return_to_the_master(
    trial: Trial, pair: OfficialPair
) -> None:
    topic = trial.topic
    first, second, third = numbered(40), numbered(20, first=40), numbered(8, first=60)
    producer = await trial.producer(route_interval_ms=ROUTE_INTERVAL_MS)
    concurrent = await push(trial, "concurrent")
    ordered = await push(trial, "ordered", ordered=True)
    lite = await lite_pull(trial)
    await send(producer, topic, first)
    await beside(pair.wait_copied, topic, len(first))
    await until(lambda: concurrent.waiting >= 4 and ordered.waiting >= 4)

    await beside(pair.kill_master)
    concurrent.opened.set()
    ordered.opened.set()

    assert await concurrent.all_of(40) == sorted(first)
    assert await poll_all(lite, 40) == sorted(first)
    late = await push(trial, "late")
    late.opened.set()
    assert await late.all_of(40) == sorted(first)
    assert await read_all(pair, topic) == sorted(first)
    rows, end = await stream_rows(pair, topic, {})
    assert rows == 40
    # A checkpoint that the slave is behind of, as of a stream that read at the master.
    ends = read_stream_offset(end).queues
    ahead = StreamOffset(base={}, queues={queue: ends[queue] + 3 for queue in ends}).to_json()
    assert await stream_rows(pair, topic, ahead) == (0, ahead)
    for kind in ("concurrent", "late", "lite"):
        await beside(wire.wait_committed, pair.slave.address, f"{kind}-{topic}", topic, 40)

    await beside(pair.restart_master)
    await send(producer, topic, second)

    everything = sorted(first + second)
    assert await concurrent.all_of(60) == everything
    assert await ordered.all_of(60) == everything
    assert await late.all_of(60) == everything
    assert await poll_all(lite, 20) == sorted(second)
    assert (await stream_rows(pair, topic, end))[0] == 20
    for kind in ("concurrent", "ordered", "late", "lite"):
        await beside(wire.wait_committed, pair.master.address, f"{kind}-{topic}", topic, 60)
    by_queue: dict[int, list[bytes]] = {}
    for message in ordered.inbox.messages:
        by_queue.setdefault(message.queue_id, []).append(message.body)
    assert by_queue == {number: (first + second)[number::4] for number in range(4)}

    # They are back: what they get now can come from the master only.
    await beside(pair.slave.process.kill)
    await send(producer, topic, third)
    for consumer in (concurrent, ordered, late):
        await consumer.all_of(68)
    assert await poll_all(lite, 8) == sorted(third)
