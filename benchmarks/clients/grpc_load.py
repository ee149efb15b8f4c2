"""PyPI's rocketmq-python-client under the orders of a benchmark; the orders are ClientLoad's.

It runs in an environment of its own, so it imports nothing of ours:
`python grpc_load.py <address of a proxy> <topics, with commas>`.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rocketmq import (  # type: ignore[import-not-found]  # of its own environment
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)


def tell(messages: int, start_s: float, start_cpu_s: float) -> None:
    """Print what a slice showed."""
    cpu_s, seconds = time.process_time() - start_cpu_s, time.perf_counter() - start_s
    print(f"figures {messages} {seconds} {cpu_s}", flush=True)


def message_of(topic: str, body: bytes) -> Message:
    """A message as every client sends it."""
    message = Message()
    message.topic, message.body, message.tag = topic, body, "tag"
    return message


def send(producer: Producer, words: list[str]) -> None:
    """Send for this many seconds."""
    _, mode, topic, body_bytes, at_once, seconds = words
    body = b"x" * int(body_bytes)
    threads = int(at_once) if mode == "concurrent" else 1
    producer.send(message_of(topic, body))
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    end_s = start_s + float(seconds)

    def send_on() -> int:
        sent = 0
        while time.perf_counter() < end_s:
            producer.send(message_of(topic, body))
            sent += 1
        return sent

    with ThreadPoolExecutor(threads) as pool:
        sent = sum(one.result() for one in [pool.submit(send_on) for _ in range(threads)])
    tell(sent, start_s, start_cpu_s)


class Counting(MessageListener):  # type: ignore[misc]  # of its own environment
    """Counts messages, and tells when all have come."""

    def __init__(self, warm_up: int, last: int) -> None:
        self.warm_up, self.last = warm_up, last
        self.received = 0
        self.start_s = self.start_cpu_s = 0.0
        self.done = threading.Event()
        self._counting = threading.Lock()

    def consume(self, _message: Message) -> ConsumeResult:
        """Count one."""
        with self._counting:
            self.received += 1
            if self.received == self.warm_up:
                self.start_s, self.start_cpu_s = time.perf_counter(), time.process_time()
            elif self.received == self.last:
                tell(self.last - self.warm_up, self.start_s, self.start_cpu_s)
                self.done.set()
        return ConsumeResult.SUCCESS


def consume(configuration: ClientConfiguration, words: list[str]) -> None:
    """Consume from the start of a topic until enough have come."""
    _, topic, group, warm_up, messages, seconds = words
    listener = Counting(int(warm_up), int(warm_up) + int(messages))
    consumer = PushConsumer(configuration, group, listener, {topic: FilterExpression("*")})
    consumer.startup()
    if not listener.done.wait(float(seconds)):
        print(f"error only {listener.received} messages came", flush=True)
    consumer.shutdown()


def main() -> None:
    """Take orders until input ends."""
    configuration = ClientConfiguration(sys.argv[1], Credentials())
    producer = Producer(configuration, tuple(sys.argv[2].split(",")))
    producer.startup()
    for order in sys.stdin:
        words = order.split()
        try:
            if words[0] == "send":
                send(producer, words)
            else:
                consume(configuration, words)
        except Exception as error:  # noqa: BLE001  # the border
            print(f"error {error!r}", flush=True)
        print("closed", flush=True)
    producer.shutdown()


if __name__ == "__main__":
    main()
