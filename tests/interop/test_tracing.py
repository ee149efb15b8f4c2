"""Traces of our clients and of official ones, read by our command and by mqadmin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.client import Admin, Message, TransactionState
from orbitmq.client.aio import TransactionProducer
from orbitmq.client.core.tracing.journeys import Journey, StepKind
from orbitmq.errors import MessageNotFoundError
from tests.interop import building
from tests.interop.drivers import Driver, GoDriver, JavaDriver
from tests.interop.peers import GO_LINE
from tests.interop.python_trials import PATIENCE_MS, Trial
from tests.waiting import beside, wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
async def traces(trial: Trial) -> str:
    """A trace topic of the test's own."""
    topic = f"traces-{trial.topic}"
    await trial.create_topic(topic, queues=1)
    return topic


@pytest.fixture
def tracing_clients(
    official_clients: dict[str, Driver], new_folder: Callable[[str], Path]
) -> Iterator[dict[str, Driver]]:
    """The official clients; a process with Go's sends all its traces to the first cluster."""
    if GO_LINE not in official_clients:
        yield official_clients
        return
    own = GoDriver(new_folder("tracing Go driver")).start()
    yield {**official_clients, GO_LINE: own}
    own.stop()


async def journey(trial: Trial, id_or_key: str, traces: str, *, steps: int) -> Journey:
    """The journey of a message, once it has so many steps; clients write traces later."""
    return await beside(wait_for_journey, trial.site.name_server, id_or_key, traces, steps)


def wait_for_journey(name_server: str, id_or_key: str, traces: str, steps: int) -> Journey:
    found: list[Journey] = []

    with Admin(namesrv=name_server, call_timeout_ms=PATIENCE_MS) as admin:

        def is_complete() -> bool:
            try:
                search = admin.traces.of(id_or_key, trace_topic=traces)
            except MessageNotFoundError:
                return False
            assert search.malformed_count == 0, search.malformed
            found[:] = search.journeys
            ended = [step for step in found[0].steps if step.result != "no end reported"]
            return len(ended) >= steps

        wait_until(is_complete, timeout_s=60, what=f"{steps} steps of {id_or_key}")
    (only,) = found
    return only


def results(found: Journey) -> list[tuple[StepKind, str, str]]:
    return [(step.kind, step.group, step.result) for step in found.steps]


def rows_of(admin: JavaDriver, trial: Trial, message_id: str, traces: str) -> list[list[str]]:
    """What mqadmin shows: a row for each step, without the titles."""
    printed = admin.mqadmin(
        "queryMsgTraceById", "-i", message_id, "-t", traces, "-n", trial.site.name_server
    )
    return [line.split() for line in printed.splitlines() if line.startswith(("Pub", "Sub"))]


@pytest.mark.scenario("site", "Python traces, read by Python and by mqadmin")
async def test_traces_of_python_are_read_by_all(
    trial: Trial, traces: str, drivers: Callable[[str], JavaDriver]
) -> None:
    producer = await trial.producer(trace=True, trace_topic=traces)
    consumer, inbox = await trial.push(trace=True, trace_topic=traces)

    sent = await producer.send(Message(trial.topic, b"x", keys="key", tags="tag"))
    batch = await producer.send([Message(trial.topic, b"1"), Message(trial.topic, b"2")])
    await inbox.wait(3)
    await producer.stop()
    await consumer.stop()

    for message_id in (sent.message_id, *batch.message_id.split(",")):
        found = await journey(trial, message_id, traces, steps=2)
        assert results(found) == [
            (StepKind.SENT, producer.group, "ok"),
            (StepKind.CONSUMED, trial.group, "ok"),
        ]
        for line in building.LINES:
            rows = await beside(rows_of, drivers(line), trial, message_id, traces)
            assert [(row[0], row[1], row[-1]) for row in rows] == [
                ("Pub", producer.group, "success"),
                ("Sub", trial.group, "success"),
            ], line
    assert (await journey(trial, "key", traces, steps=2)).message_id == sent.message_id


@pytest.mark.scenario("site", "Java and Go traces, read by Python")
async def test_traces_of_official_clients_are_read_by_python(
    trial: Trial, traces: str, tracing_clients: dict[str, Driver]
) -> None:
    async def trace(line: str, driver: Driver) -> None:
        topic, name_server = f"{trial.topic}-{line}", trial.site.name_server
        await trial.create_topic(topic)
        await beside(driver.open_producer, topic, name_server, trace_topic=traces)
        await beside(
            driver.open_consumer,
            topic,
            name_server,
            topic,
            group=f"consumers-{topic}",
            trace_topic=traces,
        )
        sent = await beside(driver.send, topic, topic, 2)
        await beside(driver.received, topic, 2)
        # Java's consumers of 5.x write no traces of messages without a region, as from 4.x brokers.
        has_region = (line, trial.site.line) != ("v5", "v4")
        for message_id in sent.message_ids:
            found = await journey(trial, message_id, traces, steps=2 if has_region else 1)
            # Go's producer notes the time when a send has ended, which may be after its delivery.
            consumed = (StepKind.CONSUMED, f"consumers-{topic}", "ok")
            assert set(results(found)) == {
                (StepKind.SENT, f"group-{topic}", "ok"),
                *([consumed] if has_region else []),
            }, line
            assert found.topic == topic
        driver.close_later(consumers=[topic], producers=[topic])

    await asyncio.gather(*(trace(*pair) for pair in tracing_clients.items()))


@pytest.mark.scenario("site", "traces of Python transactions")
async def test_a_transaction_is_traced(
    trial: Trial, traces: str, drivers: Callable[[str], JavaDriver]
) -> None:
    producer = TransactionProducer(
        f"producers-{trial.topic}",
        on_check=lambda _: TransactionState.COMMIT,
        namesrv=trial.site.name_server,
        send_timeout_ms=PATIENCE_MS,
        call_timeout_ms=PATIENCE_MS,
        trace=True,
        trace_topic=traces,
    )
    async with (
        producer,
        producer.transaction(Message(trial.topic, b"x")) as transaction,
    ):
        pass

    found = await journey(trial, transaction.message_id, traces, steps=2)
    assert [step.kind for step in found.steps] == [StepKind.HALF_SENT, StepKind.COMMITTED]
    for line in building.LINES:
        # It shows no ends of transactions, and must not fail at them.
        rows = await beside(rows_of, drivers(line), trial, transaction.message_id, traces)
        assert [(row[0], row[-1]) for row in rows] == [("Pub", "success")]
