"""OpenTelemetry spans of clients at a real broker, as its SDK collects them."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from orbitmq.client import Admin as BlockingAdmin
from orbitmq.client import Message, ReceivedMessage
from orbitmq.client import Producer as BlockingProducer
from orbitmq.client import PushConsumer as BlockingPushConsumer
from orbitmq.client.aio import LitePullConsumer, Producer
from orbitmq.client.core.consuming.consume_results import RETRY_LATER
from orbitmq.embedded import Cluster as EmbeddedCluster
from orbitmq.errors import MessageError, OrbitError, PackageMissingError
from tests.integration.client.conftest import Cluster
from tests.integration.client.consuming import Seen, consumer_of

POLL_MS = 60_000
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """The spans that were made since the test began."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace.set_tracer_provider(provider)
        self.tracer = provider.get_tracer("the application")

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        (only,) = [span for span in self.all() if span.name == name]
        return only

    def clear(self) -> None:
        self._exporter.clear()


@pytest.fixture(scope="session")
def all_spans() -> Spans:
    # A process has one provider, once and for all.
    return Spans()


@pytest.fixture
def spans(all_spans: Spans) -> Iterator[Spans]:
    all_spans.clear()
    yield all_spans
    all_spans.clear()


def producer_of(cluster: Cluster, **options: Any) -> Producer:
    return Producer("shop", **{"namesrv": cluster.namesrv, "opentelemetry": True, **options})


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


# --- producers ------------------------------------------------------------------------------------


async def test_a_send_is_a_span_by_the_conventions(
    cluster: Cluster, topic: str, spans: Spans
) -> None:
    await cluster.make_topic(topic)

    async with producer_of(cluster) as producer:
        with spans.tracer.start_as_current_span("checkout"):
            sent = await producer.send(Message(topic, b"12345", tags="paid", keys=["k1", "k2"]))
        client_id = producer.client_id

    span = spans.one(f"send {topic}")
    assert span.kind is SpanKind.PRODUCER
    assert span.parent is not None
    assert span.parent.span_id == span_id(spans.one("checkout"))
    host, port = cluster.address().split(":")
    assert attributes(span) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": f"broker-a:{sent.queue.queue_id}",
        "messaging.client.id": client_id,
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "server.address": host,
        "server.port": int(port),
    }
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"delay_level": 2}, {"type": "delay", "delay_time_level": 2}),
        ({"sharding_key": "customer-7"}, {"type": "fifo", "group": "customer-7"}),
    ],
)
async def test_the_kind_of_a_message_is_among_the_attributes(
    cluster: Cluster, topic: str, spans: Spans, message: dict[str, Any], expected: dict[str, Any]
) -> None:
    await cluster.make_topic(topic)

    async with producer_of(cluster) as producer:
        await producer.send(Message(topic, b"x", **message))

    found = attributes(spans.one(f"send {topic}"))
    for name, value in expected.items():
        assert found[f"messaging.rocketmq.message.{name}"] == value


async def test_every_form_of_a_send_has_one_span(
    cluster: Cluster, topic: str, spans: Spans
) -> None:
    await cluster.make_topic(topic)

    async with producer_of(cluster) as producer:
        # The first send waits for the route; a large body is compressed in a thread.
        await producer.send_async(Message(topic, b"1"))
        await producer.send_async(Message(topic, bytes(100_000)))
        await producer.send_oneway(Message(topic, b"3"))
        await producer.send([Message(topic, b"4"), Message(topic, b"5")])

    found = [span for span in spans.all() if span.name == f"send {topic}"]
    assert len(found) == 4
    assert attributes(found[-1])["messaging.batch.message_count"] == 2


async def test_a_failed_send_is_an_error(cluster: Cluster, topic: str, spans: Spans) -> None:
    await cluster.make_topic(topic)
    async with producer_of(cluster, retries=0) as producer:
        await producer.send(Message(topic, b"x"))
        spans.clear()
        await cluster.kill_broker()
        with pytest.raises(OrbitError) as raised:
            await producer.send(Message(topic, b"x"), timeout_ms=2_000)
        for bad in (Message(topic, b""), "text", [], [None]):
            with pytest.raises((MessageError, TypeError)):
                await producer.send(bad)  # type: ignore[arg-type]  # what users try

    failed = next(span for span in spans.all() if span.name == f"send {topic}")
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(failed)["error.type"] == type(raised.value).__name__


