"""What do clients notice of the death of a master whose slave lives, with nobody's help?

    python -m benchmarks.master_death [--messages N] [--rounds N] [--no-java] [--smoke]

Two groups, each a master and a slave, share a topic. A consumer of ours works through a backlog and a
producer of ours sends one message after the other, with the options that both have by default; then
one master is killed. Measured is the longest pause of the consumer in what the dead master's group
has, which its slave serves from then on, and the longest send, which another master takes in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from benchmarks.brokers import QUEUES
from benchmarks.load import LoadError
from benchmarks.pairs import (
    BODY_BYTES,
    TIMEOUT_S,
    Question,
    Site,
    ask,
    fill,
    start_broker,
    start_slave,
    wait_copied,
)
from orbitmq.client import Message, ReceivedMessage
from orbitmq.client.aio import Producer, PushConsumer
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError
from tests.interop import wire
from tests.waiting import wait_until

_CLOCK: Final = SystemClock()
_READS: Final = {"slaveReadEnable": "true"}


def _topic_of(site: Site) -> str:
    """Each round has a topic of its own, on brokers of its own."""
    return f"benchmark_master_death_{site.name}"


class Watch:
    """A consumer that notes its longest pause in the messages of one group."""

    def __init__(self, name: str, backlog: int) -> None:
        self.name = name
        self.backlog = backlog
        self.count = 0
        self.longest_s = 0.0
        self.last_s = time.perf_counter()
        self.part_done = asyncio.Event()
        self.all_done = asyncio.Event()

    async def take(self, messages: list[ReceivedMessage]) -> None:
        """Note messages of the group, and when they came."""
        own = sum(message.queue.broker_name == self.name for message in messages)
        if not own:
            return
        # What was pulled ahead must not hide the pause.
        await _CLOCK.sleep_ms(1)
        now_s = time.perf_counter()
        self.longest_s = max(self.longest_s, now_s - self.last_s)
        self.last_s = now_s
        self.count += own
        if self.count >= self.backlog // 5:
            self.part_done.set()
        if self.count >= self.backlog:
            self.all_done.set()


async def _watch(site: Site, doomed: str, kill: asyncio.Event) -> dict[str, float]:
    topic = _topic_of(site)
    watch = Watch(doomed, site.messages)
    consumer = PushConsumer(
        f"readers-{site.name}",
        on_messages=watch.take,
        consume_batch_size=32,
        consume_from="first",
        namesrv=site.name_server,
    )
    consumer.subscribe(topic)
    longest_s, failed = 0.0, 0
    async with Producer(f"writers-{site.name}", namesrv=site.name_server) as producer, consumer:
        body = bytes(BODY_BYTES)
        await asyncio.wait_for(watch.part_done.wait(), TIMEOUT_S)
        watch.longest_s = 0.0
        while not watch.all_done.is_set():
            began_s = time.perf_counter()
            if began_s - watch.last_s > TIMEOUT_S:
                raise LoadError(f"only {watch.count} of {watch.backlog} messages came")
            try:
                await producer.send(Message(topic, body))
            except OrbitError:
                failed += 1
            longest_s = max(longest_s, time.perf_counter() - began_s)
            kill.set()
    return {"pause_ms": watch.longest_s * 1000, "send_ms": longest_s * 1000, "failed": failed}


def after_death(site: Site) -> dict[str, float]:
    """Kill one of two masters while clients work, and tell what these noticed."""
    names = (f"{site.name}-a", f"{site.name}-b")
    topic = _topic_of(site)
    with contextlib.ExitStack() as running:
        masters = []
        for name in names:
            master = start_broker(
                running, site.line, name, site.folder / name, site.name_server, _READS
            )
            wire.create_topic(master.address, topic, queues=QUEUES)
            slave = start_slave(running, site, name, master, _READS)
            _wait_for_topic(slave.address, topic)
            masters.append((master, slave))
        doomed, its_slave = masters[0]
        asyncio.run(fill(doomed, topic, site))
        wait_copied(doomed.address, its_slave.address)

        async def work() -> dict[str, float]:
            kill = asyncio.Event()

            async def end_master() -> None:
                await kill.wait()
                doomed.process.popen.kill()

            _, figures = await asyncio.gather(end_master(), _watch(site, names[0], kill))
            return figures

        return asyncio.run(work())


def _wait_for_topic(slave: str, topic: str) -> None:
    """Wait until a slave knows a topic: an official one copies tables every ten seconds."""
    wait_until(
        lambda: topic in wire.ask(slave, wire.GET_ALL_TOPIC_CONFIG).body["topicConfigTable"],
        timeout_s=TIMEOUT_S,
        what=f"{slave} knows {topic}",
    )


QUESTION: Final = Question(
    name="master_death",
    description="Compare what clients notice of the death of a master.",
    measure=after_death,
    columns={
        "pause_ms": ("longest pause of the consumer ms", 0),
        "send_ms": ("longest send ms", 0),
        "failed": ("sends failed", 0),
    },
    messages=200_000,
    smoke_messages=2_000,
)

if __name__ == "__main__":
    ask(QUESTION)
