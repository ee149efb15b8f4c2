"""Kills a broker process while clients use timers and transactions; then nothing may be wrong.

Threads of one process send timers and recall some, run transactions, and read the queue; the reader
also fills files of the log and has the broker delete old ones. Kills hit all of that, and some of
them a broker that is still starting.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from orbitmq.client import (
    Admin,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    ReceivedMessage,
    Transaction,
    TransactionProducer,
    TransactionState,
)
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError, RecallHandleError
from orbitmq.store.config import FlushMode
from tests.crash.broker_ledger import Ack, Kind, Ledger, Seen
from tests.interop.ours import OrbitBroker, OrbitNameServer
from tests.waiting import wait_until

TOPIC, FILLER = "T", "filler"
BROKER = "broker-a"
WAIT_S = 60
OPTIONS = {
    # Small files, so that they change often.
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeTimerLog": str(52 * 40 + 16),
    "timerFlushIntervalMs": "200",
    "flushConsumerOffsetInterval": "200",
    "transactionTimeOut": "300",
    "transactionCheckInterval": "300",
    "transactionCheckMax": "10000",
    # The reader decides when files are deleted, whatever their age.
    "fileReservedTime": "0",
    "deleteWhen": "",
    "cleanResourceInterval": "86400000",
    "cleanFileForciblyEnable": "false",
}


@dataclass
class Work:
    """What the clients do until they are stopped."""

    name_server: str
    seed: str
    ledger: Ledger = field(default_factory=Ledger)
    # Transactions that their producer is busy with: it cannot tell yet how they end.
    busy: set[str] = field(default_factory=set)
    stopping: threading.Event = field(default_factory=threading.Event)
    reading: threading.Event = field(default_factory=threading.Event)

    def _repeat(self, step: Callable[[], None], pause_s: float) -> None:
        """Repeat a step, also while the broker is down."""
        while not self.stopping.wait(pause_s):
            try:
                step()
            except OrbitError:
                continue

    # --- timers -------------------------------------------------------------------------------

    def send_timers(self) -> None:
        """Send timers, and recall some."""
        rng = random.Random(f"{self.seed} timers")
        clock = SystemClock()
        with Producer(
            "timers", namesrv=self.name_server, retries=0, send_timeout_ms=2000
        ) as producer:

            def send() -> None:
                name = f"m{len(self.ledger.due_ms)}"
                due_ms = clock.now_ms() + rng.choice((50, 400, 1000, rng.randrange(1, 2500)))
                self.ledger.due_ms[name] = due_ms
                due = datetime.fromtimestamp(due_ms / 1000, UTC)
                sent = producer.send(Message(TOPIC, name.encode(), deliver_at=due))
                self.ledger.acks.append(Ack(Kind.TIMER, name))
                if sent.recall_handle is not None and rng.random() < 0.2:
                    self.ledger.recalls.add(name)
                    try:
                        producer.recall(sent.recall_handle)
                    except RecallHandleError:
                        self.ledger.recalls.discard(name)
                    else:
                        self.ledger.acks.append(Ack(Kind.RECALL, name))

            self._repeat(send, 0.005)

    # --- transactions ---------------------------------------------------------------------------

    def _check(self, message: ReceivedMessage) -> TransactionState:
        name = message.body.decode()
        if name in self.busy:
            return TransactionState.UNKNOWN
        return _state(commits=self.ledger.commits[name])

    def run_transactions(self, worker: str) -> None:
        """Commit, roll back, or leave the end to a check."""
        rng = random.Random(f"{self.seed} {worker}")

        def decide(transaction: Transaction, name: object) -> TransactionState:
            assert isinstance(name, str)
            assert transaction.message_id
            self.ledger.acks.append(Ack(Kind.HALF, name))
            self.ledger.commits[name] = rng.random() < 0.6
            if rng.random() < 0.2:
                return TransactionState.UNKNOWN
            return _state(commits=self.ledger.commits[name])

        with TransactionProducer(
            "transactions", on_check=self._check, on_transaction=decide, namesrv=self.name_server,
            instance_name=worker, retries=0, send_timeout_ms=2000, call_timeout_ms=2000,
        ) as producer:  # fmt: skip
            count = 0

            def run() -> None:
                nonlocal count
                count += 1
                name = f"{worker}-{count}"
                self.busy.add(name)
                try:
                    producer.send_in_transaction(Message(TOPIC, name.encode()), name)
                finally:
                    # One that could not be begun is not committed.
                    self.ledger.commits.setdefault(name, False)
                    self.busy.discard(name)

            self._repeat(run, 0.005)
            # It answers checks until everything is decided.
            assert self.reading.wait(WAIT_S * 4)

    # --- reading --------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the queue; now and then fill files of the log, and have old ones deleted."""
        queue = MessageQueue(topic=TOPIC, broker_name=BROKER, queue_id=0)
        with (
            PullConsumer("readers", namesrv=self.name_server, call_timeout_ms=2000) as consumer,
            Producer("fillers", namesrv=self.name_server, send_timeout_ms=2000) as producer,
            Admin(namesrv=self.name_server) as admin,
        ):

            def read() -> None:
                end = consumer.max_offset(queue)
                while self.ledger.next_offset < end:
                    for message in consumer.pull(queue, "*", self.ledger.next_offset).messages:
                        self.ledger.see(
                            Seen(message.queue_offset, message.body.decode(), message.store_ms)
                        )

            def read_fill_and_delete() -> None:
                read()
                producer.send(Message(FILLER, bytes(300_000)))
                # Only this thread fills files, so what is deleted was read.
                read()
                admin.brokers.delete_expired_logs(BROKER)

            self._repeat(read_fill_and_delete, 0.1)
            while not self.reading.wait(0.1):
                try:
                    read()
                except OrbitError:
                    continue

    def is_complete(self) -> bool:
        """Whether all that must come was seen."""
        seen = {message.name for message in self.ledger.seen}
        expected = self.ledger.acked(Kind.TIMER) - self.ledger.recalls
        expected |= {n for n in self.ledger.acked(Kind.HALF) if self.ledger.commits.get(n)}
        return expected <= seen


