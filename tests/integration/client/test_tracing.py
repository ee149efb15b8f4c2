"""Traces that clients write at a real broker, and the journeys that are found in them."""

from __future__ import annotations

import asyncio
import datetime
import logging
import threading
from typing import Any

import pytest

from orbitmq.client import Admin as BlockingAdmin
from orbitmq.client import Message, ReceivedMessage
from orbitmq.client import Producer as BlockingProducer
from orbitmq.client import PushConsumer as BlockingPushConsumer
from orbitmq.client.aio import (
    Admin,
    LitePullConsumer,
    Producer,
    PullConsumer,
    TransactionProducer,
)
from orbitmq.client.aio.admin.traces import TraceSearch
from orbitmq.client.core.sending.transaction_states import TransactionState
from orbitmq.client.core.tracing.journeys import Journey, StepKind
from orbitmq.client.core.tracing.trace_records import Recalled, Sent, decode_records
from orbitmq.clock import ManualClock, settle
from orbitmq.embedded import Cluster as EmbeddedCluster
from orbitmq.errors import (
    MessageNotFoundError,
    NameRuleError,
    SendError,
    SettingsError,
    TopicMissingError,
)
from orbitmq.model.names import TRACE_TOPIC
from orbitmq.protocol.command import Command
from tests.integration.client.conftest import Cluster, pass_time
from tests.integration.client.consuming import Seen, consumer_of
from tests.integration.client.pulling import queue_of
from tests.integration.client.scripted_servers import (
    ScriptedBroker,
    failed,
    scripted_cluster,
    stored,
)
from tests.waiting import until

POLL_MS = 60_000
_RECORD = Recalled(time_ms=1, region="r", group="g", topic="t", message_id="m", success=True)


@pytest.fixture
async def traced(cluster: Cluster) -> Cluster:
    """A cluster whose broker has the trace topic."""
    await cluster.stop_broker()
    await cluster.start_broker(
        traceTopicEnable="true", autoCreateTopicEnable="false", messageDelayLevel="1s 1s 1s"
    )
    return cluster


def producer_of(cluster: Cluster, **options: Any) -> Producer:
    return Producer("shop", **{"namesrv": cluster.namesrv, "trace": True, **options})


async def search(cluster: Cluster, id_or_key: str, **options: Any) -> TraceSearch:
    async with Admin(namesrv=cluster.namesrv) as admin:
        return await admin.traces.of(id_or_key, **options)


async def journey(cluster: Cluster, id_or_key: str, **options: Any) -> Journey:
    (only,) = (await search(cluster, id_or_key, **options)).journeys
    return only


def results(found: Journey) -> list[tuple[StepKind, str]]:
    return [(step.kind, step.result) for step in found.steps]


# --- producers ------------------------------------------------------------------------------------


async def test_a_send_is_found_by_its_ids_and_by_its_key(traced: Cluster, topic: str) -> None:
    await traced.make_topic(topic)

    async with producer_of(traced) as producer:
        sent = await producer.send(Message(topic, b"12345", tags="paid", keys=["k1", "k2"]))

    found = await journey(traced, sent.message_id)
    assert (found.topic, found.tags, found.keys) == (topic, "paid", ("k1", "k2"))
    assert (found.body_bytes, found.offset_message_id) == (5, sent.offset_message_id)
    (step,) = found.steps
    assert (step.kind, step.group, step.result) == (StepKind.SENT, "shop", "ok")
    assert (step.client, step.broker) == ("127.0.0.1", traced.address())
    assert await journey(traced, "k2") == found
    assert await journey(traced, sent.offset_message_id) == found
    assert producer.trace_counts is not None
    assert producer.trace_counts.written == 1


async def test_each_message_of_a_batch_is_found_by_its_own_id(traced: Cluster, topic: str) -> None:
    await traced.make_topic(topic)

    async with producer_of(traced) as producer:
        batch = await producer.send([Message(topic, b"1"), Message(topic, b"22")])

    for result, size in zip(batch.each(2), (1, 2), strict=True):
        found = await journey(traced, result.message_id)
        assert (found.offset_message_id, found.body_bytes) == (result.offset_message_id, size)


