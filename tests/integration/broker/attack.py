"""Clients that send a broker the most expensive requests they can, all at once.

Run as a program of its own: `python -m tests.integration.broker.attack PORT COUNT`. It says so when
each kind of attack has begun, attacks until its standard input is closed, and then prints how many
frames of each kind the broker has read.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator

from orbitmq.clock import settle
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.frame import PREFIX
from tests.integration.broker.conftest import pull_header
from tests.waiting import until

KIB = 1024
# Frames that take long to make are made once, and sent in turn.
VARIANTS = 8
TOPIC = "attacked"
GROUP = "hostile"


def held_pulls() -> Iterator[bytes]:
    """Pulls of an empty queue, each with a field as large as a header allows."""
    pull = request(pull_header(TOPIC, 0, queue_id=1, group=GROUP, hold_ms=20_000))
    pull.fields["bname"] = "x" * 400 * KIB
    frame = pull.encode()
    while True:
        yield frame


def costly_filters() -> Iterator[bytes]:
    """Pulls whose filter takes milliseconds for each message."""
    costly = " OR ".join(f"a CONTAINS '{number}'" for number in range(1000))
    pull = request(
        pull_header(TOPIC, 0, group=GROUP, expression=costly, expression_type="SQL92")
    ).encode()
    while True:
        yield pull


def new_filters() -> Iterator[bytes]:
    """Pulls that each have another long expression to compile."""
    for number in itertools.count():
        expression = f"a = '{number}' OR " + " OR ".join(["a > --1"] * 490)
        yield request(
            pull_header(TOPIC, 0, group=GROUP, expression=expression, expression_type="SQL92")
        ).encode()


def long_tags() -> Iterator[bytes]:
    """Pulls that each have another expression of long tags to hash."""
    for number in itertools.count():
        yield request(
            pull_header(TOPIC, 0, group=GROUP, expression=f"{number}".ljust(16_000, "x"))
        ).encode()


def large_headers() -> Iterator[bytes]:
    """Headers with as many fields as fit, which end the connection."""
    fields = {str(number): "" for number in range(40_000)}
    header = json.dumps({"code": RequestCode.HEART_BEAT, "extFields": fields}).encode()
    while True:
        yield PREFIX.pack(4 + len(header), len(header)) + header


def large_binary_headers() -> Iterator[bytes]:
    """The same in the binary form."""
    fields = b"".join(struct.pack(">h5si", 5, b"%05d" % number, 0) for number in range(40_000))
    header = struct.pack(">hBhiiii", 34, 0, 0, 0, 0, 0, len(fields)) + fields
    while True:
        yield PREFIX.pack(4 + len(header), 1 << 24 | len(header)) + header


def large_heartbeats() -> Iterator[bytes]:
    """Heartbeats of nearly 1 MiB, of long tags and of nulls that need slow code."""
    frames = []
    for number in range(VARIANTS):
        subscriptions = [
            {"topic": f"t{index}", "subString": f"{number}".ljust(12_000, "x"), "tagsSet": None}
            for index in range(80)
        ]
        body = {
            "clientID": "hostile",
            "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": subscriptions}],
        }
        frames.append(Command(code=RequestCode.HEART_BEAT, body=json.dumps(body).encode()).encode())
    return itertools.cycle(frames)


def many_locks() -> Iterator[bytes]:
    """Requests to lock as many queues as fit into a body."""
    queues = [
        {"topic": TOPIC, "brokerName": "broker-a", "queueId": number} for number in range(15_000)
    ]
    frames = []
    for number in range(VARIANTS):
        body = {"consumerGroup": GROUP, "clientId": f"hostile{number}", "mqSet": queues}
        lock = Command(code=RequestCode.LOCK_BATCH_MQ, body=json.dumps(body).encode())
        frames.append(lock.encode())
    return itertools.cycle(frames)


KINDS: tuple[Callable[[], Iterator[bytes]], ...] = (
    held_pulls,
    costly_filters,
    new_filters,
    long_tags,
    large_headers,
    large_binary_headers,
    large_heartbeats,
    many_locks,
)


async def attack(port: int, kind: Callable[[], Iterator[bytes]], sent: Counter[str]) -> None:
    """Send frames as fast as the broker reads them; connect again when it closes."""
    frames = kind()
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            # The broker is about to end, or accepts slowly.
            await settle()
            continue
        replies = asyncio.create_task(_discard(reader))
        try:
            for frame in frames:
                writer.write(frame)
                await writer.drain()
                # `drain` does not wait while the broker reads fast enough.
                await settle(1)
                sent[kind.__name__] += 1
                if replies.done():
                    break
        except OSError:
            continue
        finally:
            replies.cancel()
            writer.close()


async def _discard(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass


async def main(port: int, count: int) -> None:
    """Attack in every way at once, with so many connections each, until standard input ends."""
    sent: Counter[str] = Counter()
    attacks = [
        asyncio.create_task(attack(port, kind, sent)) for kind in KINDS for _ in range(count)
    ]
    await until(lambda: len(sent) == len(KINDS))
    sys.stdout.write("attacking\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for one in attacks:
        one.cancel()
    await asyncio.gather(*attacks, return_exceptions=True)
    sys.stdout.write(json.dumps(sent))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
