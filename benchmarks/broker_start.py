"""How long does a broker take to start, and what does it hold, empty and with much to look after?

    python -m benchmarks.broker_start [--topics N] [--rounds N] [--no-java] [--smoke]

Steps: start on an empty folder; make 1,000 topics of 8 queues and send a message to every queue;
stop and start again; send a message to every queue, kill the broker at once and start it again
(for 100,000 queues: --topics 12500 --no-java); open 2,000 connections, and leave a pull waiting on
1,000 of them. Then a message is sent to each of those queues, and every waiting pull must be
answered with it.

A broker has started once it answers a request. Memory is what only its process holds (its private
part), and beside it all that is resident, which counts pages of mapped files too.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import brokers
from benchmarks.broker_requests import pull_request, send_request
from benchmarks.broker_rounds import facts_of
from benchmarks.brokers import ASYNC, QUEUES, BrokerUnderLoad, running_name_server
from benchmarks.load import LoadError, Workload, cpu_seconds, load, write_frames
from benchmarks.plans import keep, plan_options
from benchmarks.rounds import RESULTS, spread
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command, decode_frame
from tests.interop import wire

MIB: Final = 1024 * 1024
BODY_BYTES: Final = 128
# For 100,000 queues on a slow disk: a stop syncs every one of them.
START_TIMEOUT_S: Final = 600
STOP_TIMEOUT_S: Final = 1_200
REPLY_TIMEOUT_S: Final = 60
POLL_S: Final = 0.005
PULLED: Final = 32
# The load generator takes 65,536 frames.
TOPICS_PER_LOAD: Final = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much a broker has to look after."""

    topics: int
    connections: int = 2_000
    long_polls: int = 1_000
    # So long the pulls are left waiting; none may be answered meanwhile.
    held_seconds: float = 5


CLEAN: Final = "started again"
KILLED: Final = "started after a kill"
SMOKE: Final = Scale(topics=10, connections=40, long_polls=10, held_seconds=0.2)


def many_of(scale: Scale) -> str:
    """The size of a filled broker, as steps name it."""
    return f"{scale.topics:,} topics, {scale.topics * QUEUES:,} queues"


def topic_of(number: int) -> str:
    """The name of a topic."""
    return f"benchmark_topic_{number}"


# --- starting -----------------------------------------------------------------------------------


def start(broker: BrokerUnderLoad) -> dict[str, float]:
    """Start a broker, and tell how long it took until it answered."""
    start_s = time.perf_counter()
    broker.broker.process.start()
    pause = threading.Event()
    while True:
        seconds = time.perf_counter() - start_s
        try:
            if wire.ask(broker.address, wire.GET_ALL_TOPIC_CONFIG).code == wire.SUCCESS:
                break
        except OSError:
            pass
        if not broker.broker.process.is_running() or seconds > START_TIMEOUT_S:
            raise LoadError(f"{broker.server} does not start\n{broker.broker.process.tail()}")
        pause.wait(POLL_S)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds(psutil.Process(broker.pid))}


def held(broker: BrokerUnderLoad) -> dict[str, float]:
    """What the process of a broker holds at this moment."""
    process = psutil.Process(broker.pid)
    memory = process.memory_full_info()
    return {
        "private_mib": memory.uss / MIB,
        "anonymous_mib": (memory.rss - memory.shared) / MIB,
        "resident_mib": memory.rss / MIB,
        "open_files": process.num_fds(),
        "mappings": len(Path(f"/proc/{broker.pid}/maps").read_text().splitlines()),
        "threads": process.num_threads(),
    }


def started_again(broker: BrokerUnderLoad) -> dict[str, float]:
    """Stop a broker in good order, start it, and tell how long that took and what it holds."""
    broker.broker.process.stop(timeout_s=STOP_TIMEOUT_S)
    took = start(broker)
    return {**took, **held(broker)}


def started_after_a_kill(broker: BrokerUnderLoad, topics: int, folder: Path) -> dict[str, float]:
    """Send to every queue, kill the broker, start it, and tell how long that took."""
    asyncio.run(send_to_all(broker, topics, folder))
    broker.broker.process.kill()
    took = start(broker)
    return {**took, **held(broker)}


# --- filling ------------------------------------------------------------------------------------


