"""A cluster for fault tests: a name server and a broker, processes behind fault proxies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitmq.client import Message
from orbitmq.client.aio import Producer, PullConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.keywords import MemberKeywords
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError
from tests.integration.client.fault_proxy import proxied
from tests.integration.client.stalls import timed
from tests.integration.conftest import PATIENCE_MS
from tests.interop import wire
from tests.interop.ours import OrbitBroker, OrbitNameServer

CLOCK = SystemClock()
# How late a call may end after its deadline on a busy machine. Time in which the whole process
# stood still is not counted.
SLACK_MS = 2000
BACK_TIMEOUT_S = 120


class ChaosSite:
    """The processes and the proxies in front of them; clients connect through the proxies."""

    def __init__(self, folder: Path) -> None:
        self.name_server = OrbitNameServer(folder / "name-server")
        self.broker = OrbitBroker(
            "chaos",
            folder / "broker",
            [self.name_server.address],
            {"messageDelayLevel": "1s 1s 1s 1s 1s 1s"},
        )
        self.before_name_server, (self.before_broker,) = proxied(
            self.name_server.address, [self.broker.address], seed=1
        )
        self._numbers = itertools.count(1)

    @property
    def namesrv(self) -> str:
        """The address for clients that shall meet the faults."""
        return self.before_name_server.address

    def start(self) -> None:
        self.name_server.process.start()
        self.broker.process.start()
        self.name_server.wait_ready()
        self.broker.wait_ready()

    def stop(self) -> None:
        self.before_name_server.stop()
        self.before_broker.stop()
        self.broker.process.kill()
        self.name_server.process.kill()

    def new_topic(self, *, queues: int = 4) -> str:
        """Create a topic that no other test uses."""
        topic = f"chaos-{next(self._numbers)}"
        self.broker.create_topic(topic, queues=queues)
        return topic

    def heal(self) -> None:
        """Undo all faults: also restarts killed servers and resumes paused ones."""
        self.before_name_server.heal()
        self.before_broker.heal()
        for server in (self.name_server, self.broker):
            if not server.process.is_running():
                server.process.start()
                server.wait_ready()
            server.process.resume()

    def kill(self, server: OrbitBroker | OrbitNameServer) -> None:
        """Kill a server."""
        server.process.kill()

    def restart(self, server: OrbitBroker | OrbitNameServer) -> None:
        """Restart a killed server; returns once it is ready."""
        server.process.start()
        server.wait_ready()

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The committed offset of a group in each queue; 0 where it has none."""
        offsets = {}
        for queue_id in range(queue_count(self, topic)):
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
            answer = wire.ask(self.broker.address, wire.QUERY_CONSUMER_OFFSET, fields)
            offsets[queue_id] = int(answer.fields["offset"]) if answer.code == wire.SUCCESS else 0
        return offsets

    def ends(self, topic: str) -> dict[int, int]:
        """The end offset of each queue."""
        return {
            queue_id: wire.max_offset(self.broker.address, topic, queue_id)
            for queue_id in range(queue_count(self, topic))
        }

    async def stored(self, topic: str) -> list[ReceivedMessage]:
        """All stored messages of a topic, read without a proxy."""
        messages: list[ReceivedMessage] = []
        async with PullConsumer(
            "auditors",
            namesrv=self.name_server.address,
            call_timeout_ms=PATIENCE_MS,
            pull_timeout_ms=PATIENCE_MS,
        ) as auditor:
            for queue in await auditor.queues(topic):
                offset = 0
                while found := (await auditor.pull(queue, "*", offset, 32)).messages:
                    messages += found
                    offset = found[-1].queue_offset + 1
        return messages


def queue_count(site: ChaosSite, topic: str) -> int:
    """How many queues a topic has."""
    route = wire.ask(site.name_server.address, wire.GET_ROUTE, {"topic": topic}).body
    return int(route["queueDatas"][0]["readQueueNums"])


@contextmanager
def chaos_site(folder: Path) -> Iterator[ChaosSite]:
    """Run a site."""
    site = ChaosSite(folder)
    try:
        site.start()
        yield site
    finally:
        site.stop()


def quick_member(namesrv: str) -> MemberKeywords:
    """Options of a consumer that starts at the first message and rebalances often."""
    return {
        "namesrv": namesrv,
        "consume_from": "first",
        "rebalance_interval_ms": 500,
        "persist_interval_ms": 300,
        "heartbeat_interval_ms": 1000,
    }


class Ledger:
    """The acknowledged messages, and the outcome of every send."""

    def __init__(self, producer: Producer, topic: str, *, timeout_ms: int = 1500) -> None:
        self.acked: list[bytes] = []
        self.failed: list[OrbitError] = []
        self.overdue_ms: list[float] = []
        self._producer = producer
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._numbers = itertools.count()

    async def send(self) -> bool:
        """Send a message and record its outcome; an error that is not ours fails the test."""
        body = b"message %d" % next(self._numbers)
        async with timed() as taken:
            try:
                await self._producer.send(Message(self._topic, body), timeout_ms=self._timeout_ms)
            except OrbitError as error:
                self.failed.append(error)
            else:
                self.acked.append(body)
        late_ms = taken.ms - self._timeout_ms
        if late_ms > SLACK_MS:
            self.overdue_ms.append(late_ms)
        return self.acked[-1:] == [body]

    async def send_many(self, count: int, *, at_once: int = 8) -> None:
        """Send messages, several concurrently."""

        async def lane(share: int) -> None:
            for _ in range(share):
                await self.send()

        await asyncio.gather(*(lane(count // at_once) for _ in range(at_once)))

    async def send_until(self, enough: asyncio.Event, *, at_once: int = 8) -> None:
        """Send messages, several concurrently, until the event is set."""

        async def lane() -> None:
            while not enough.is_set():
                if not await self.send():
                    await CLOCK.sleep_ms(20)

        await asyncio.gather(*(lane() for _ in range(at_once)))

    async def send_until_acked(self, *, timeout_s: float = BACK_TIMEOUT_S) -> None:
        """Send until one succeeds: the client has recovered by itself."""
        end_ms = CLOCK.monotonic_ms() + timeout_s * 1000
        while not await self.send():
            assert CLOCK.monotonic_ms() < end_ms, f"no send succeeded: {self.failed[-1]}"
            await CLOCK.sleep_ms(50)

    def missing(self, bodies: Iterable[bytes]) -> list[bytes]:
        """The acknowledged messages that are not among these."""
        there = set(bodies)
        return [body for body in self.acked if body not in there]


@pytest.fixture(autouse=True, scope="module")
def patience() -> None:
    """Files that import this fixture have clients with the usual time limits, which they meet."""


@pytest.fixture(scope="module")
def chaos_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosSite]:
    """A site for the tests of a module."""
    with chaos_site(tmp_path_factory.mktemp("chaos")) as site:
        yield site


@pytest.fixture
def chaos(chaos_processes: ChaosSite) -> Iterator[ChaosSite]:
    """The site, without faults at the start and end of each test."""
    yield chaos_processes
    chaos_processes.heal()
