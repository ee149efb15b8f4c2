"""How long does an ordered queue wait for its next owner, and how long with RocketMQ?

    python -m benchmarks.ordered_handover [--rounds N] [--kills N] [--no-java] [--smoke]

A group of two members, each a process of its own, reads a topic of four queues in order, to each of
which a message is sent every 10 ms. In each round the second member joins, which takes half of the
queues from the first, and leaves; or it joins and is killed. The time runs from the order until the
next owners have received a message of every queue. Our client is at our broker, RocketMQ's Java
client at RocketMQ's, both with their default options; rounds of the two take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.brokers import ASYNC, OURS, BrokerUnderLoad, newest_line, running_brokers
from benchmarks.plans import markdown_table
from benchmarks.rounds import keep
from orbitmq.client import Message
from orbitmq.client.aio import Producer
from orbitmq.clock import SystemClock
from tests.interop.building import TARGET_FOLDER
from tests.interop.official import java_command
from tests.interop.processes import ChildProcess
from tests.waiting import beside, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CLOCK: Final = SystemClock()
QUEUES: Final = 4
SEND_PAUSE_MS: Final = 10
# Between two events, so that offsets are committed and everybody is at rest.
REST_MS: Final = 1_500
# Longer than a lock lasts.
TIMEOUT_S: Final = 100
EVENTS: Final = ("join", "leave", "kill")
_SOURCES: Final = Path(__file__).parent / "clients"


class Member:
    """A consumer in a process of its own, and when it last received a message of each queue."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._times_ms: list[tuple[int, int]] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        """Start the process, and wait until it takes orders."""
        self._process.start()
        self._reader.start()
        assert self._ready.wait(TIMEOUT_S), self._process.tail()

    def order(self, order: str) -> int:
        """Give an order; returns the time."""
        now_ms = CLOCK.now_ms()
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        return now_ms

    def kill(self) -> int:
        """Kill the process; returns the time."""
        now_ms = CLOCK.now_ms()
        self._process.popen.kill()
        return now_ms

    def end(self) -> None:
        """End the process if it still runs, and read what it printed."""
        if self._process.is_running():
            self._process.popen.kill()
        self._reader.join()
        self._process.kill()

    def wait_ended(self) -> None:
        """Wait until its process has ended."""
        self._reader.join(TIMEOUT_S)

    def first_ms(self, since_ms: int, queues: int) -> int:
        """Wait for messages of so many queues, received since a time; returns when all had come."""

        def found() -> dict[int, int]:
            first: dict[int, int] = {}
            for queue_id, time_ms in list(self._times_ms):
                if time_ms > since_ms:
                    first.setdefault(queue_id, time_ms)
            return first

        wait_until(lambda: len(found()) >= queues, timeout_s=TIMEOUT_S, what=f"{queues} queues")
        return max(found().values())

    def forget(self) -> None:
        """Forget what came so far."""
        self._times_ms.clear()

    def _read(self) -> None:
        for line in self._process.stdout:
            kind, *rest = line.split() or [""]
            if kind == "got":
                self._times_ms.append((int(rest[0]), int(rest[1])))
            elif kind == "ready":
                self._ready.set()


@dataclass
class Side:
    """A client, the topic that it reads at its broker, and its results."""

    name: str
    topic: str
    make: Callable[[Path, str, str], ChildProcess]
    # A group at both brokers would share its queues among members of both.
    group: str
    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)
    took_ms: dict[str, list[int]] = field(default_factory=lambda: {event: [] for event in EVENTS})

    @contextmanager
    def member(self) -> Iterator[Member]:
        """A member that has not joined."""
        folder = self.folder / f"member-{next(self.numbers)}"
        folder.mkdir(parents=True)
        member = Member(self.make(folder, self.topic, self.group))
        member.start()
        try:
            yield member
        finally:
            member.end()


async def measure(side: Side, first: Member, *, kills: bool) -> None:
    """Have a second member join, and leave or be killed."""
    with side.member() as second:
        first.forget()
        began_ms = second.order("join")
        ended_ms = await beside(second.first_ms, began_ms, QUEUES // 2)
        side.took_ms["join"].append(ended_ms - began_ms)
        await CLOCK.sleep_ms(REST_MS)
        began_ms = second.kill() if kills else second.order("leave")
        ended_ms = await beside(first.first_ms, began_ms, QUEUES)
        side.took_ms["kill" if kills else "leave"].append(ended_ms - began_ms)
        await beside(second.wait_ended)
        await CLOCK.sleep_ms(REST_MS)


@asynccontextmanager
async def messages(side: Side, name_server: str) -> AsyncIterator[None]:
    """Send a message to each queue every few milliseconds while the block runs."""
    stopping = asyncio.Event()

    async def keep_sending(producer: Producer) -> None:
        queues = await producer.queues(side.topic)
        while not stopping.is_set():
            await asyncio.gather(
                *(producer.send(Message(side.topic, b"more"), queue=queue) for queue in queues)
            )
            await CLOCK.sleep_ms(SEND_PAUSE_MS)

    async with Producer(
        f"{side.group}-producer", namesrv=name_server, send_timeout_ms=1000 * TIMEOUT_S
    ) as producer:
        sending = asyncio.create_task(keep_sending(producer))
        try:
            yield
        finally:
            stopping.set()
            await sending


async def measure_all(sides: Sequence[Side], name_server: str, *, rounds: int, kills: int) -> None:
    """Measure all rounds; the sides take turns, and kills come last."""
    async with AsyncExitStack() as stack:
        firsts = []
        for side in sides:
            await stack.enter_async_context(messages(side, name_server))
            first = stack.enter_context(side.member())
            began_ms = first.order("join")
            await beside(first.first_ms, began_ms, QUEUES)
            firsts.append(first)
        for number in range(rounds + kills):
            for side, first in zip(sides, firsts, strict=True):
                await measure(side, first, kills=number >= rounds)
                print(f"{side.name}: {side.took_ms}", flush=True)


def our_member(name_server: str, folder: Path, topic: str, group: str) -> ChildProcess:
    """Our client, blocking."""
    command = [sys.executable, "-m", "benchmarks.clients.ordered_member", name_server, topic, group]
    environment = {"PYTHONPATH": str(Path(__file__).parent.parent), "HOME": str(folder)}
    return ChildProcess(folder.name, command, folder, environment=environment, pipes=True)


def java_member(
    line: str, classes: Path, name_server: str, folder: Path, topic: str, group: str
) -> ChildProcess:
    """RocketMQ's Java client of a line."""
    arguments = (name_server, topic, group)
    command = java_command(line, "client", folder, "OrderedMember", *arguments, classes=classes)
    return ChildProcess(folder.name, command, folder, pipes=True)


