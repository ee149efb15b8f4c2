"""The push consumer on a real broker: what the listener gets, and what is committed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from orbitmq.client.aio.push.consume_hooks import CallOutcome, ConsumeContext
from orbitmq.client.aio.push.push_consumer import PushConsumer
from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.core.subscriptions import by_sql
from orbitmq.errors import (
    OptionValueError,
    RemoteError,
    SettingsError,
    StateError,
    TransportError,
)
from orbitmq.model.messages import Message
from orbitmq.store.message_store import MessageStore
from tests import leftovers
from tests.integration.client.conftest import WAIT_SECONDS, Cluster
from tests.integration.client.consuming import (
    Seen,
    committed,
    consumer_of,
    ends,
    numbered,
    send,
    until_committed,
)
from tests.waiting import until


@pytest.mark.parametrize("kind", ["plain", "awaited"])
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_messages_come_to_the_listener_and_are_committed_on_stop(
    cluster: Cluster, topic: str, group: str, kind: str, *, ordered: bool
) -> None:
    await cluster.make_topic(topic)
    seen = Seen()
    consumer = consumer_of(
        cluster, group, on_message=getattr(seen, kind), ordered=ordered, persist_interval_ms=60_000
    )
    consumer.subscribe(topic)
    await send(cluster, topic, *numbered(10))

    async with consumer:
        await seen.count(10)
        await send(cluster, topic, *numbered(20)[10:])
        await seen.count(20)

    assert sorted(seen.bodies) == sorted(numbered(20))
    assert await committed(cluster, group, topic) == await ends(cluster, topic)


async def test_ordered_messages_of_a_queue_come_in_order(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.plain, ordered=True)
    consumer.subscribe(topic)
    async with Producer(namesrv=cluster.namesrv) as producer:
        queues = await producer.queues(topic)
        for number in range(200):
            await producer.send(Message(topic, b"%d" % number), queue=queues[number % 4])

    async with consumer:
        await seen.count(200)

    for queue_id in range(4):
        of_queue = [int(m.body) for m in seen.messages if m.queue_id == queue_id]
        assert of_queue == sorted(of_queue)
        assert len(of_queue) == 50


async def test_a_listener_of_lists_gets_up_to_the_batch_size(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(50))
    seen = Seen()
    sizes: list[int] = []

    def listen(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))
        for message in messages:
            seen.add(message)

    consumer = consumer_of(cluster, group, on_messages=listen, consume_batch_size=8)
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(50)

    assert sorted(seen.bodies) == sorted(numbered(50))
    assert max(sizes) == 8


async def test_a_namespace_is_not_seen_by_the_listener(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.stop_broker()
    await cluster.start_broker(messageDelayLevel=" ".join(["0s"] * 18))
    await cluster.make_topic(f"tenant%{topic}", queues=1)
    async with Producer(namesrv=cluster.namesrv, namespace="tenant") as producer:
        await producer.send(Message(topic, b"inside"))
    seen = Seen()

    async def listen(message: ReceivedMessage) -> None:
        seen.add(message)
        if message.reconsume_times == 0:
            raise ValueError

    consumer = consumer_of(cluster, group, on_message=listen, namespace="tenant")
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(2)

    assert [message.topic for message in seen.messages] == [topic, topic]
    assert seen.messages[1].queue.topic == f"%RETRY%{group}"
    assert await committed(cluster, f"tenant%{group}", f"tenant%{topic}", queues=1) == [1]


# --- where to start -------------------------------------------------------------------------------


async def test_a_group_may_start_with_the_first_message(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    await send(cluster, topic, *numbered(5))
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited, consume_from="first")
    consumer.subscribe(topic)

    async with consumer:
        await seen.all_of(set(numbered(5)))


async def test_a_group_starts_after_the_last_message_by_default(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    # Compat: for a young queue without a commit, a broker returns the offset 0.
    consumer = consumer_of(cluster, group, on_message=seen.awaited, consume_from="last")
    consumer.subscribe(topic)

    async with consumer:
        await until(lambda: len(consumer.queues) == 2)
        await send(cluster, topic, b"after")
        await seen.all_of({b"after"})
    assert seen.bodies == [b"after"]

    await send(cluster, topic, b"between")
    again = consumer_of(cluster, group, on_message=seen.awaited, consume_from="last")
    again.subscribe(topic)
    async with again:
        await seen.all_of({b"between"})
    assert seen.bodies == [b"after", b"between"]


async def test_a_group_may_start_at_a_time(
    cluster: Cluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compat: if the first message of a queue is in memory, a new group gets everything.
    monkeypatch.setattr(MessageStore, "is_in_memory", lambda *_: False)
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    await send(cluster, topic, b"before")
    first = consumer_of(cluster, f"{group}-other", on_message=seen.awaited)
    first.subscribe(topic)
    async with first:
        await seen.count(1)
        before_ms = seen.messages[0].store_ms
        sent = 1
        while seen.messages[-1].store_ms == before_ms:
            await send(cluster, topic, b"later")
            sent += 1
            await seen.count(sent)
    later = Seen()
    consumer = consumer_of(
        cluster,
        group,
        on_message=later.awaited,
        consume_from="timestamp",
        consume_timestamp_ms=before_ms + 1,
    )
    consumer.subscribe(topic)

    async with consumer:
        await later.count(1)

    assert set(later.bodies) == {b"later"}


async def test_messages_older_than_a_group_are_not_delivered(
    cluster: Cluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MessageStore, "is_in_memory", lambda *_: False)
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, b"before")
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited, consume_from="last")
    consumer.subscribe(topic)

    async with consumer:
        await until(lambda: len(consumer.queues) == 2)
        await send(cluster, topic, b"after")
        await seen.count(1)

    assert seen.bodies == [b"after"]


# --- filters --------------------------------------------------------------------------------------


async def test_only_messages_with_subscribed_tags_are_delivered(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    # "Aa" and "BB" have the same hash, by which the broker filters.
    for tag in ("Aa", "BB", "C", "", "Aa"):
        await send(cluster, topic, f"tag {tag}".encode(), tags=tag)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic, "Aa || C")

    async with consumer:
        await seen.count(3)
        await until_committed(cluster, group, topic, [5])

    assert seen.bodies == [b"tag Aa", b"tag C", b"tag Aa"]


async def test_what_the_filter_skips_is_committed_too(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(40), tags="unwanted")
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic, "wanted")

    async with consumer:
        await until_committed(cluster, group, topic, [40])

    assert seen.bodies == []


async def test_messages_can_be_filtered_by_their_properties(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    for price in ("1", "5", "9"):
        await send(cluster, topic, price.encode(), properties={"price": price})
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic, by_sql("price > 3"))

    async with consumer:
        await seen.count(2)

    assert seen.bodies == [b"5", b"9"]


async def test_a_condition_that_the_broker_refuses_fails_the_start(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    consumer = consumer_of(cluster, group, on_message=print)
    consumer.subscribe(topic, by_sql("price >"))

    with pytest.raises(RemoteError, match="CHECK_CLIENT_CONFIG"):
        await consumer.start()


# --- while it runs --------------------------------------------------------------------------------


async def test_topics_come_and_go_while_it_runs(cluster: Cluster, topic: str, group: str) -> None:
    other = f"{topic}-other"
    await cluster.make_topic(topic, queues=1)
    await cluster.make_topic(other, queues=1)
    await send(cluster, other, b"of the other")
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)

    async with consumer:
        await until(lambda: any(queue.topic == topic for queue in consumer.queues))
        consumer.subscribe(other)
        await seen.all_of({b"of the other"})
        consumer.unsubscribe(topic)
        await until(lambda: all(queue.topic != topic for queue in consumer.queues))
        await send(cluster, topic, b"for nobody")
        await send(cluster, other, b"still")
        await seen.all_of({b"still"})

    assert b"for nobody" not in seen.bodies


async def test_another_expression_takes_effect_while_it_runs(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic, "A")

    async with consumer:
        await send(cluster, topic, b"first", tags="A")
        await seen.all_of({b"first"})
        consumer.subscribe(topic, "B")
        while b"second" not in seen.bodies:
            await send(cluster, topic, b"second", tags="B")
        await send(cluster, topic, b"unwanted", tags="A")
        await send(cluster, topic, b"third", tags="B")
        await seen.all_of({b"third"})

    assert b"unwanted" not in seen.bodies


async def test_nothing_is_pulled_while_it_is_paused(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(3))
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    consumer.pause()

    async with consumer:
        await until(lambda: len(consumer.queues) == 2)
        await send(cluster, topic, b"more")
        assert seen.bodies == []
        consumer.resume()
        await seen.count(4)


async def test_the_user_is_notified_of_changed_queues(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    heard: list[tuple[str, int, int]] = []

    async def on_queues_changed(topic: str, queues: Any, own: Any) -> None:
        heard.append((topic, len(queues), len(own)))

    consumer = consumer_of(cluster, group, on_message=print, on_queues_changed=on_queues_changed)
    consumer.subscribe(topic)
    async with consumer:
        await until(lambda: (topic, 4, 4) in heard)


class Gate:
    """A plain listener that waits until it is opened."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.lock = threading.Lock()
        self.inside = 0
        self.opened = threading.Event()

    def __call__(self, message: ReceivedMessage) -> None:
        with self.lock:
            self.inside += 1
        self.opened.wait(WAIT_SECONDS)
        self.seen.add(message)
        with self.lock:
            self.inside -= 1