async def fill(broker: BrokerUnderLoad, topics: int, folder: Path) -> None:
    """Make topics, and send a message to every queue."""
    broker.create_topics([topic_of(number) for number in range(topics)])
    await send_to_all(broker, topics, folder)
    for number in range(topics):
        repeated = number % TOPICS_PER_LOAD == 0
        broker.wait_stored(topic_of(number), QUEUES + repeated)


async def send_to_all(broker: BrokerUnderLoad, topics: int, folder: Path) -> None:
    """Send a message to every queue."""
    for first in range(0, topics, TOPICS_PER_LOAD):
        numbers = range(first, min(first + TOPICS_PER_LOAD, topics))
        frames = write_frames(
            [
                send_request(topic_of(number), queue_id, BODY_BYTES)
                for number in numbers
                for queue_id in range(QUEUES)
            ],
            folder / "filling",
        )
        # The first call goes to the first queue a second time.
        await load(
            port=broker.port,
            server_pid=broker.pid,
            workload=Workload(name="filling", connections=1, in_flight=64),
            frames=frames,
            seconds=START_TIMEOUT_S,
            calls_max=len(numbers) * QUEUES,
        )


# --- connections and long polls -----------------------------------------------------------------


class Client:
    """One connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, request: Command) -> None:
        """Send a request without waiting for anything."""
        self._writer.write(request.encode())

    async def reply(self) -> Command:
        """The reply that comes next."""
        async with asyncio.timeout(REPLY_TIMEOUT_S):
            size = await self._reader.readexactly(4)
            return decode_frame(size + await self._reader.readexactly(int.from_bytes(size)))

    async def call(self, request: Command) -> Command:
        """Send a request and return what it was answered with."""
        self.send(request)
        return await self.reply()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def hold(broker: BrokerUnderLoad, scale: Scale) -> dict[str, float]:
    """Open connections, leave pulls waiting on some of them, and have every one answered.

    Tells what the broker held meanwhile, and how long the answers took from the first send on.
    """
    clients: list[Client] = []
    try:
        while len(clients) < scale.connections:
            clients.append(Client(*await asyncio.open_connection("127.0.0.1", broker.port)))
        # So that each is known to the broker as one that has asked something.
        for client in clients:
            found = await client.call(pull_request(topic_of(0), 1, 0, PULLED))
            _must_be(found, ResponseCode.SUCCESS)
        waiting = clients[: scale.long_polls]
        ends = [
            wire.max_offset(broker.address, topic_of(number % scale.topics), 2)
            for number in range(scale.long_polls)
        ]
        for number, client in enumerate(waiting):
            client.send(pull_request(topic_of(number % scale.topics), 2, ends[number], PULLED))
        answers = [asyncio.ensure_future(client.reply()) for client in waiting]
        early, _ = await asyncio.wait(answers, timeout=scale.held_seconds)
        if early:
            raise LoadError(f"{broker.server}: {len(early)} pulls did not wait")
        figures = held(broker)
        start_s = time.perf_counter()
        sender = clients[-1]
        for number in range(scale.long_polls):
            sender.send(send_request(topic_of(number % scale.topics), 2, BODY_BYTES))
        for _ in range(scale.long_polls):
            _must_be(await sender.reply(), ResponseCode.SUCCESS)
        for answer in answers:
            _must_be(await answer, ResponseCode.SUCCESS)
        return {**figures, "answered_seconds": time.perf_counter() - start_s}
    finally:
        for client in clients:
            client.close()


def _must_be(reply: Command, code: ResponseCode) -> None:
    if reply.code != code:
        raise LoadError(f"a reply with code {reply.code}: {reply.remark}")


# --- the run ------------------------------------------------------------------------------------


def measure(
    builders: dict[str, Any], rounds: int, scale: Scale, folder: Path, seed: int
) -> list[dict[str, Any]]:
    """Take every broker through the steps; starts are repeated, in shuffled order."""
    order = random.Random(seed)  # an order of starts, no secret
    steps: list[dict[str, Any]] = []

    def note(server: str, step: str, figures: dict[str, float]) -> None:
        shown = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())
        print(f"{server}: {step}: {shown}", flush=True)
        steps.append({"server": server, "step": step, "figures": figures})

    filled: list[BrokerUnderLoad] = []
    try:
        for round_number in range(rounds):
            for server in order.sample(list(builders), len(builders)):
                broker = builders[server](folder / f"{server}-{round_number}")
                note(server, "empty", {**start(broker), **held(broker)})
                if round_number:
                    broker.broker.process.kill()
                else:
                    filled.append(broker)
        many = many_of(scale)
        for broker in filled:
            asyncio.run(fill(broker, scale.topics, folder))
            note(broker.server, f"{many}: made and filled", held(broker))
        for _ in range(rounds):
            for broker in order.sample(filled, len(filled)):
                note(broker.server, f"{many}: {CLEAN}", started_again(broker))
                killed = started_after_a_kill(broker, scale.topics, folder)
                note(broker.server, f"{many}: {KILLED}", killed)
        busy = f"{scale.connections:,} connections, {scale.long_polls:,} waiting pulls"
        for broker in filled:
            note(broker.server, f"{many}, {busy}", asyncio.run(hold(broker, scale)))
    finally:
        for broker in filled:
            broker.broker.process.kill()
    return steps


def summary(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per step and server: the least, middle and greatest of each figure."""
    rows: list[dict[str, Any]] = []
    for step, server in dict.fromkeys((entry["step"], entry["server"]) for entry in steps):
        own = [
            entry["figures"]
            for entry in steps
            if (entry["step"], entry["server"]) == (step, server)
        ]
        rows.append(
            {
                "step": step,
                "server": server,
                "flush": ASYNC,
                "figures": {name: spread([part[name] for part in own]) for name in own[0]},
            }
        )
    names = list(dict.fromkeys(entry["step"] for entry in steps))
    return sorted(rows, key=lambda row: (names.index(row["step"]), row["server"]))


