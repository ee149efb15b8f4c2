"""Transaction producers against a broker: blocks, listeners, checks, and what fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from orbitmq import client as blocking_clients
from orbitmq.client import TransactionState
from orbitmq.client.aio import TransactionProducer
from orbitmq.client.aio.sending.transactions import Transaction
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.errors import (
    MessageError,
    MessageTypeError,
    SettingsError,
    StateError,
    TransactionPendingError,
)
from orbitmq.model.messages import Message
from orbitmq.model.names import HALF_TOPIC
from tests.integration.broker.conftest import Disk, disk
from tests.integration.client.conftest import Cluster
from tests.integration.client.threads import blocking, no_thread_is_left
from tests.waiting import until, wait_until

__all__ = ["disk", "no_thread_is_left"]

COMMIT, ROLLBACK, UNKNOWN = TransactionState
FAST_CHECKS = {"transactionTimeOut": "50", "transactionCheckInterval": "50"}


def unknown(_: ReceivedMessage) -> TransactionState:
    return UNKNOWN


def never(message: ReceivedMessage) -> TransactionState:
    raise AssertionError(f"asked about {message}")


@pytest.fixture
async def site(cluster: Cluster, topic: str) -> Cluster:
    await cluster.make_topic(topic, queues=1)
    return cluster


async def with_fast_checks(cluster: Cluster) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(**FAST_CHECKS)


async def leave_open(cluster: Cluster, group: str, message: Message) -> None:
    """Leave a transaction open, whose producer is gone then."""
    async with (
        TransactionProducer(group, on_check=unknown, namesrv=cluster.namesrv) as producer,
        producer.transaction(message) as transaction,
    ):
        transaction.leave_open()


def delivered(cluster: Cluster, topic: str) -> list[bytes]:
    store = cluster.brokers["broker-a"].store
    return [store.message_at(entry[0]).body for entry in store.entries(topic, 0, 0, 100)]  # type: ignore[union-attr]  # just stored


def open_count(cluster: Cluster) -> int:
    return len(cluster.brokers["broker-a"].parts.transactions.halves)


# --- blocks -----------------------------------------------------------------------------------


async def test_the_end_of_a_block_commits(site: Cluster, topic: str, group: str) -> None:
    async with TransactionProducer(group, on_check=never, namesrv=site.namesrv) as producer:
        async with producer.transaction(Message(topic, b"paid", keys="k")) as transaction:
            assert delivered(site, topic) == []
            assert open_count(site) == 1

        assert delivered(site, topic) == [b"paid"]
        assert transaction.half.transaction_id == transaction.message_id
        assert open_count(site) == 0
        with pytest.raises(StateError, match="ended already"):
            await transaction.end(COMMIT)


async def test_an_exception_in_a_block_rolls_back(site: Cluster, topic: str, group: str) -> None:
    async with TransactionProducer(group, on_check=never, namesrv=site.namesrv) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(topic, b"paid")):
                raise ZeroDivisionError

        assert delivered(site, topic) == []
        assert open_count(site) == 0


async def test_a_cancelled_block_rolls_back(site: Cluster, topic: str, group: str) -> None:
    begun = asyncio.Event()

    async def work(producer: TransactionProducer) -> None:
        async with producer.transaction(Message(topic, b"paid")):
            begun.set()
            await asyncio.Event().wait()

    async with TransactionProducer(group, on_check=never, namesrv=site.namesrv) as producer:
        task = asyncio.create_task(work(producer))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert delivered(site, topic) == []
        assert open_count(site) == 0


async def test_a_block_may_roll_back_or_leave_the_transaction_open(
    site: Cluster, topic: str, group: str
) -> None:
    async with TransactionProducer(group, on_check=never, namesrv=site.namesrv) as producer:
        async with producer.transaction(Message(topic, b"1")) as transaction:
            transaction.roll_back_at_end()
        assert open_count(site) == 0
        async with producer.transaction(Message(topic, b"2")) as transaction:
            transaction.leave_open()
        assert open_count(site) == 1
        assert delivered(site, topic) == []


async def test_a_transaction_may_be_ended_in_its_block(
    site: Cluster, topic: str, group: str
) -> None:
    async with TransactionProducer(group, on_check=never, namesrv=site.namesrv) as producer:
        async with producer.transaction(Message(topic, b"rolled back")) as transaction:
            await transaction.end(ROLLBACK)
        with pytest.raises(ZeroDivisionError) as raised:  # noqa: PT012  # the block is under test
            async with producer.transaction(Message(topic, b"committed")) as transaction:
                await transaction.end(COMMIT)
                raise ZeroDivisionError
        with pytest.raises(StateError, match="ended already"):
            transaction.leave_open()
        async with producer.transaction(Message(topic, b"committed too")) as transaction:
            with pytest.raises(SettingsError, match="cannot end with 'commit'"):
                await transaction.end("commit")  # type: ignore[arg-type]  # refused

    assert not hasattr(raised.value, "__notes__")
    assert delivered(site, topic) == [b"committed", b"committed too"]
    assert open_count(site) == 0


async def test_a_producer_that_has_sent_nothing_answers_checks(
    cluster: Cluster, topic: str, group: str
) -> None:
    await with_fast_checks(cluster)
    await cluster.make_topic(topic, queues=1)
    await leave_open(cluster, group, Message(topic, b"paid"))

    async with TransactionProducer(group, on_check=lambda _: COMMIT, namesrv=cluster.namesrv):
        await until(lambda: delivered(cluster, topic) == [b"paid"])


async def test_a_producer_that_starts_before_the_brokers_answers_checks(
    cluster: Cluster, topic: str, group: str
) -> None:
    await with_fast_checks(cluster)
    await cluster.make_topic(topic, queues=1)
    await leave_open(cluster, group, Message(topic, b"paid"))
    await cluster.stop_broker()

    async with TransactionProducer(
        group,
        on_check=lambda _: COMMIT,
        namesrv=cluster.namesrv,
        route_interval_ms=100,
        heartbeat_interval_ms=100,
    ):
        await cluster.start_broker(**FAST_CHECKS)
        await until(lambda: delivered(cluster, topic) == [b"paid"])


async def test_a_commit_that_is_not_confirmed_is_pending_a_check(
    cluster: Cluster, topic: str, group: str
) -> None:
    await with_fast_checks(cluster)
    await cluster.make_topic(topic, queues=1)
    checked: list[str] = []

    async def on_check(message: ReceivedMessage) -> TransactionState:
        checked.append(message.message_id)
        return COMMIT

    # The broker asks the producers that it heard of since its start.
    async with TransactionProducer(
        group,
        on_check=on_check,
        namesrv=cluster.namesrv,
        call_timeout_ms=500,
        heartbeat_interval_ms=1000,
    ) as producer:
        block = producer.transaction(Message(topic, b"paid"))
        transaction = await block.__aenter__()
        await cluster.kill_broker()
        with pytest.raises(TransactionPendingError, match="pending a check"):
            await block.__aexit__(None, None, None)
        await cluster.start_broker()

        await until(lambda: delivered(cluster, topic) == [b"paid"])

    assert checked[0] == transaction.message_id


async def test_an_error_says_if_its_rollback_was_not_confirmed(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    async with TransactionProducer(
        group, on_check=never, namesrv=cluster.namesrv, call_timeout_ms=500
    ) as producer:
        transaction = await producer.begin(Message(topic, b"paid"))
        await cluster.kill_broker()
        error = ZeroDivisionError()
        await transaction.end_failed(error)

    assert "pending a check" in error.__notes__[0]


# --- listeners --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", TransactionState)
async def test_a_listener_decides_how_a_transaction_ends(
    site: Cluster, topic: str, group: str, state: TransactionState
) -> None:
    seen: list[tuple[bytes, Any]] = []

    async def local(transaction: Transaction, argument: Any) -> TransactionState:
        seen.append((transaction.message.body, argument))
        return state

    async with TransactionProducer(
        group, on_check=never, on_transaction=local, namesrv=site.namesrv
    ) as producer:
        result = await producer.send_in_transaction(Message(topic, b"paid"), 7)

    assert seen == [(b"paid", 7)]
    assert result.state is state
    assert delivered(site, topic) == ([b"paid"] if state is COMMIT else [])
    assert open_count(site) == (1 if state is UNKNOWN else 0)


async def test_a_listener_that_fails_leaves_the_transaction_to_a_check(
    site: Cluster, topic: str, group: str
) -> None:
    def local(transaction: Transaction, _: Any) -> TransactionState:
        raise ZeroDivisionError(transaction.message_id)

    async with TransactionProducer(
        group, on_check=never, on_transaction=local, namesrv=site.namesrv
    ) as producer:
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(Message(topic, b"paid"))

    assert open_count(site) == 1


# --- checks -----------------------------------------------------------------------------------


def plain(states: list[TransactionState]) -> Callable[[ReceivedMessage], TransactionState]:
    def on_check(message: ReceivedMessage) -> TransactionState:
        assert message.body == b"paid"
        assert threading.current_thread() is not threading.main_thread()
        return states.pop(0)

    return on_check


async def test_a_plain_check_function_runs_in_a_thread(
    cluster: Cluster, topic: str, group: str
) -> None:
    await with_fast_checks(cluster)
    await cluster.make_topic(topic, queues=1)
    states = [UNKNOWN, COMMIT]

    async with TransactionProducer(
        group, on_check=plain(states), namesrv=cluster.namesrv
    ) as producer:
        async with producer.transaction(Message(topic, b"paid")) as transaction:
            transaction.leave_open()

        await until(lambda: delivered(cluster, topic) == [b"paid"])

    assert states == []


async def test_check_functions_that_hang_are_called_once_and_delay_nothing_else(
    cluster: Cluster, topic: str, group: str
) -> None:
    await with_fast_checks(cluster)
    await cluster.make_topic(topic, queues=1)
    called: list[bytes] = []
    released = threading.Event()

    def on_check(message: ReceivedMessage) -> TransactionState:
        called.append(message.body)
        released.wait(60)
        return COMMIT

    bodies = [b"%d" % number for number in range(20)]
    async with TransactionProducer(group, on_check=on_check, namesrv=cluster.namesrv) as producer:
        for body in bodies:
            async with producer.transaction(Message(topic, body)) as transaction:
                transaction.leave_open()
        halves = cluster.brokers["broker-a"].parts.transactions.halves
        await until(lambda: all(half.checks > 2 for half in halves.halves.values()))

        # Only 16 run at a time, each once; the threads of the program are free.
        assert len(called) == len(set(called)) == 16
        assert await asyncio.to_thread(threading.active_count)
        released.set()
        await until(lambda: sorted(delivered(cluster, topic)) == sorted(bodies))

    # A check may cross the answer to the one before.
    assert set(called) == set(bodies)


async def test_a_check_that_fails_is_asked_again(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await with_fast_checks(cluster)
    await cluster.make_topic(topic, queues=1)
    outcomes: list[Any] = [None, "commit", ROLLBACK]

    async def on_check(_: ReceivedMessage) -> Any:
        outcome = outcomes.pop(0)
        if outcome is None:
            raise ZeroDivisionError
        return outcome

    async with TransactionProducer(group, on_check=on_check, namesrv=cluster.namesrv) as producer:
        async with producer.transaction(Message(topic, b"paid")) as transaction:
            transaction.leave_open()

        await until(lambda: open_count(cluster) == 0)

    assert outcomes == []
    assert delivered(cluster, topic) == []
    assert "'commit'" in caplog.text


async def test_a_stop_waits_for_a_check_in_progress(
    cluster: Cluster, topic: str, group: str
) -> None:
    await with_fast_checks(cluster)
    await cluster.make_topic(topic, queues=1)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def on_check(_: ReceivedMessage) -> TransactionState:
        asked.set()
        await answer.wait()
        return COMMIT

    producer = TransactionProducer(group, on_check=on_check, namesrv=cluster.namesrv)
    await producer.start()
    async with producer.transaction(Message(topic, b"paid")) as transaction:
        transaction.leave_open()
    await asked.wait()
    stopping = asyncio.create_task(producer.stop())
    await until(lambda: group not in cluster.brokers["broker-a"].tables.members.producers)
    assert not stopping.done()
    answer.set()
    await stopping

    assert delivered(cluster, topic) == [b"paid"]


async def test_a_stop_leaves_a_check_that_takes_long_to_others(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await with_fast_checks(cluster)
    await cluster.make_topic(topic, queues=1)
    asked = asyncio.Event()

    async def on_check(_: ReceivedMessage) -> TransactionState:
        asked.set()
        await asyncio.Event().wait()
        return COMMIT

    async with TransactionProducer(
        group, on_check=on_check, namesrv=cluster.namesrv, call_timeout_ms=1000
    ) as producer:
        async with producer.transaction(Message(topic, b"paid")) as transaction:
            transaction.leave_open()
        await asked.wait()

    assert "transactions left to a check" in caplog.text
    assert open_count(cluster) == 1


async def test_a_stop_waits_for_a_commit_in_progress(
    cluster: Cluster, topic: str, group: str, disk: Disk
) -> None:
    await cluster.make_topic(topic, queues=1)
    producer = TransactionProducer(group, on_check=never, namesrv=cluster.namesrv)
    await producer.start()
    transaction = await producer.begin(Message(topic, b"paid"))
    disk.hold()
    try:
        ending = asyncio.create_task(transaction.end(COMMIT))
        await disk.held()
        stopping = asyncio.create_task(producer.stop())
        await until(lambda: group not in cluster.brokers["broker-a"].tables.members.producers)
    finally:
        disk.release()
    await stopping

    assert (await ending).state is COMMIT
    assert delivered(cluster, topic) == [b"paid"]


async def test_an_end_after_the_stop_is_left_to_a_check(
    site: Cluster, topic: str, group: str
) -> None:
    async with TransactionProducer(group, on_check=never, namesrv=site.namesrv) as producer:
        transaction = await producer.begin(Message(topic, b"paid"))

    with pytest.raises(TransactionPendingError, match="pending a check"):
        await transaction.end(COMMIT)

    assert open_count(site) == 1


# --- misuse -----------------------------------------------------------------------------------


async def test_misuse_is_refused_before_anything_is_stored(
    site: Cluster, topic: str, group: str
) -> None:
    with pytest.raises(SettingsError, match="on_check"):
        TransactionProducer(group, on_check=None)  # type: ignore[arg-type]  # refused
    async with TransactionProducer(group, on_check=never, namesrv=site.namesrv) as producer:
        with pytest.raises(MessageError, match="cannot be delayed"):
            async with producer.transaction(Message(topic, b"x", delay_level=1)):
                pass
        with pytest.raises(MessageError, match="it has a due time"):
            await producer.begin(Message(topic, b"x", delay=timedelta(seconds=1)))
        with pytest.raises(MessageTypeError, match="one Message"):
            await producer.begin([Message(topic, b"x")])  # type: ignore[arg-type]  # refused
        with pytest.raises(SettingsError, match="on_transaction="):
            await producer.send_in_transaction(Message(topic, b"x"))

    assert site.brokers["broker-a"].store.end_of(HALF_TOPIC, 0) == 0


# --- blocking ---------------------------------------------------------------------------------


async def test_blocking_transactions_commit_and_roll_back(
    site: Cluster, topic: str, group: str
) -> None:
    here: list[bool] = []

    def work() -> list[TransactionState]:
        thread = threading.current_thread()

        def local(_: blocking_clients.Transaction, state: TransactionState) -> TransactionState:
            here.append(threading.current_thread() is thread)
            return state

        with blocking_clients.TransactionProducer(
            group, on_check=never, on_transaction=local, namesrv=site.namesrv
        ) as producer:
            with producer.transaction(Message(topic, b"committed")) as transaction:
                assert transaction.message_id
            with (
                pytest.raises(ZeroDivisionError),
                producer.transaction(Message(topic, b"rolled back")),
            ):
                raise ZeroDivisionError
            return [
                producer.send_in_transaction(Message(topic, state.name), state).state
                for state in (COMMIT, ROLLBACK)
            ]

    assert await blocking(work) == [COMMIT, ROLLBACK]

    assert here == [True, True]
    assert delivered(site, topic) == [b"committed", b"COMMIT"]
    assert open_count(site) == 0


async def test_a_transaction_may_be_ended_in_its_blocking_block(
    site: Cluster, topic: str, group: str
) -> None:
    def work() -> None:
        with blocking_clients.TransactionProducer(
            group, on_check=never, namesrv=site.namesrv
        ) as producer:
            with producer.transaction(Message(topic, b"rolled back")) as transaction:
                assert transaction.end(ROLLBACK).state is ROLLBACK
                assert transaction.is_ended
            with producer.transaction(Message(topic, b"committed")) as transaction:
                transaction.end(COMMIT)
            with pytest.raises(StateError, match="ended already"):
                transaction.roll_back_at_end()

    await blocking(work)

    assert delivered(site, topic) == [b"committed"]
    assert open_count(site) == 0


async def test_a_blocking_producer_answers_checks(cluster: Cluster, topic: str, group: str) -> None:
    await with_fast_checks(cluster)
    await cluster.make_topic(topic, queues=1)
    checked = threading.Event()

    def on_check(message: ReceivedMessage) -> TransactionState:
        assert message.body == b"paid"
        checked.set()
        return COMMIT

    def work() -> None:
        with blocking_clients.TransactionProducer(
            group, on_check=on_check, namesrv=cluster.namesrv
        ) as producer:
            with producer.transaction(Message(topic, b"paid")) as transaction:
                transaction.leave_open()
            # A producer that stops does not answer any more.
            wait_until(
                lambda: delivered(cluster, topic) == [b"paid"], timeout_s=60, what="it is committed"
            )

    await blocking(work)

    assert checked.is_set()


async def test_an_async_listener_needs_an_asyncio_producer(group: str) -> None:
    async def local(_: Transaction, __: Any) -> TransactionState:
        return COMMIT

    with pytest.raises(SettingsError, match=r"orbitmq\.client\.aio"):
        blocking_clients.TransactionProducer(group, on_check=never, on_transaction=local)  # type: ignore[arg-type]  # refused
