"""What does a filter function in a filter server cost beside the broker's own filter by tag?

    python -m benchmarks.filter_server [--rounds N] [--messages N] [--smoke]

One message in ten has the tag. Four queues are read to their end, one pull each in flight: from the
broker with the tag as filter, and through a filter server whose function compares the tag, or the tag
and a word of the body. A message counts whether it matches or not.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psutil

from benchmarks.load import cpu_seconds
from benchmarks.plans import markdown_table
from orbitmq.client import Message, Producer
from orbitmq.clock import SystemClock
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.transport.rpc_client import RpcClient
from tests.integration.filterserver.plugins import write_package
from tests.interop.ours import OrbitBroker, OrbitFilterServer, OrbitNameServer

TOPIC: Final = "benchmark_filters"
GROUP: Final = "benchmark-readers"
QUEUES: Final = 4
_BODY: Final = b"an order of a size that is usual in a shop " * 3
_SOURCE: Final = """
def by_tag(message, context):
    return message.tags == "paid"


def by_body(message, context):
    return message.tags == "paid" and b"order" in message.body
"""
_FILTERS: Final = {"by tag": "bench.ByTag", "by tag and body": "bench.ByBody"}
_BROKER: Final = "broker, tag filter"


@contextmanager
def site(folder: Path) -> Iterator[tuple[OrbitNameServer, OrbitBroker, OrbitFilterServer]]:
    """Run a name server, a broker and a filter server with the functions."""
    with ExitStack() as running:
        name_server = OrbitNameServer(folder / "name-server")
        name_server.process.start()
        running.callback(name_server.process.stop)
        name_server.wait_ready()
        broker = OrbitBroker("broker-a", folder / "broker", [name_server.address])
        broker.process.start()
        running.callback(broker.process.stop)
        broker.wait_ready()
        write_package(
            folder / "plugins",
            "bench_filters",
            _SOURCE,
            {"bench.ByTag": "by_tag", "bench.ByBody": "by_body"},
        )
        server = OrbitFilterServer(folder / "filters", broker, folder / "plugins")
        server.start()
        running.callback(server.process.stop)
        yield name_server, broker, server


def fill(name_server: OrbitNameServer, messages: int) -> None:
    """Send the messages, the same number to each queue."""
    with Producer("benchmark-filler", namesrv=name_server.address) as producer:
        for queue_id in range(QUEUES):
            queue = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=queue_id)
            for start in range(0, messages // QUEUES, 100):
                numbers = range(start, min(start + 100, messages // QUEUES))
                producer.send(
                    [
                        Message(TOPIC, _BODY, tags="paid" if n % 10 == 0 else "open")
                        for n in numbers
                    ],
                    queue=queue,
                )


def pull_of(queue_id: int, offset: int, filter_class: str | None) -> PullMessages:
    """Make a pull of the broker by tag, or of a filter server by class."""
    flag = PullFlag.SUBSCRIPTION if filter_class is None else PullFlag.CLASS_FILTER
    return PullMessages(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=Long(offset),
        messages_max=32,
        system_flag=int(flag),
        commit_offset=Long(0),
        suspend_timeout_ms=Long(0),
        expression=filter_class or "paid",
        subscription_version=Long(0),
    )


async def read_queue(
    rpc: RpcClient, address: str, queue_id: int, end: int, filter_class: str | None
) -> None:
    """Read a queue from its start to its end."""
    offset = 0
    while offset < end:
        asked = request(pull_of(queue_id, offset, filter_class))
        reply = await rpc.invoke(address, asked, timeout_ms=60_000)
        if reply.code not in {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}:
            raise RuntimeError(f"{reply.code}: {reply.remark}")
        offset = int(reply.fields["nextBeginOffset"])


async def read_all(address: str, messages: int, filter_class: str | None) -> float:
    """Read all queues; returns how long it took."""
    clock = SystemClock()
    async with RpcClient() as rpc:
        began_ms = clock.monotonic_ms()
        await asyncio.gather(
            *(
                read_queue(rpc, address, queue_id, messages // QUEUES, filter_class)
                for queue_id in range(QUEUES)
            )
        )
        return (clock.monotonic_ms() - began_ms) / 1000


def options() -> tuple[int, int]:
    """Read how many rounds to measure, and with how many messages."""
    parser = argparse.ArgumentParser(description="Compare filters.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--smoke", action="store_true")
    chosen = parser.parse_args()
    return (1, 2_000) if chosen.smoke else (chosen.rounds, chosen.messages)


def main() -> None:
    """Measure in turns, and print the table."""
    rounds, messages = options()
    with tempfile.TemporaryDirectory() as folder, site(Path(folder)) as (names, broker, server):
        broker.create_topic(TOPIC, queues=QUEUES)
        fill(names, messages)
        address = server.process.console.read_text().partition(" address=")[2].split()[0]
        sides = {_BROKER: (broker.address, None)} | {
            f"filter server, {what}": (address, name) for what, name in _FILTERS.items()
        }
        figures: dict[str, list[tuple[float, float, float]]] = {side: [] for side in sides}
        processes = [psutil.Process(each.process.popen.pid) for each in (broker, server)]
        # The first round warms up, and starts the processes of the functions.
        for number in range(rounds + 1):
            for side, (where, name) in sides.items():
                before = [cpu_seconds(process) for process in processes]
                took_s = asyncio.run(read_all(where, messages, name))
                after = [cpu_seconds(process) for process in processes]
                if number:
                    spent = [(b - a) * 1e6 / messages for a, b in zip(before, after, strict=True)]
                    figures[side].append((messages / took_s, spent[0], spent[1]))
    rows = []
    base = statistics.median(rate for rate, _, _ in figures[_BROKER])
    for side, measured in figures.items():
        rate, broker_us, server_us = map(statistics.median, zip(*measured, strict=True))
        rows.append(
            (side, f"{rate:,.0f}", f"{rate / base:.3f}", f"{broker_us:.1f}", f"{server_us:.1f}")
        )
    heads = ("filter", "messages/s", "ratio", "broker µs/message", "filter server µs/message")
    print(markdown_table(heads, rows))


if __name__ == "__main__":
    main()