def _state(*, commits: bool) -> TransactionState:
    return TransactionState.COMMIT if commits else TransactionState.ROLLBACK


@contextmanager
def _cluster(folder: Path, mode: FlushMode) -> Iterator[OrbitBroker]:
    for name in ("ns", "broker"):
        (folder / name).mkdir(parents=True)
    server = OrbitNameServer(folder / "ns")
    options = OPTIONS | {"flushDiskType": mode.value}
    broker = OrbitBroker(BROKER, folder / "broker", [server.address], options)
    try:
        server.process.start()
        server.wait_ready()
        broker.restart()
        for topic in (TOPIC, FILLER):
            broker.create_topic(topic, queues=1)
        yield broker
    finally:
        broker.process.kill()
        server.process.kill()


def run_broker_kills(folder: Path, seed: int, mode: FlushMode, *, rounds: int) -> Counter[str]:
    """Kill a broker `rounds` times; then everything ends as its clients were told."""
    rng = random.Random(f"kills {seed} {mode}")
    pause = threading.Event()
    outcomes: Counter[str] = Counter()
    with _cluster(folder, mode) as broker, ThreadPoolExecutor(4) as pool:
        work = Work(broker.name_servers[0], f"{seed} {mode}")
        running = [
            pool.submit(work.send_timers),
            pool.submit(work.run_transactions, "a"),
            pool.submit(work.run_transactions, "b"),
            pool.submit(work.read),
        ]
        try:
            for _ in range(rounds):
                pause.wait(rng.choice((0.3, 1.0, rng.random() * 2)))
                broker.process.kill()
                while rng.random() < 0.3:
                    broker.process.start()
                    pause.wait(rng.random() * 1.5)
                    broker.process.kill()
                    outcomes["killed while it started"] += 1
                broker.restart()
                outcomes["killed at work"] += 1
            pause.wait(0.3)
            work.stopping.set()
            _wait_for_the_end(work, running)
        finally:
            work.stopping.set()
            work.reading.set()
        for each in running:
            each.result(WAIT_S)
    return outcomes + work.ledger.check()


def _wait_for_the_end(work: Work, running: Sequence[Future[None]]) -> None:
    last_ms = max(work.ledger.due_ms.values(), default=0) + 1000
    clock = SystemClock()
    with Admin(namesrv=work.name_server) as admin:
        wait_until(
            lambda: (
                # A client that failed says why.
                any(each.done() and each.exception() for each in running)
                or (
                    clock.now_ms() > last_ms
                    and work.is_complete()
                    and admin.transactions.open()[BROKER].count == 0
                )
            ),
            timeout_s=WAIT_S,
            what="everything is seen, and no transaction open",
        )