def compile_java(line: str, classes: Path) -> None:
    """Compile the Java member."""
    classes.mkdir(parents=True)
    jars = TARGET_FOLDER / line / "lib-client"
    source = _SOURCES / "OrderedMember.java"
    subprocess.run(
        ["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True, timeout=120
    )


def rows(sides: Sequence[Side]) -> list[dict[str, Any]]:
    """Median and maximum of each event, and how many times as long the others take as we do."""
    medians = {
        event: statistics.median(sides[0].took_ms[event])
        for event in EVENTS
        if sides[0].took_ms[event]
    }
    return [
        {
            "event": event,
            "client": side.name,
            "median_ms": statistics.median(side.took_ms[event]),
            "max_ms": max(side.took_ms[event]),
            "count": len(side.took_ms[event]),
            "ratio": round(statistics.median(side.took_ms[event]) / medians[event], 1),
        }
        for event in medians
        for side in sides
    ]


def side_of(broker: BrokerUnderLoad, line: str | None, name_server: str, folder: Path) -> Side:
    """The client that belongs to a broker, and a topic for it."""
    kind = "official" if broker.is_official else "ours"
    topic = group = f"handover-{kind}"
    broker.create_topic(topic, queues=QUEUES)
    if not broker.is_official:
        make = partial(our_member, name_server)
        return Side(f"{OURS} client at {OURS}", topic, make, group, folder / f"members-{kind}")
    assert line is not None
    compile_java(line, folder / "classes")
    name = f"Java client at {broker.server}"
    make_java = partial(java_member, line, folder / "classes", name_server)
    return Side(name, topic, make_java, group, folder / f"members-{kind}")


def main() -> None:
    """Measure, print the table and keep the results."""
    parser = argparse.ArgumentParser(description="Compare how ordered queues change hands.")
    parser.add_argument("--rounds", type=int, default=10, help="joins and leaves of each client")
    parser.add_argument("--kills", type=int, default=3, help="kills, each up to a minute")
    parser.add_argument("--no-java", action="store_true", help="only our client and broker")
    parser.add_argument("--smoke", action="store_true", help="one round that keeps no results")
    chosen = parser.parse_args()
    line = newest_line(without=chosen.no_java or chosen.smoke)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_brokers(line, [ASYNC], folder, ()) as brokers:
            name_server = brokers[0].broker.name_servers[0]
            sides = [side_of(broker, line, name_server, folder) for broker in brokers]
            asyncio.run(
                measure_all(
                    sides,
                    name_server,
                    rounds=1 if chosen.smoke else chosen.rounds,
                    kills=0 if chosen.smoke else chosen.kills,
                )
            )
    found = rows(sides)
    print(
        markdown_table(
            ("event", "client", "median ms", "max ms", "events", "times ours"),
            [[str(value) for value in row.values()] for row in found],
        )
    )
    if not chosen.smoke:
        keep("ordered_handover", {"summary": found})


if __name__ == "__main__":
    main()