async def test_batched_messages_have_spans_of_their_own_which_the_batch_links_to(
    cluster: Cluster, topic: str, spans: Spans
) -> None:
    await cluster.make_topic(topic, queues=1)

    async with producer_of(cluster, accumulate=True) as producer:
        first = producer.send(Message(topic, b"1"))
        with spans.tracer.start_as_current_span("checkout") as checkout:
            await producer.send(Message(topic, b"2"))
        await first

    created = [span for span in spans.all() if span.name == f"create {topic}"]
    sends = [span for span in spans.all() if span.name == f"send {topic}"]
    assert {span.kind for span in sends} == {SpanKind.CLIENT}
    linked = {link.context.span_id for span in sends for link in span.links}
    assert linked == {span_id(span) for span in created}
    assert checkout.get_span_context().span_id in {
        span.parent.span_id for span in created if span.parent is not None
    }


# --- consumers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "awaited"])
async def test_a_listener_runs_in_a_span_below_that_of_the_send(
    cluster: Cluster, topic: str, group: str, spans: Spans, kind: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen, inside = Seen(), []

    def look(message: ReceivedMessage) -> None:
        inside.append((trace.get_current_span(), baggage.get_baggage("user")))
        seen.add(message)

    async def look_awaited(message: ReceivedMessage) -> None:
        look(message)

    with spans.tracer.start_as_current_span("start of the consumer"):
        listener = look if kind == "plain" else look_awaited
        consumer = consumer_of(cluster, group, on_message=listener, opentelemetry=True)
        consumer.subscribe(topic)
        await consumer.start()
    try:
        async with producer_of(cluster) as producer:
            token = context.attach(baggage.set_baggage("user", "ann"))
            sent = await producer.send(Message(topic, b"x", keys="k"))
            context.detach(token)
            await seen.count(1)
    finally:
        await consumer.stop()

    span, send = spans.one(f"process {topic}"), spans.one(f"send {topic}")
    assert span.kind is SpanKind.CONSUMER
    assert span.parent is not None
    assert span.parent.span_id == span_id(send)
    assert attributes(span) | {"messaging.client.id": ""} == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "broker-a:0",
        "messaging.client.id": "",
        "messaging.consumer.group.name": group,
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 1,
        "messaging.rocketmq.consumption_model": "clustering",
        "messaging.rocketmq.message.keys": ("k",),
    }
    assert [(each.get_span_context().span_id, user) for each, user in inside] == [
        (span_id(span), "ann")
    ]


async def test_a_call_with_several_messages_is_linked_to_their_sends(
    cluster: Cluster, topic: str, group: str, spans: Spans
) -> None:
    await cluster.make_topic(topic, queues=1)
    async with producer_of(cluster) as producer:
        for number in range(3):
            await producer.send(Message(topic, str(number)))
    sends = {span_id(span) for span in spans.all()}
    seen = Seen()

    async def take(messages: list[ReceivedMessage]) -> None:
        for message in messages:
            seen.add(message)

    consumer = consumer_of(
        cluster, group, on_messages=take, consume_batch_size=10, opentelemetry=True
    )
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(3)

    found = [span for span in spans.all() if span.name == f"process {topic}"]
    # The first pull may return fewer of them.
    linked = {link.context.span_id for span in found for link in span.links}
    parents = {span.parent.span_id for span in found if span.parent is not None}
    assert linked | parents == sends


