"""What does a transaction cost a broker, ours and RocketMQ's: half message, commit, delivery?

    python -m benchmarks.transactions [--rounds N] [--seconds S] [--no-java] [--smoke]

A client sends messages of 128 bytes in transactions, and commits each at once. The same clients load
both brokers: Java's, which does not wait for the answer to a commit, and ours on asyncio, which does.
A slice ends when readers see every message that was committed, and fails if there are others.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import psutil

from benchmarks import client_peers
from benchmarks.broker_rounds import Column, Figures, ask, options
from benchmarks.brokers import ASYNC, SYNC, BrokerUnderLoad, newest_line
from benchmarks.client_peers import LoadingClient
from benchmarks.load import cpu_seconds
from tests.interop import wire
from tests.interop.timeouts import REGISTER_TIMEOUT_S

NAME: Final = "benchmark_transactions"
_AT_ONCE: Final = {"1 producer": 1, "64 producers": 64}
COLUMNS: Final = (
    Column(figure="messages_per_s", title="transactions/s", is_compared=True),
    Column(figure="cpu_us", title="broker CPU µs/transaction", digits=1, is_compared=True),
    Column(figure="client_cpu_us", title="client CPU µs/transaction", digits=1),
    Column(figure="broker_cores", title="cores: broker", digits=2),
    Column(figure="client_cores", title="client", digits=2),
)


class Transactions:
    """Has clients commit transactions."""

    topics = ()

    def __init__(self, folder: Path, *, line: str | None) -> None:
        self._folder = folder
        self._line = line
        self._clients: dict[str, LoadingClient] = {}
        self._workloads = {
            f"{count}, {client} client": (client, at_once)
            for count, at_once in _AT_ONCE.items()
            for client in (("Java's", "our") if line else ("our",))
        }
        self.workloads = tuple(self._workloads)

    async def prepare(self, broker: BrokerUnderLoad) -> None:
        """Make a topic that this broker alone has."""
        (name_server,) = broker.broker.name_servers
        await asyncio.to_thread(broker.create_topic, _topic_of(broker))
        await asyncio.to_thread(
            wire.wait_route_code,
            name_server,
            _topic_of(broker),
            wire.SUCCESS,
            timeout_s=REGISTER_TIMEOUT_S,
        )
        if not self._clients:
            self._start_clients(name_server)

    def _start_clients(self, name_server: str) -> None:
        self._clients["our"] = client_peers.our_client(
            client_peers.ASYNCIO, self._folder / "our-client", name_server
        )
        if self._line is not None:
            self._clients["Java's"] = client_peers.java_client(
                self._line, self._folder / "java-client", name_server
            )
        for client in self._clients.values():
            client.start()

    def stop(self) -> None:
        """End the clients."""
        for client in self._clients.values():
            client.stop()

    async def load(self, broker: BrokerUnderLoad, workload: str, seconds: float) -> Figures:
        """Commit transactions for so long, and wait until everything committed can be read."""
        return await asyncio.to_thread(self._load, broker, workload, seconds)

    def _load(self, broker: BrokerUnderLoad, workload: str, seconds: float) -> Figures:
        name, at_once = self._workloads[workload]
        client, topic = self._clients[name], _topic_of(broker)
        process = psutil.Process(broker.pid)
        before = sum(broker.ends(topic))
        broker_before_s, client_before_s = cpu_seconds(process), client.cpu_seconds()
        shown = client.transact(topic, at_once=at_once, seconds=seconds)
        broker.wait_stored(topic, before + shown.messages)
        client_s = client.cpu_seconds() - client_before_s
        broker_s = cpu_seconds(process) - broker_before_s
        return {
            "messages": shown.messages,
            "messages_per_s": shown.messages / shown.seconds,
            "cpu_us": broker_s * 1e6 / shown.messages,
            "client_cpu_us": client_s * 1e6 / shown.messages,
            "broker_cores": broker_s / shown.seconds,
            "client_cores": client_s / shown.seconds,
        }


def _topic_of(broker: BrokerUnderLoad) -> str:
    return f"{NAME}_{broker.server.replace(' ', '_').replace('.', '_')}_{broker.flush}"


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options(
        "Compare what transactions cost.",
        "transactions",
        rounds=5,
        seconds=2.0,
        java_warm_up_seconds=30,
    )
    line = newest_line(without=chosen.no_java or chosen.smoke)
    questions: list[Transactions] = []

    def question_in(folder: Path) -> Transactions:
        questions.append(Transactions(folder, line=line))
        return questions[0]

    try:
        ask(chosen, question_in, flushes=(ASYNC, SYNC), columns=COLUMNS)
    finally:
        for question in questions:
            question.stop()


if __name__ == "__main__":
    main()