async def test_all_forms_of_a_send_are_traced_but_one_way(traced: Cluster, topic: str) -> None:
    await traced.make_topic(topic)

    async with producer_of(traced) as producer:
        delayed = await producer.send(Message(topic, b"x", delay_level=1))
        later = await producer.send_async(Message(topic, b"x"))
        await producer.send_oneway(Message(topic, b"x", keys="oneway"))

    assert results(await journey(traced, delayed.message_id)) == [(StepKind.DELAYED, "ok")]
    assert results(await journey(traced, later.message_id)) == [(StepKind.SENT, "ok")]
    with pytest.raises(MessageNotFoundError, match="no trace in RMQ_SYS_TRACE_TOPIC names"):
        await search(traced, "oneway")


async def test_a_failed_attempt_is_traced_too() -> None:
    refused = ScriptedBroker("a", _refuses_all_but_traces)
    async with scripted_cluster(refused) as cluster:
        producer = Producer("shop", namesrv=cluster.namesrv, retries=0, trace=True)
        async with producer:
            with pytest.raises(SendError):
                await producer.send(Message("t", b"x"))

    body = cluster.sends[-1].body
    (record,), malformed = decode_records(body)
    assert (type(record), malformed) == (Sent, [])
    assert isinstance(record, Sent)
    assert (record.success, record.topic, record.store_host) == (False, "t", refused.address)


def _refuses_all_but_traces(request: Command) -> Command | None:
    return stored(request) if request.fields["b"] == TRACE_TOPIC else failed(2)(request)


async def test_a_broker_that_wants_no_traces_gets_none(traced: Cluster, topic: str) -> None:
    await traced.stop_broker()
    await traced.start_broker(traceOn="false")
    await traced.make_topic(topic)

    async with producer_of(traced) as producer:
        await producer.send(Message(topic, b"x"))

    assert producer.trace_counts is not None
    assert producer.trace_counts.written == 0


async def test_traces_go_to_a_topic_of_the_user_s_choice(traced: Cluster, topic: str) -> None:
    await traced.make_topic(topic)
    await traced.make_topic("my-traces", queues=1)

    async with producer_of(traced, trace_topic="my-traces", namespace="tenant") as producer:
        await traced.make_topic(f"tenant%{topic}")
        sent = await producer.send(Message(topic, b"x"))

    found = await journey(traced, sent.message_id, trace_topic="my-traces")
    # As in Java, names have no namespace.
    assert (found.topic, found.steps[0].group) == (topic, "shop")
    with pytest.raises(MessageNotFoundError):
        await search(traced, sent.message_id)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (TransactionState.COMMIT, StepKind.COMMITTED),
        (TransactionState.ROLLBACK, StepKind.ROLLED_BACK),
        (TransactionState.UNKNOWN, StepKind.LEFT_OPEN),
    ],
)
async def test_a_transaction_shows_its_half_and_its_end(
    traced: Cluster, topic: str, state: TransactionState, kind: StepKind
) -> None:
    await traced.make_topic(topic)

    producer = TransactionProducer(
        "shop", on_check=lambda _: state, namesrv=traced.namesrv, trace=True
    )
    async with producer:
        transaction = await producer.begin(Message(topic, b"x", keys="k"))
        await transaction.end(state)

    found = await journey(traced, "k")
    assert found.message_id == transaction.message_id
    assert results(found) == [(StepKind.HALF_SENT, "ok"), (kind, "ok")]
    assert found.steps[1].broker == traced.address()


async def test_a_recalled_message_shows_that(traced: Cluster, topic: str) -> None:
    await traced.make_topic(topic)

    async with producer_of(traced) as producer:
        delayed = Message(topic, b"x", delay=datetime.timedelta(hours=1))
        sent = await producer.send(delayed)
        assert sent.recall_handle is not None
        await producer.recall(sent.recall_handle)

    assert results(await journey(traced, sent.message_id)) == [
        (StepKind.DELAYED, "ok"),
        (StepKind.RECALLED, "ok"),
    ]


