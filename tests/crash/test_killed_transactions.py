"""Transactions through a killed broker: committed ones are delivered once, others never."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.client import (
    Admin,
    Message,
    PullConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from orbitmq.errors import OrbitError
from tests.interop.ours import OrbitBroker, OrbitNameServer
from tests.waiting import wait_until

TOPIC = "T"
WORKERS = 4
TRANSACTIONS = 40
KILLED_AFTER = (15,)
OPTIONS = {"transactionTimeOut": "100", "transactionCheckInterval": "200"}


class Decisions:
    """What a database would know: how each transaction ended, before the broker hears of it."""

    def __init__(self) -> None:
        self.states: dict[str, TransactionState] = {}
        self.made = threading.Condition()

    def check(self, message: ReceivedMessage) -> TransactionState:
        return self.states.get(message.message_id, TransactionState.ROLLBACK)

    def make(self, message_id: str, number: int) -> TransactionState:
        state = TransactionState.ROLLBACK if number % 3 == 0 else TransactionState.COMMIT
        with self.made:
            self.states[message_id] = state
            self.made.notify_all()
        return state

    def wait_for(self, count: int) -> None:
        with self.made:
            assert self.made.wait_for(lambda: len(self.states) >= count, 60)


def run_transactions(producer: TransactionProducer, decisions: Decisions, first: int) -> None:
    number = first
    while number < TRANSACTIONS:
        try:
            with producer.transaction(Message(TOPIC, b"%d" % number)) as transaction:
                if decisions.make(transaction.message_id, number) is TransactionState.ROLLBACK:
                    transaction.roll_back_at_end()
        except OrbitError:
            # Its broker is down; a check decides what was begun.
            continue
        number += WORKERS


def delivered(namesrv: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with PullConsumer("reader", namesrv=namesrv) as consumer:
        for queue in consumer.queues(TOPIC):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, "*", offset)
                found.update(message.message_id for message in result.messages)
                offset = result.next_offset
    return found


@pytest.mark.timeout(240)
def test_transactions_end_as_decided_however_often_the_broker_is_killed(tmp_path: Path) -> None:
    server = OrbitNameServer(tmp_path / "ns")
    broker = OrbitBroker("broker-a", tmp_path / "broker", [server.address], OPTIONS)
    decisions = Decisions()
    for folder in ("ns", "broker"):
        (tmp_path / folder).mkdir(exist_ok=True)
    try:
        server.process.start()
        server.wait_ready()
        broker.process.start()
        broker.wait_ready()
        broker.create_topic(TOPIC, queues=2)
        with (
            # A half that was sent twice would be committed twice.
            TransactionProducer(
                "p", on_check=decisions.check, namesrv=server.address, retries=0,
                send_timeout_ms=2000, call_timeout_ms=2000,
            ) as producer,
            ThreadPoolExecutor(WORKERS) as pool,
        ):  # fmt: skip
            work = [
                pool.submit(run_transactions, producer, decisions, first)
                for first in range(WORKERS)
            ]
            for count in KILLED_AFTER:
                decisions.wait_for(count)
                broker.process.kill()
                broker.process.start()
                broker.wait_ready()
            for each in work:
                each.result(120)

            with Admin(namesrv=server.address) as admin:
                wait_until(
                    lambda: admin.transactions.open()["broker-a"].count == 0,
                    timeout_s=60,
                    what="no transaction is open",
                )

        found = delivered(server.address)
    finally:
        broker.process.kill()
        server.process.kill()

    committed = {
        message_id
        for message_id, state in decisions.states.items()
        if state is TransactionState.COMMIT
    }
    assert found == Counter(dict.fromkeys(committed, 1))