async def test_a_listener_that_fails_is_an_error(
    cluster: Cluster, topic: str, group: str, spans: Spans
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()

    def fail(message: ReceivedMessage) -> object:
        seen.add(message)
        if message.body == b"raise":
            raise ValueError("not today")
        return RETRY_LATER

    consumer = consumer_of(cluster, group, on_message=fail, opentelemetry=True, concurrency=1)
    consumer.subscribe(topic)
    async with producer_of(cluster) as producer, consumer:
        await producer.send(Message(topic, b"raise"))
        await producer.send(Message(topic, b"return"))
        await seen.count(2)

    raised, returned = [span for span in spans.all() if span.name == f"process {topic}"]
    assert (attributes(raised)["error.type"], raised.status.description) == (
        "ValueError",
        "not today",
    )
    assert (attributes(returned)["error.type"], returned.status.status_code) == (
        "FAILED",
        StatusCode.ERROR,
    )


async def test_a_poll_is_linked_to_the_sends(cluster: Cluster, topic: str, spans: Spans) -> None:
    await cluster.make_topic(topic, queues=1)
    async with producer_of(cluster) as producer:
        await producer.send(Message(topic, b"x"))
    polling = LitePullConsumer(
        "polling", namesrv=cluster.namesrv, consume_from="first", opentelemetry=True
    )
    polling.subscribe(topic)
    async with polling:
        assert len(await polling.poll(POLL_MS)) == 1

    span = spans.one(f"poll {topic}")
    assert span.kind is SpanKind.CLIENT
    assert attributes(span)["messaging.operation.type"] == "receive"
    assert [link.context.span_id for link in span.links] == [span_id(spans.one(f"send {topic}"))]


def test_blocking_clients_take_the_caller_s_span_and_set_the_listener_s(spans: Spans) -> None:
    arrived = threading.Event()

    def forward(message: ReceivedMessage) -> None:
        if message.topic == "orders":
            producer.send(Message("parcels", message.body))
        else:
            arrived.set()

    with EmbeddedCluster(in_memory=True) as cluster:
        keywords: dict[str, Any] = {"namesrv": cluster.namesrv, "opentelemetry": True}
        consumer = BlockingPushConsumer(
            "billing", on_message=forward, consume_from="first", **keywords
        )
        with BlockingAdmin(namesrv=cluster.namesrv) as admin:
            for name in ("orders", "parcels"):
                admin.topics.create(name, queues=1)
                consumer.subscribe(name)
        with BlockingProducer("shop", **keywords) as producer, consumer:
            with spans.tracer.start_as_current_span("checkout"):
                producer.send(Message("orders", b"x"))
            assert arrived.wait(60)

    way = ["checkout", "send orders", "process orders", "send parcels", "process parcels"]
    for above, below in itertools.pairwise(way):
        parent = spans.one(below).parent
        assert parent is not None
        assert parent.span_id == span_id(spans.one(above)), below


# --- contexts that cannot be sent -----------------------------------------------------------------


async def test_a_message_keeps_the_context_that_its_user_gave_it(
    cluster: Cluster, topic: str, spans: Spans
) -> None:
    await cluster.make_topic(topic, queues=1)
    async with producer_of(cluster) as producer:
        await producer.send(Message(topic, b"x", properties={"traceparent": PARENT}))

    span = spans.one(f"send {topic}")
    assert span.kind is SpanKind.CLIENT
    assert [f"{link.context.span_id:x}" for link in span.links] == ["b7ad6b7169203331"]


async def test_a_message_without_room_for_a_context_is_sent_without_it(
    cluster: Cluster, topic: str, spans: Spans
) -> None:
    await cluster.make_topic(topic, queues=1)
    async with producer_of(cluster) as producer:
        full = Message(topic, b"x", properties={"large": "x" * 32_600})
        await producer.send(full)

    assert spans.one(f"send {topic}").status.status_code is StatusCode.UNSET


async def test_without_the_option_there_are_no_spans_and_no_properties(
    cluster: Cluster, topic: str, group: str, spans: Spans
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.plain)
    consumer.subscribe(topic)
    async with producer_of(cluster, opentelemetry=False) as producer, consumer:
        await producer.send(Message(topic, b"x"))
        await seen.count(1)

    assert spans.all() == []
    assert "traceparent" not in seen.messages[0].properties


def test_without_the_package_the_option_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(PackageMissingError, match=r"pip install 'orbitmq\[opentelemetry\]'"):
        Producer("shop", opentelemetry=True)