# --- consumers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_journey_shows_a_failure_and_the_retry(
    traced: Cluster, topic: str, group: str, *, ordered: bool
) -> None:
    await traced.make_topic(topic, queues=1)
    async with producer_of(traced) as producer:
        sent = await producer.send(Message(topic, b"x", keys="k"))
    seen = Seen()

    def fails_once(message: ReceivedMessage) -> None:
        seen.add(message)
        if len(seen.bodies) == 1:
            raise ValueError("not today")

    consumer = consumer_of(
        traced, group, on_message=fails_once, ordered=ordered, trace=True,
        suspend_current_queue_ms=10,
    )  # fmt: skip
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(2)

    found = await journey(traced, "k")
    assert found.message_id == sent.message_id
    assert results(found) == [
        (StepKind.SENT, "ok"),
        (StepKind.CONSUMED, "failed: it raised an exception"),
        (StepKind.CONSUMED, "ok"),
    ]
    assert [step.retries for step in found.steps] == [None, 0, 1]
    assert {step.group for step in found.steps[1:]} == {group}


async def test_messages_of_pull_consumers_are_consumed_when_they_get_them(
    traced: Cluster, topic: str
) -> None:
    await traced.make_topic(topic, queues=1)
    async with producer_of(traced) as producer:
        sent = await producer.send(Message(topic, b"x"))

    polling = LitePullConsumer("polling", namesrv=traced.namesrv, trace=True, consume_from="first")
    polling.subscribe(topic)
    async with polling:
        assert len(await polling.poll(POLL_MS)) == 1
    async with PullConsumer("pulling", namesrv=traced.namesrv, trace=True) as pulling:
        assert len((await pulling.pull(queue_of(topic, 0), "*", 0)).messages) == 1

    _, *consumed = (await journey(traced, sent.message_id)).steps
    assert {(step.group, step.result, step.cost_ms) for step in consumed} == {
        ("polling", "ok", 0),
        ("pulling", "ok", 0),
    }


def test_blocking_clients_write_traces() -> None:
    arrived = threading.Event()
    with EmbeddedCluster(in_memory=True, options={"traceTopicEnable": "true"}) as cluster:
        keywords: dict[str, Any] = {"namesrv": cluster.namesrv, "trace": True}
        consumer = BlockingPushConsumer(
            "billing", on_message=lambda _: arrived.set(), consume_from="first", **keywords
        )
        consumer.subscribe("orders")
        with BlockingAdmin(namesrv=cluster.namesrv) as admin:
            admin.topics.create("orders", queues=1)
            with BlockingProducer("shop", **keywords) as producer, consumer:
                sent = producer.send(Message("orders", b"x"))
                assert arrived.wait(60)
            (found,) = admin.traces.of(sent.message_id).journeys

    assert results(found) == [(StepKind.SENT, "ok"), (StepKind.CONSUMED, "ok")]


# --- bounds and failures --------------------------------------------------------------------------


async def test_without_the_option_nothing_is_written(traced: Cluster, topic: str) -> None:
    await traced.make_topic(topic)

    async with producer_of(traced, trace=False) as producer:
        sent = await producer.send(Message(topic, b"x"))

    assert producer.trace_counts is None
    with pytest.raises(MessageNotFoundError, match="trace=True"):
        await search(traced, sent.message_id)