def ratios(steps: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each server: how many times as long a start takes after a kill, by medians."""
    found: dict[str, dict[str, float]] = {}
    for server in dict.fromkeys(entry["server"] for entry in steps):
        found[server] = {
            name: _median(steps, server, KILLED, name) / _median(steps, server, CLEAN, name)
            for name in ("seconds", "cpu_seconds")
        }
    return found


def _median(steps: Sequence[dict[str, Any]], server: str, step: str, figure: str) -> float:
    return statistics.median(
        float(entry["figures"][figure])
        for entry in steps
        if entry["server"] == server and entry["step"].endswith(step)
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The summary as a Markdown table: medians."""
    columns = {
        "seconds": ("start s", 2),
        "cpu_seconds": ("CPU s", 2),
        "private_mib": ("private MiB", 0),
        "resident_mib": ("resident MiB", 0),
        "open_files": ("open files", 0),
        "mappings": ("mappings", 0),
        "threads": ("threads", 0),
        "answered_seconds": ("all answered s", 2),
    }
    heads = ["step", "server", *(title for title, _ in columns.values())]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        cells = [row["step"], row["server"]]
        for name, (_, digits) in columns.items():
            figures = row["figures"].get(name)
            cells.append(f"{figures[1]:,.{digits}f}" if figures else "")
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Measure, print the table and keep the results."""
    parser = plan_options(
        "Compare starts and memory.",
        rounds=3,
        seconds=0,
        java_warm_up_seconds=0,
        output=RESULTS / "broker_start.json",
    )
    parser.add_argument("--topics", type=int, default=1_000, help="of 8 queues each")
    chosen = parser.parse_args()
    line = brokers.newest_line(without=chosen.no_java or chosen.smoke)
    scale = SMOKE if chosen.smoke else Scale(topics=chosen.topics)
    facts = facts_of(line)
    with (
        tempfile.TemporaryDirectory(prefix="broker-start-") as folder,
        running_name_server(Path(folder) / "name-server") as name_server,
    ):
        builders: dict[str, Any] = {
            brokers.OURS: lambda place: brokers.our_broker(place, name_server, ASYNC)
        }
        if line is not None:
            builders[brokers.official_name(line)] = lambda place: brokers.official_broker(
                line, place, name_server, ASYNC
            )
        steps = measure(
            builders, 1 if chosen.smoke else chosen.rounds, scale, Path(folder), chosen.seed
        )
    rows = summary(steps)
    print()
    print(table(rows))
    print()
    for server, ratio in ratios(steps).items():
        print(
            f"{server}: a start after a kill takes {ratio['seconds']:.2f} times as long as one after "
            f"a stop, and {ratio['cpu_seconds']:.2f} times the processor time"
        )
    if not chosen.smoke:
        facts["load_average_after"] = [round(value, 2) for value in os.getloadavg()]
        kept = {"environment": facts, "summary": rows, "ratios": ratios(steps), "steps": steps}
        keep(chosen.output, kept)


if __name__ == "__main__":
    main()