async def test_concurrency_can_be_changed_while_it_runs(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    await send(cluster, topic, *numbered(30))
    gate = Gate(Seen())
    consumer = consumer_of(cluster, group, on_message=gate, concurrency=2)
    consumer.subscribe(topic)

    async with consumer:
        await until(lambda: gate.inside == 2)
        with pytest.raises(OptionValueError, match="from 1 to 1000"):
            consumer.concurrency = 0
        consumer.concurrency = 9
        await until(lambda: gate.inside == 9)
        gate.opened.set()
        await gate.seen.count(30)

    assert consumer.concurrency == 9


async def test_pulling_pauses_while_too_much_is_unfinished(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(200))
    gate = Gate(Seen())
    consumer = consumer_of(
        cluster, group, on_message=gate, pull_threshold_for_queue=10, pull_batch_size=4
    )
    consumer.subscribe(topic)

    async with consumer:
        await until(
            lambda: "pulling is paused: more than 10 messages are unfinished" in caplog.text
        )
        assert consumer._member is not None
        (held,) = [
            window.count
            for queue, window in consumer._member._windows.items()
            if queue.topic == topic
        ]
        assert 10 < held <= 14
        gate.opened.set()
        await gate.seen.count(200)

    assert sorted(gate.seen.bodies) == sorted(numbered(200))


# --- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_offsets_never_pass_a_message_whose_listener_hangs(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture, *, ordered: bool
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(10))
    seen = Seen()
    go_on = threading.Event()

    def listen(message: ReceivedMessage) -> None:
        if message.body == b"4" and not go_on.is_set():
            go_on.wait(WAIT_SECONDS)
            return
        seen.add(message)

    consumer = consumer_of(
        cluster,
        group,
        on_message=listen,
        ordered=ordered,
        await_termination_ms=100,
        stall_warning_ms=200,
    )
    consumer.subscribe(topic)
    await consumer.start()
    await seen.count(4 if ordered else 9)
    await until_committed(cluster, group, topic, [4])
    await until(lambda: "listener stalled" in caplog.text)
    await consumer.stop()

    assert f"listener stalled group={group} topic={topic} broker=broker-a queue=0 offset=4" in (
        caplog.text
    )
    assert "<locals>.listen" in caplog.text
    assert await committed(cluster, group, topic, queues=1) == [4]
    go_on.set()