async def test_a_missing_trace_topic_fails_no_send_and_is_logged_once(
    cluster: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(autoCreateTopicEnable="false")
    await cluster.make_topic(topic)

    with caplog.at_level(logging.WARNING, "orbitmq.client"):
        async with producer_of(cluster, trace_batch_size=1) as producer:
            for _ in range(20):
                await producer.send(Message(topic, b"x"))

    (record,) = [each for each in caplog.records if each.name.startswith("orbitmq.client")]
    assert "no traces are written, as their topic is missing" in record.getMessage()
    assert "traceTopicEnable=true" in record.getMessage()
    assert producer.trace_counts is not None
    assert producer.trace_counts.written == 0
    assert producer.trace_counts.failed + producer.trace_counts.dropped == 20
    with pytest.raises(TopicMissingError, match="traceTopicEnable=true"):
        await search(cluster, "anything")


async def test_records_that_find_too_many_waiting_are_dropped_and_counted(
    traced: Cluster, topic: str
) -> None:
    await traced.make_topic(topic)
    options = {"trace_pending_max": 5, "trace_batch_size": 100, "trace_interval_ms": 600_000}

    async with producer_of(traced, **options) as producer:
        for _ in range(8):
            await producer.send(Message(topic, b"x"))
        assert producer.trace_counts is not None
        assert producer.trace_counts.dropped == 3

    assert producer.trace_counts.written == 5


async def test_few_records_are_sent_when_the_interval_is_over(traced: Cluster, topic: str) -> None:
    await traced.make_topic(topic)

    async with producer_of(traced, trace_interval_ms=10) as producer:
        await producer.send(Message(topic, b"x"))
        counts = producer.trace_counts
        assert counts is not None
        await until(lambda: counts.written == 1)


async def test_a_stop_waits_for_traces_only_so_long(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)
    clock = ManualClock()
    producer = producer_of(cluster, clock=clock, trace_close_ms=500, trace_topic="gone")
    await producer.start()
    await producer.send(Message(topic, b"x"))
    await cluster.stop_broker()

    stopping = asyncio.create_task(producer.stop())
    await pass_time(clock, stopping.done)

    assert producer.trace_counts is not None
    assert producer.trace_counts.written == 0


async def test_a_malformed_trace_is_named_and_hides_no_other(traced: Cluster, topic: str) -> None:
    await traced.make_topic(topic)
    async with producer_of(traced) as producer:
        sent = await producer.send(Message(topic, b"x"))
    async with Producer("vandal", namesrv=traced.namesrv) as vandal:
        bad = await vandal.send(Message(TRACE_TOPIC, b"Pub\x01soon\x02", keys=sent.message_id))

    found = await search(traced, sent.message_id)

    assert results(found.journeys[0]) == [(StepKind.SENT, "ok")]
    assert found.malformed_count == 1
    assert found.malformed[0].trace_message_id == bad.offset_message_id
    assert "'soon' is no number" in found.malformed[0].reason


async def test_several_messages_with_one_key_have_a_journey_each(
    traced: Cluster, topic: str
) -> None:
    await traced.make_topic(topic)
    async with producer_of(traced, trace_batch_size=1) as producer:
        sent = [await producer.send(Message(topic, b"x", keys="same")) for _ in range(3)]

    found = await search(traced, "same")

    assert [each.message_id for each in found.journeys] == [each.message_id for each in sent]


async def test_a_producer_whose_stop_is_cancelled_leaves_nothing_behind(
    traced: Cluster, topic: str
) -> None:
    await traced.make_topic(topic)
    clock = ManualClock()
    producer = producer_of(traced, clock=clock, trace_topic=topic, trace_close_ms=60_000)
    await producer.start()
    await producer.send(Message(topic, b"x", keys="k"))
    producer._tracing.add(_RECORD)  # type: ignore[union-attr]  # it has one
    await traced.kill_broker()

    stopping = asyncio.create_task(producer.stop())
    await settle()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping

    assert producer.trace_counts is not None
    assert producer.trace_counts.written == 0


@pytest.mark.parametrize("text", ["", " "])
async def test_a_search_for_nothing_is_refused(traced: Cluster, text: str) -> None:
    with pytest.raises(SettingsError, match="no id and no key"):
        await search(traced, text)


def test_a_trace_topic_must_have_a_topic_s_name() -> None:
    with pytest.raises(NameRuleError, match="my topic"):
        Producer("shop", trace_topic="my topic")
