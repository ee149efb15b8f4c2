"""Our client under the orders of a benchmark; the orders are ClientLoad's.

`python -m benchmarks.clients.our_load asyncio|blocking <name server>`
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from orbitmq import client
from orbitmq.client import Message, aio
from orbitmq.errors import OrbitError, RequestTimeoutError


def tell(messages: int, start_s: float, start_cpu_s: float) -> None:
    """Print what a slice showed."""
    cpu_s, seconds = time.process_time() - start_cpu_s, time.perf_counter() - start_s
    print(f"figures {messages} {seconds} {cpu_s}", flush=True)


class Load(Protocol):
    """A form of our client."""

    def send(self, mode: str, topic: str, body: bytes, at_once: int, seconds: float) -> None:
        """Send for this many seconds."""

    def consume(self, topic: str, group: str, counting: Counting, seconds: float) -> None:
        """Consume from the start of a topic until enough have come."""

    def request(self, topic: str, group: str, at_once: int, seconds: float) -> None:
        """Send requests for this many seconds, and reply to them."""

    def transact(self, topic: str, at_once: int, seconds: float) -> None:
        """Commit transactions for this many seconds."""


class Counting:
    """Counts messages, and tells when all have come."""

    def __init__(self, warm_up: int, messages: int) -> None:
        self._warm_up, self._last = warm_up, warm_up + messages
        self.received = 0
        self._start_s = self._start_cpu_s = 0.0
        self.done = threading.Event()

    def add_one(self) -> None:
        """Count one."""
        self.received += 1
        if self.received == self._warm_up:
            self._start_s, self._start_cpu_s = time.perf_counter(), time.process_time()
        elif self.received == self._last:
            tell(self._last - self._warm_up, self._start_s, self._start_cpu_s)
            self.done.set()


class OnAsyncio:
    """The client on asyncio: one thread, tasks send at the same time."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._runner = asyncio.Runner(loop_factory=_loop_factory())
        self._producer = aio.Producer(
            "benchmark", namesrv=name_server, send_timeout_ms=SEND_TIMEOUT_MS
        )
        self._runner.run(self._producer.start())

    def send(self, mode: str, topic: str, body: bytes, at_once: int, seconds: float) -> None:
        """Send for this many seconds."""
        self._runner.run(self._send(mode, topic, body, at_once, seconds))

    async def _send(self, mode: str, topic: str, body: bytes, at_once: int, seconds: float) -> None:
        producer = self._producer
        await producer.send(Message(topic, body, tags="tag"))
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        end_s, most = start_s + seconds, ONEWAY_MAX if mode == "oneway" else sys.maxsize

        async def send_on() -> int:
            sent = 0
            # Once at least, however slow the machine is.
            while not sent or (time.perf_counter() < end_s and sent < most):
                if mode == "batch":
                    await producer.send([Message(topic, body, tags="tag") for _ in range(at_once)])
                    sent += at_once
                elif mode == "oneway":
                    await producer.send_oneway(Message(topic, body, tags="tag"))
                    sent += 1
                else:
                    await producer.send(Message(topic, body, tags="tag"))
                    sent += 1
            return sent

        tasks = at_once if mode == "concurrent" else 1
        sent = sum(await asyncio.gather(*(send_on() for _ in range(tasks))))
        tell(sent, start_s, start_cpu_s)

    def consume(self, topic: str, group: str, counting: Counting, seconds: float) -> None:
        """Consume from the start of a topic until enough have come."""
        self._runner.run(self._consume(topic, group, counting, seconds))

    async def _consume(self, topic: str, group: str, counting: Counting, seconds: float) -> None:
        async def count(_: object) -> None:
            counting.add_one()

        consumer = aio.PushConsumer(
            group, on_message=count, namesrv=self._name_server, consume_from=FIRST
        )
        consumer.subscribe(topic)
        async with consumer:
            await asyncio.to_thread(counting.done.wait, seconds)

    def request(self, topic: str, group: str, at_once: int, seconds: float) -> None:
        """Send requests for this many seconds, and reply to them."""
        self._runner.run(self._request(topic, group, at_once, seconds))

    async def _request(self, topic: str, group: str, at_once: int, seconds: float) -> None:
        async def reply(message: client.ReceivedMessage) -> client.Reply:
            return client.Reply(message.body)

        replier = aio.PushConsumer(group, on_message=reply, namesrv=self._name_server)
        replier.subscribe(topic)
        async with replier:
            # Until the replier has all queues.
            for _ in range(FIRST_REQUESTS_MAX):
                with suppress(RequestTimeoutError):
                    for _ in range(QUEUES):
                        await self._producer.request(
                            Message(topic, BODY), timeout_ms=FIRST_REQUEST_MS
                        )
                    break
            start_s, start_cpu_s = time.perf_counter(), time.process_time()

            async def ask_on() -> int:
                asked = 0
                while not asked or time.perf_counter() < start_s + seconds:
                    await self._producer.request(Message(topic, BODY))
                    asked += 1
                return asked

            asked = sum(await asyncio.gather(*(ask_on() for _ in range(at_once))))
            tell(asked, start_s, start_cpu_s)

    def transact(self, topic: str, at_once: int, seconds: float) -> None:
        """Commit transactions for this many seconds."""
        self._runner.run(self._transact(topic, at_once, seconds))

    async def _transact(self, topic: str, at_once: int, seconds: float) -> None:
        producer = aio.TransactionProducer(
            "benchmark_transactions",
            on_check=lambda _: client.TransactionState.COMMIT,
            namesrv=self._name_server,
            send_timeout_ms=SEND_TIMEOUT_MS,
        )
        async with producer:
            start_s, start_cpu_s = time.perf_counter(), time.process_time()

            async def commit_on() -> int:
                committed = 0
                while not committed or time.perf_counter() < start_s + seconds:
                    async with producer.transaction(Message(topic, BODY, tags="tag")):
                        pass
                    committed += 1
                return committed

            committed = sum(await asyncio.gather(*(commit_on() for _ in range(at_once))))
            tell(committed, start_s, start_cpu_s)


