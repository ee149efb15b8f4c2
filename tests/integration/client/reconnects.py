"""Thousands of reconnects: the resources of a client must not grow with their number.

    python -m tests.integration.client.reconnects 10000 --page docs/soak/client-reconnects.md

A producer, a push consumer and a lite pull consumer reach a broker through a fault proxy that
ends all their connections again and again, in different ways. After each cut a message is sent
until it is acknowledged. At the end every acknowledged message must have been received, and tasks,
sockets, threads and memory must be as after the first tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import gc
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from orbitmq.client import Message
from orbitmq.client.aio import LitePullConsumer, Producer, PushConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.errors import OrbitError
from orbitmq.version import __version__
from tests.integration.client.chaos_site import CLOCK, ChaosSite, chaos_site, quick_member
from tests.integration.client.fault_proxy import REFUSE
from tests.waiting import beside, until_reached

# Samples per campaign: fewer in a short one, since each takes a second.
SAMPLES, SAMPLES_OF_SHORT = 10, 3
SHORT_ROUNDS = 1000
LOOKS, LOOKS_MAX, LOOK_PAUSE_MS = 10, 300, 100
THREADS = 4
SEND_TIMEOUT_MS = 3000
BACK_TIMEOUT_S = 60
# Growth that the interpreter and the system may cause by themselves.
OBJECTS_GROWTH_MAX = 2000
MEMORY_GROWTH_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The resources of the process at one moment."""

    reconnects: int
    tasks: int
    sockets: int
    threads: int
    objects: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a campaign."""

    seconds: float
    reconnects: int
    acked: int
    failed_sends: int
    missing_pushed: int
    missing_polled: int
    samples: Sequence[Sample]

    @property
    def faults(self) -> list[str]:
        """What is wrong, if anything."""
        start, end = self.samples[1], self.samples[-1]
        faults = [
            f"{name} grew from {getattr(start, name)} to {getattr(end, name)}"
            for name, bound in (
                ("tasks", 0),
                ("sockets", 0),
                ("threads", 0),
                ("objects", OBJECTS_GROWTH_MAX),
                ("memory_bytes", MEMORY_GROWTH_BYTES_MAX),
            )
            if getattr(end, name) > getattr(start, name) + bound
        ]
        if self.missing_pushed or self.missing_polled:
            faults.append(f"missing: {self.missing_pushed} pushed, {self.missing_polled} polled")
        return faults


class Reconnects:
    """One campaign at a site."""

    def __init__(self, site: ChaosSite, topic: str, rounds: int) -> None:
        self._site = site
        self._topic = topic
        self._rounds = rounds
        self._process = psutil.Process()
        # A byte per message, allocated at once: the records of the campaign must not grow.
        self._acked = bytearray(rounds)
        self._pushed = bytearray(rounds)
        self._polled = bytearray(rounds)
        self._failed = 0

    async def run(self) -> Verdict:
        """Cut and reconnect in every round."""
        start_ms = CLOCK.monotonic_ms()
        # The campaign starts its own threads first, so that they do not look like a leak.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        together = threading.Barrier(THREADS)
        await asyncio.gather(*(beside(together.wait) for _ in range(THREADS)))
        options = quick_member(self._site.namesrv)
        producer = Producer("reconnecting-producers", namesrv=self._site.namesrv)
        pushed = PushConsumer(f"pushed-{self._topic}", on_message=self._take_pushed, **options)
        pushed.subscribe(self._topic)
        polled = LitePullConsumer(f"polled-{self._topic}", **options)
        polled.subscribe(self._topic)
        async with producer, pushed, polled:
            polling = asyncio.create_task(self._poll(polled))
            try:
                samples = await self._rounds_of(producer)
                await until_reached(
                    lambda: self._missing(self._pushed) + self._missing(self._polled) == 0,
                    timeout_s=BACK_TIMEOUT_S,
                    what="everything acknowledged received",
                )
            finally:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
        return Verdict(
            seconds=(CLOCK.monotonic_ms() - start_ms) / 1000,
            reconnects=self._site.before_broker.counts["connections"],
            acked=sum(self._acked),
            failed_sends=self._failed,
            missing_pushed=self._missing(self._pushed),
            missing_polled=self._missing(self._polled),
            samples=samples,
        )

    async def _rounds_of(self, producer: Producer) -> list[Sample]:
        samples: list[Sample] = []
        count = SAMPLES if self._rounds >= SHORT_ROUNDS else SAMPLES_OF_SHORT
        for number in range(self._rounds):
            if number % (self._rounds // count) == 0:
                samples.append(await self._sample(samples))
            await self._cut(number)
            await self._send_until_acked(producer, number)
        samples.append(await self._sample(samples))
        return samples

    async def _cut(self, number: int) -> None:
        proxy = self._site.before_broker
        if number % 50 == 49:
            await beside(proxy.inflict, REFUSE)
            await beside(proxy.heal)
        else:
            await beside(proxy.cut, reset=number % 2 == 0)

    async def _send_until_acked(self, producer: Producer, number: int) -> None:
        end_ms = CLOCK.monotonic_ms() + BACK_TIMEOUT_S * 1000
        while True:
            try:
                await producer.send(Message(self._topic, str(number)), timeout_ms=SEND_TIMEOUT_MS)
            except OrbitError:
                self._failed += 1
                assert CLOCK.monotonic_ms() < end_ms, "the producer does not come back"
                await CLOCK.sleep_ms(1)
            else:
                self._acked[number] = 1
                return

    async def _take_pushed(self, message: ReceivedMessage) -> None:
        self._pushed[int(message.body)] = 1

    async def _poll(self, consumer: LitePullConsumer) -> None:
        while True:
            for message in await consumer.poll(timeout_ms=1000):
                self._polled[int(message.body)] = 1

    def _missing(self, received: bytearray) -> int:
        return sum(acked and not got for acked, got in zip(self._acked, received, strict=True))

    async def _sample(self, earlier: Sequence[Sample]) -> Sample:
        """Take a sample once all clients have reconnected."""
        await until_reached(
            lambda: self._missing(self._pushed) + self._missing(self._polled) == 0,
            timeout_s=BACK_TIMEOUT_S,
            what="everything acknowledged received",
        )
        bound = earlier[1] if len(earlier) > 1 else None
        tasks, sockets, threads = [], [], []
        for look in range(LOOKS_MAX):
            await CLOCK.sleep_ms(LOOK_PAUSE_MS)
            tasks.append(len(asyncio.all_tasks()))
            sockets.append(len(self._process.net_connections("tcp")))
            threads.append(threading.active_count())
            # On a busy machine it may take longer for resources to be released.
            is_low = bound is None or (
                min(tasks) <= bound.tasks
                and min(sockets) <= bound.sockets
                and min(threads) <= bound.threads
            )
            if is_low and look + 1 >= LOOKS:
                break
        gc.collect()
        return Sample(
            reconnects=self._site.before_broker.counts["connections"],
            # The minimum over several looks: periodic work comes and goes.
            tasks=min(tasks),
            sockets=min(sockets),
            threads=min(threads),
            objects=len(gc.get_objects()),
            memory_bytes=self._process.memory_info().rss,
        )


def page(verdict: Verdict) -> str:
    """The page about a campaign."""
    now = datetime.datetime.fromtimestamp(CLOCK.now_ms() / 1000, datetime.UTC)
    rows = "".join(
        f"| {one.reconnects:,} | {one.tasks} | {one.sockets} | {one.threads} | {one.objects:,} "
        f"| {one.memory_bytes / 2**20:.1f} |\n"
        for one in verdict.samples
    )
    return (
        "# Clients that reconnect thousands of times\n\n"
        f"{'FAILED: ' + '; '.join(verdict.faults) if verdict.faults else 'Passed'}. "
        f"{now.date().isoformat()}, OrbitMQ {__version__}. "
        "Written by `tests/integration/client/reconnects.py` (`make soak`).\n\n"
        "A producer, a push consumer and a lite pull consumer in one process reach our broker "
        "through a proxy that ends all their connections after every acknowledged message, "
        "alternately by a close and by a reset, and every fiftieth time refuses new ones for a "
        f"moment. {verdict.seconds:.0f} s. The sockets of the proxy are counted in, as it runs in "
        "the same process.\n\n"
        "| | |\n|---|---|\n"
        f"| connections made | {verdict.reconnects:,} |\n"
        f"| acknowledged | {verdict.acked:,} |\n"
        f"| sends that failed, because of a cut | {verdict.failed_sends:,} |\n"
        f"| acknowledged and never pushed, never polled | "
        f"{verdict.missing_pushed}, {verdict.missing_polled} |\n\n"
        "| connections so far | tasks | sockets | threads | objects | memory, MiB |\n"
        "|---|---|---|---|---|---|\n" + rows
    )


async def campaign(site: ChaosSite, rounds: int) -> Verdict:
    """Run a campaign at a site with a topic of its own."""
    topic = await beside(site.new_topic)
    return await Reconnects(site, topic, rounds).run()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chaos_site(Path(folder)) as site:
        verdict = asyncio.run(campaign(site, arguments.rounds))
    sys.stdout.write(f"{asdict(verdict)}\n{verdict.faults}\n")
    if arguments.page:
        arguments.page.write_text(page(verdict))
    return 1 if verdict.faults else 0


if __name__ == "__main__":
    sys.exit(main())
