"""Transactions at a broker that is killed again and again, counted outside.

`python -m tests.crash.killed_transactions FOLDER SECONDS` runs it for some time.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.client import (
    Admin,
    Message,
    PullConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError
from orbitmq.version import __version__
from tests.interop.ours import OrbitBroker, OrbitNameServer
from tests.waiting import wait_until

TOPIC = "T"
QUEUES = 2
WORKERS = 4
OPTIONS = {
    "transactionTimeOut": "100",
    "transactionCheckInterval": "200",
    "transactionCheckMax": "1000",
}
PATIENCE_S = 120
# Of the campaign.
TRANSACTIONS_PER_ROUND = 300
KILLS_PER_ROUND = 3


class Decisions:
    """What a database would know: how each transaction ended, before the broker hears of it."""

    def __init__(self) -> None:
        self.states: dict[str, TransactionState] = {}
        self.checks = 0
        # Numbers that a thread is at.
        self._undecided: set[int] = set()
        self._changed = threading.Condition()

    def check(self, message: ReceivedMessage) -> TransactionState:
        with self._changed:
            self.checks += 1
            unknown = int(message.body) in self._undecided
            otherwise = TransactionState.UNKNOWN if unknown else TransactionState.ROLLBACK
            return self.states.get(message.message_id, otherwise)

    def begin(self, number: int) -> None:
        with self._changed:
            self._undecided.add(number)

    def make(self, message_id: str, number: int) -> TransactionState:
        state = TransactionState.ROLLBACK if number % 3 == 0 else TransactionState.COMMIT
        with self._changed:
            self.states[message_id] = state
            self._undecided.discard(number)
            self._changed.notify_all()
        return state

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.states) >= count, PATIENCE_S)

    @property
    def committed(self) -> set[str]:
        return {
            message_id
            for message_id, state in self.states.items()
            if state is TransactionState.COMMIT
        }


@dataclass
class Site:
    """A broker that asks soon, its name server, and what was read from it."""

    server: OrbitNameServer
    broker: OrbitBroker
    delivered: Counter[str] = field(default_factory=Counter)
    _offsets: dict[int, int] = field(default_factory=dict)

    def kill(self) -> None:
        self.broker.process.kill()
        self.broker.process.start()
        self.broker.wait_ready()

    def wait_until_all_ended(self) -> None:
        with Admin(namesrv=self.server.address) as admin:
            wait_until(
                lambda: admin.transactions.open()["broker-a"].count == 0,
                timeout_s=PATIENCE_S,
                what="no transaction is open",
            )

    def read(self) -> Counter[str]:
        """How often each message was delivered, by id."""
        with PullConsumer("reader", namesrv=self.server.address) as consumer:
            for queue in consumer.queues(TOPIC):
                offset, end = self._offsets.get(queue.queue_id, 0), consumer.max_offset(queue)
                while offset < end:
                    result = consumer.pull(queue, "*", offset)
                    self.delivered.update(message.message_id for message in result.messages)
                    offset = result.next_offset
                self._offsets[queue.queue_id] = offset
        return self.delivered


@contextmanager
def started(folder: Path) -> Iterator[Site]:
    for name in ("ns", "broker"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    server = OrbitNameServer(folder / "ns")
    broker = OrbitBroker("broker-a", folder / "broker", [server.address], OPTIONS)
    try:
        server.process.start()
        server.wait_ready()
        broker.process.start()
        broker.wait_ready()
        broker.create_topic(TOPIC, queues=QUEUES)
        yield Site(server, broker)
    finally:
        broker.process.kill()
        server.process.kill()


@contextmanager
def producing(site: Site, decisions: Decisions) -> Iterator[TransactionProducer]:
    with TransactionProducer(
        "p",
        on_check=decisions.check,
        namesrv=site.server.address,
        send_timeout_ms=2000,
        call_timeout_ms=2000,
        heartbeat_interval_ms=1000,
    ) as producer:
        yield producer


def run_transactions(
    producer: TransactionProducer, decisions: Decisions, numbers: range, *, leave_open: int
) -> None:
    """Run transactions that are committed or rolled back; every so many of them by a check."""
    for number in numbers:
        decisions.begin(number)
        is_begun = False
        while not is_begun:
            try:
                with producer.transaction(Message(TOPIC, b"%d" % number)) as transaction:
                    is_begun = True
                    if decisions.make(transaction.message_id, number) is TransactionState.ROLLBACK:
                        transaction.roll_back_at_end()
                    if number % leave_open == 1:
                        transaction.leave_open()
            except OrbitError:
                # Its broker is down; a check decides what was begun.
                continue


def run_round(
    site: Site,
    decisions: Decisions,
    *,
    transactions: int,
    killed_after: list[int],
    leave_open: int = 7,
) -> None:
    """Run transactions while the broker is killed after so many of them, and until all ended."""
    before = len(decisions.states)
    with producing(site, decisions) as producer:
        with ThreadPoolExecutor(WORKERS) as pool:
            work = [
                pool.submit(
                    run_transactions, producer, decisions,
                    range(before + first, before + transactions, WORKERS), leave_open=leave_open,
                )
                for first in range(WORKERS)
            ]  # fmt: skip
            for count in killed_after:
                decisions.wait_for(before + count)
                site.kill()
            for each in work:
                each.result(PATIENCE_S)
        site.wait_until_all_ended()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seconds", type=int)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    decisions = Decisions()
    rounds = 0
    with started(arguments.folder) as site:
        while clock.monotonic_ms() - began_ms < arguments.seconds * 1000:
            chance = random.Random(rounds)
            moments = chance.sample(range(1, TRANSACTIONS_PER_ROUND), KILLS_PER_ROUND)
            run_round(
                site,
                decisions,
                transactions=TRANSACTIONS_PER_ROUND,
                killed_after=sorted(moments),
                leave_open=chance.choice([2, 3, 7]),
            )
            found = site.read()
            assert found == Counter(dict.fromkeys(decisions.committed, 1)), f"round {rounds}"
            rounds += 1
    if arguments.page is not None:
        spent_s = (clock.monotonic_ms() - began_ms) / 1000
        arguments.page.write_text(page(decisions, rounds, spent_s, clock.now_ms()))


def page(decisions: Decisions, rounds: int, spent_s: float, now_ms: int) -> str:
    day = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).date().isoformat()
    committed = len(decisions.committed)
    return f"""# Transactions at a killed broker

{len(decisions.states)} transactions, {rounds * KILLS_PER_ROUND} kills in {spent_s:.0f} s, OrbitMQ {__version__}, Python {platform.python_version()}, {day}. Written by `python -m tests.crash.killed_transactions`.

Four threads send transactions; the broker is killed (SIGKILL) at seeded moments of each round of {TRANSACTIONS_PER_ROUND}. Some are left open and decided by a check. After each round no transaction is open, and what consumers can read is compared with a ledger outside the broker.

| | |
|---|---|
| committed, delivered once | {committed} |
| rolled back, never seen | {len(decisions.states) - committed} |
| checks answered | {decisions.checks} |
"""


if __name__ == "__main__":
    main()