async def test_stopping_waits_for_the_listener(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, b"one")
    gate = Gate(Seen())
    consumer = consumer_of(
        cluster, group, on_message=gate, await_termination_ms=WAIT_SECONDS * 1000
    )
    consumer.subscribe(topic)
    await consumer.start()
    await until(lambda: gate.inside == 1)

    stopping = asyncio.create_task(consumer.stop())
    gate.opened.set()
    await stopping

    assert await committed(cluster, group, topic, queues=1) == [1]
    await consumer.stop()


async def test_nothing_is_left_after_stop(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic)
    await send(cluster, topic, *numbered(100))
    tasks_before, threads_before = asyncio.all_tasks(), leftovers.threads()
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.plain)
    consumer.subscribe(topic)

    async with consumer:
        await seen.count(100)

    await leftovers.no_tasks_since(tasks_before)
    await leftovers.no_threads_on_loop_since(threads_before)


async def test_asyncio_debug_mode_finds_no_fault(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    # A single duration says more about the machine than about the client.
    loop.slow_callback_duration = 600
    await cluster.make_topic(topic)
    await send(cluster, topic, *numbered(50))
    for listener in ("plain", "awaited"):
        seen = Seen()
        consumer = consumer_of(cluster, f"{group}-{listener}", on_message=getattr(seen, listener))
        consumer.subscribe(topic)
        async with consumer:
            await seen.count(50)
    loop.set_debug(False)

    assert [record for record in caplog.records if record.name == "asyncio"] == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


# --- misuse ---------------------------------------------------------------------------------------


async def test_misuse_is_refused_with_a_hint(cluster: Cluster, topic: str, group: str) -> None:
    with pytest.raises(SettingsError, match="on_message takes one message"):
        consumer_of(cluster, group, on_message=print, consume_batch_size=8)
    with pytest.raises(SettingsError, match="belongs to RocketMQ itself"):
        consumer_of(cluster, "DEFAULT_CONSUMER", on_message=print)
    consumer = consumer_of(cluster, group, on_message=print)
    with pytest.raises(StateError, match="not started"):
        _ = consumer.queues
    consumer.subscribe(topic)
    await consumer.start()
    with pytest.raises(StateError, match="already started"):
        await consumer.start()
    await consumer.stop()
    with pytest.raises(StateError, match="is stopped"):
        await consumer.start()
    with pytest.raises(StateError, match="is stopped"):
        consumer.subscribe(topic)


async def test_a_consumer_without_a_subscription_does_not_start(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    with pytest.raises(StateError, match=rf"group '{group}' subscribes to no topic .*subscribe\("):
        await consumer.start()

    # It is not too late.
    consumer.subscribe(topic)
    async with consumer:
        await send(cluster, topic, b"1")
        await seen.all_of({b"1"})


async def test_two_consumers_of_a_group_need_names_of_their_own(
    cluster: Cluster, topic: str, group: str
) -> None:
    first = consumer_of(cluster, group, on_message=print, instance_name="shared")
    second = consumer_of(cluster, group, on_message=print, instance_name="shared")
    first.subscribe(topic)
    second.subscribe(topic)
    async with first:
        with pytest.raises(StateError, match=f"already has a consumer of the group '{group}'"):
            await second.start()


async def test_a_missing_name_server_fails_the_start(group: str, topic: str) -> None:
    consumer = PushConsumer(group, on_message=print, namesrv="127.0.0.1:1")
    consumer.subscribe(topic)

    with pytest.raises(TransportError, match=r"answers: 127\.0\.0\.1:1: Connection"):
        await consumer.start()


# --- hooks ----------------------------------------------------------------------------------------


async def test_hooks_are_called(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, b"one")
    seen = Seen()
    heard: list[ConsumeContext] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            """Nothing."""

        def after_consume(self, context: ConsumeContext) -> None:
            heard.append(context)

    consumer = consumer_of(cluster, group, on_message=seen.plain, hooks=[Hook()])
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(1)

    assert [(context.outcome, context.queue.topic) for context in heard] == [
        (CallOutcome.SUCCESS, topic)
    ]