class Blocking:
    """The blocking client: threads send at the same time, a listener runs in threads."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._producer = client.Producer(
            "benchmark", namesrv=name_server, send_timeout_ms=SEND_TIMEOUT_MS
        )
        self._producer.start()

    def send(self, mode: str, topic: str, body: bytes, at_once: int, seconds: float) -> None:
        """Send for this many seconds."""
        producer = self._producer
        producer.send(Message(topic, body, tags="tag"))
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        end_s, most = start_s + seconds, ONEWAY_MAX if mode == "oneway" else sys.maxsize

        def send_on() -> int:
            sent = 0
            while not sent or (time.perf_counter() < end_s and sent < most):
                if mode == "batch":
                    producer.send([Message(topic, body, tags="tag") for _ in range(at_once)])
                    sent += at_once
                elif mode == "oneway":
                    producer.send_oneway(Message(topic, body, tags="tag"))
                    sent += 1
                else:
                    producer.send(Message(topic, body, tags="tag"))
                    sent += 1
            return sent

        threads = at_once if mode == "concurrent" else 1
        with ThreadPoolExecutor(threads) as pool:
            sent = sum(one.result() for one in [pool.submit(send_on) for _ in range(threads)])
        tell(sent, start_s, start_cpu_s)

    def consume(self, topic: str, group: str, counting: Counting, seconds: float) -> None:
        """Consume from the start of a topic until enough have come."""
        adding = threading.Lock()

        def count(_: object) -> None:
            with adding:
                counting.add_one()

        consumer = client.PushConsumer(
            group, on_message=count, namesrv=self._name_server, consume_from=FIRST
        )
        consumer.subscribe(topic)
        with consumer:
            counting.done.wait(seconds)

    def request(self, topic: str, group: str, at_once: int, seconds: float) -> None:
        """Send requests for this many seconds, and reply to them."""
        replier = client.PushConsumer(
            group,
            on_message=lambda message: client.Reply(message.body),
            namesrv=self._name_server,
        )
        replier.subscribe(topic)
        with replier, ThreadPoolExecutor(at_once) as pool:
            for _ in range(FIRST_REQUESTS_MAX):
                with suppress(RequestTimeoutError):
                    for _ in range(QUEUES):
                        self._producer.request(Message(topic, BODY), timeout_ms=FIRST_REQUEST_MS)
                    break
            start_s, start_cpu_s = time.perf_counter(), time.process_time()

            def ask_on() -> int:
                asked = 0
                while not asked or time.perf_counter() < start_s + seconds:
                    self._producer.request(Message(topic, BODY))
                    asked += 1
                return asked

            asked = sum(one.result() for one in [pool.submit(ask_on) for _ in range(at_once)])
            tell(asked, start_s, start_cpu_s)

    def transact(self, topic: str, at_once: int, seconds: float) -> None:
        """Commit transactions for this many seconds."""
        producer = client.TransactionProducer(
            "benchmark_transactions",
            on_check=lambda _: client.TransactionState.COMMIT,
            namesrv=self._name_server,
            send_timeout_ms=SEND_TIMEOUT_MS,
        )
        with producer, ThreadPoolExecutor(at_once) as pool:
            start_s, start_cpu_s = time.perf_counter(), time.process_time()

            def commit_on() -> int:
                committed = 0
                while not committed or time.perf_counter() < start_s + seconds:
                    with producer.transaction(Message(topic, BODY, tags="tag")):
                        pass
                    committed += 1
                return committed

            running = [pool.submit(commit_on) for _ in range(at_once)]
            tell(sum(one.result() for one in running), start_s, start_cpu_s)


FIRST = "first"
# Of requests, replies and transactions.
BODY = b"x" * 128
FIRST_REQUEST_MS = 1_000
FIRST_REQUESTS_MAX = 30
QUEUES = 8
# A loaded machine must not end the run.
SEND_TIMEOUT_MS = 60_000
# Of one slice, as for the Java client, which does not get on well with more.
ONEWAY_MAX = 30_000
LOADS: dict[str, type[OnAsyncio | Blocking]] = {"asyncio": OnAsyncio, "blocking": Blocking}


def _loop_factory() -> type[asyncio.AbstractEventLoop]:
    import uvloop

    return uvloop.Loop


def follow(load: Load, kind: str, *words: str) -> None:
    """Do what an order says."""
    if kind == "send":
        mode, topic, body_bytes, at_once, seconds = words
        load.send(mode, topic, b"x" * int(body_bytes), int(at_once), float(seconds))
        return
    if kind == "request":
        topic, group, at_once, seconds = words
        load.request(topic, group, int(at_once), float(seconds))
        return
    if kind == "transact":
        topic, at_once, seconds = words
        load.transact(topic, int(at_once), float(seconds))
        return
    topic, group, warm_up, messages, seconds = words
    counting = Counting(int(warm_up), int(messages))
    load.consume(topic, group, counting, float(seconds))
    if not counting.done.is_set():
        print(f"error only {counting.received} messages came", flush=True)


def main() -> None:
    """Take orders until input ends."""
    load: Load = LOADS[sys.argv[1]](sys.argv[2])
    for order in sys.stdin:
        try:
            follow(load, *order.split())
        except OrbitError as error:
            print(f"error {error}", flush=True)
        print("closed", flush=True)


if __name__ == "__main__":
    main()
