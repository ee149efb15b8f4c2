"""Soaks the clients: an hour of sends and receives at an even rate, with memory watched.

    python -m tests.integration.client.soak --seconds 3600 --page docs/soak/clients.md

One process runs clients of every kind, asyncio and blocking, in asyncio's debug mode; our name
server and broker are other processes. At the end every group must have received every acknowledged
message, memory must be as after the first fifth, and there must be no warning.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import gc
import logging
import os
import platform
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orbitmq import client as blocking
from orbitmq.client import Message
from orbitmq.client.aio import LitePullConsumer, Producer, PushConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.errors import OrbitError
from orbitmq.version import __version__
from tests.integration.client.chaos_site import CLOCK, ChaosSite, chaos_site
from tests.waiting import beside, until_reached

SAMPLES = 30
MEMORY_GROWTH_BYTES_MAX = 12 << 20
BODY_BYTES = 256
# The share of messages that the blocking producer sends, one by one.
BLOCKING_SHARE = 0.1
BATCH = 10
DRAIN_TIMEOUT_S = 60
UNSEEN = 0xFF
THREADS = 6
LOOKS, LOOK_PAUSE_MS = 10, 50


class Warned(logging.Handler):
    """Counts warnings of asyncio, of Python and of ours."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        # asyncio measures wall time, so on a shared machine these show the load rather than a
        # fault: they are reported, but do not fail the run.
        self.slow_callbacks = 0
        self.slowest_ms = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        kind = f"{record.name}: {str(record.msg)[:60]}"
        if record.name == "asyncio" and text.startswith("Executing"):
            slow_ms = float(text.rpartition("took ")[2].split()[0]) * 1000
            self.slow_callbacks += 1
            self.slowest_ms = max(self.slowest_ms, slow_ms)
            return
        self.counts[kind] += 1
        self.first.setdefault(kind, text[:500])


@dataclass(slots=True)
class Received:
    """The messages a group received: a byte each, allocated at once so that it does not grow."""

    name: str
    marks: bytearray
    repeats: int = 0
    latest_ms: int = 0
    wrong: int = 0

    def take(self, message: ReceivedMessage) -> None:
        """Record a message; from any thread, as a consumer calls one listener at a time."""
        body = message.body
        number = int(body[:10])
        if len(body) != BODY_BYTES:
            self.wrong += 1
        if self.marks[number] != UNSEEN:
            self.repeats += 1
        self.marks[number] = 1
        self.latest_ms = max(self.latest_ms, CLOCK.now_ms() - message.born_ms)


@dataclass(slots=True)
class Campaign:
    """One run: messages sent and received, and samples of the process."""

    site: ChaosSite
    topic: str
    seconds: float
    rate: float
    messages_max: int = 0
    acked: bytearray = field(default_factory=bytearray)
    failed: Counter[str] = field(default_factory=Counter)
    groups: dict[str, Received] = field(default_factory=dict)
    samples: list[tuple[float, int, int, int, int]] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.messages_max = int(self.seconds * self.rate * 1.2) + 1000
        self.acked = bytearray(self.messages_max)
        for name in ("push", "ordered", "lite pull", "blocking push"):
            # Not zeros, whose pages the system would allocate only as they are written.
            self.groups[name] = Received(name, bytearray(bytes([UNSEEN]) * self.messages_max))

    def next_message(self) -> tuple[int, Message]:
        """Make a message with a number of its own."""
        number = self.sent
        self.sent += 1
        body = b"%010d" % number + b"." * (BODY_BYTES - 10)
        return number, Message(self.topic, body, tags="soak", keys=f"k{number % 1000}")

    async def run(self) -> None:
        """Send and receive until the time is up, then wait for messages in flight."""
        # The campaign starts its own threads first, so that they do not look like a leak.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        together = threading.Barrier(THREADS)
        await asyncio.gather(*(beside(together.wait) for _ in range(THREADS)))
        namesrv = self.site.name_server.address
        groups = self.groups
        push = PushConsumer(
            "soak-push",
            on_message=_async_listener(groups["push"]),
            namesrv=namesrv,
            consume_from="first",
        )
        ordered = PushConsumer(
            "soak-ordered",
            on_message=_async_listener(groups["ordered"]),
            ordered=True,
            namesrv=namesrv,
            consume_from="first",
        )
        lite = LitePullConsumer("soak-lite", namesrv=namesrv, consume_from="first")
        blocking_push = blocking.PushConsumer(
            "soak-blocking",
            on_message=groups["blocking push"].take,
            namesrv=namesrv,
            consume_from="first",
        )
        for consumer in (push, ordered, lite, blocking_push):
            consumer.subscribe(self.topic)
        async with Producer("soak-producers", namesrv=namesrv) as producer, push, ordered, lite:
            await beside(blocking_push.start)
            polling = asyncio.create_task(self._poll(lite))
            sampling = asyncio.create_task(self._sample())
            stop = threading.Event()
            thread = asyncio.create_task(beside(self._send_blocking, namesrv, stop))
            await self._send(producer)
            stop.set()
            await thread
            await until_reached(
                lambda: all(self.missing(one) == 0 for one in groups.values()),
                timeout_s=DRAIN_TIMEOUT_S,
                what="everything acknowledged received",
            )
            await sampling
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            await beside(blocking_push.stop)

    async def _send(self, producer: Producer) -> None:
        start_ms = CLOCK.monotonic_ms()
        rate = self.rate * (1 - BLOCKING_SHARE)
        turn = 0
        while (passed_ms := CLOCK.monotonic_ms() - start_ms) < self.seconds * 1000:
            due = int(passed_ms * rate / 1000) - turn * BATCH
            # A slow machine catches up in bounded steps, so that the run ends on time.
            for _ in range(min(due, int(rate)) // BATCH):
                turn += 1
                await self._send_ten(producer, turn)
            await CLOCK.sleep_ms(20)

    async def _send_ten(self, producer: Producer, turn: int) -> None:
        numbered = [self.next_message() for _ in range(BATCH)]
        messages = [message for _, message in numbered]
        try:
            if turn % 3 == 0:
                await producer.send(messages)
            elif turn % 3 == 1:
                await asyncio.gather(*map(producer.send, messages))
            else:
                await asyncio.gather(*map(producer.send_async, messages))
        except OrbitError as error:
            self.failed[type(error).__name__] += 1
            return
        for number, _ in numbered:
            self.acked[number] = 1

    def _send_blocking(self, namesrv: str, stop: threading.Event) -> None:
        with blocking.Producer("soak-blocking-producers", namesrv=namesrv) as producer:
            while not stop.wait(1 / (self.rate * BLOCKING_SHARE)):
                number, message = self.next_message()
                try:
                    producer.send(message)
                except OrbitError as error:
                    self.failed[type(error).__name__] += 1
                else:
                    self.acked[number] = 1

    async def _poll(self, consumer: LitePullConsumer) -> None:
        while True:
            for message in await consumer.poll(timeout_ms=1000):
                self.groups["lite pull"].take(message)

    async def _sample(self) -> None:
        process, broker = psutil.Process(), psutil.Process(self.site.broker.process.popen.pid)
        for turn in range(SAMPLES + 1):
            if turn:
                pause_ms = self.seconds * 1000 / SAMPLES - LOOKS * LOOK_PAUSE_MS
                await CLOCK.sleep_ms(pause_ms)
            tasks = []
            for _ in range(LOOKS):
                await CLOCK.sleep_ms(LOOK_PAUSE_MS)
                tasks.append(len(asyncio.all_tasks()))
            gc.collect()
            self.samples.append(
                (
                    turn * self.seconds / SAMPLES,
                    process.memory_info().rss,
                    broker.memory_info().rss,
                    # The minimum over several looks: sends and periodic work come and go.
                    min(tasks),
                    threading.active_count(),
                )
            )

    def missing(self, group: Received) -> int:
        """How many messages were acknowledged and not received."""
        # Compared as two large numbers: there may be millions of messages.
        seen = int.from_bytes(group.marks.replace(bytes([UNSEEN]), b"\0"), "big")
        return sum(self.acked) - (int.from_bytes(self.acked, "big") & seen).bit_count()

    def faults(self, warned: Warned) -> list[str]:
        """What is wrong, if anything."""
        start, end = self.samples[SAMPLES // 5], self.samples[-1]
        faults = [f"{kind}: {count}" for kind, count in warned.counts.items()]
        faults += [f"sends failed: {dict(self.failed)}"] if self.failed else []
        for group in self.groups.values():
            if missing := self.missing(group):
                faults.append(f"{group.name}: {missing} missing")
            if group.wrong:
                faults.append(f"{group.name}: {group.wrong} wrong")
        if end[1] > start[1] + MEMORY_GROWTH_BYTES_MAX:
            faults.append(f"memory grew by {end[1] - start[1]} bytes")
        # A pool adds a thread when jobs first overlap, which may be late.
        for place, name, settled in ((3, "tasks", SAMPLES // 5), (4, "threads", SAMPLES // 2)):
            if end[place] > max(sample[place] for sample in self.samples[1 : settled + 1]):
                faults.append(f"{name} grew to {end[place]}")
        return faults


def _async_listener(group: Received):  # type: ignore[no-untyped-def]  # a coroutine function
    async def listen(message: ReceivedMessage) -> None:
        group.take(message)

    return listen


def page(campaign: Campaign, faults: list[str], warned: Warned) -> str:
    """The page about a campaign."""
    now = datetime.datetime.fromtimestamp(CLOCK.now_ms() / 1000, datetime.UTC)
    groups = "".join(
        f"| {one.name} | {sum(mark == 1 for mark in one.marks):,} | {one.repeats} "
        f"| {campaign.missing(one)} | {one.latest_ms} |\n"
        for one in campaign.groups.values()
    )
    samples = "".join(
        f"| {seconds:.0f} | {memory / 2**20:.1f} | {broker / 2**20:.1f} | {tasks} | {threads} |\n"
        for seconds, memory, broker, tasks, threads in campaign.samples
    )
    warnings = "".join(
        f"- {kind}: {count} times, first: `{warned.first[kind]}`\n"
        for kind, count in warned.counts.items()
    )
    return (
        "# Clients under sustained load\n\n"
        f"{'FAILED: ' + '; '.join(faults) if faults else 'Passed'}. "
        f"{campaign.seconds / 60:.0f} minutes, {now.date().isoformat()}, OrbitMQ {__version__}, "
        f"Python {platform.python_version()}. Written by `tests/integration/client/soak.py` "
        "(`make soak`, an hour there).\n\n"
        f"Up to {campaign.rate:.0f} messages a second of {BODY_BYTES} bytes, "
        f"{sum(campaign.acked) / campaign.seconds:.0f} on average, sent one by one, at once, "
        "in batches and with the blocking API, received by four groups of one process; asyncio's "
        "debug mode is on. Broker and name server are ours, as processes; the memory of the broker "
        "includes the pages of its log, which it maps.\n\n"
        f"Acknowledged: {sum(campaign.acked):,}; sends that failed: "
        f"{sum(campaign.failed.values())}. Warnings: {sum(warned.counts.values())}. Callbacks that "
        f"took longer than 100 ms, as reported by asyncio's debug mode: {warned.slow_callbacks}, the "
        f"longest {warned.slowest_ms:.0f} ms; the load of the machine, which has "
        f"{os.cpu_count()} processors and did other work meanwhile, was "
        f"{', '.join(f'{load:.1f}' for load in os.getloadavg())} at the end.\n\n"
        f"{warnings}\n"
        "| group | received | repeats | missing | longest from send to listener, ms |\n"
        f"|---|---|---|---|---|\n{groups}\n"
        "| second | client process, MiB | broker, MiB | tasks | threads |\n"
        f"|---|---|---|---|---|\n{samples}"
    ).replace("\n\n\n", "\n\n")


async def soak(site: ChaosSite, seconds: float, rate: float) -> Campaign:
    """Run a campaign at a site."""
    topic = await beside(site.new_topic, queues=8)
    campaign = Campaign(site, topic, seconds, rate)
    await campaign.run()
    return campaign


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    # Every new loop reads this, that of the blocking clients, too.
    os.environ["PYTHONASYNCIODEBUG"] = "1"
    warned = Warned()
    logging.getLogger().addHandler(warned)
    logging.captureWarnings(capture=True)
    with tempfile.TemporaryDirectory() as folder, chaos_site(Path(folder)) as site:
        campaign = asyncio.run(soak(site, arguments.seconds, arguments.rate), debug=True)
    faults = campaign.faults(warned)
    text = page(campaign, faults, warned)
    sys.stdout.write(text)
    if arguments.page:
        arguments.page.write_text(text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
