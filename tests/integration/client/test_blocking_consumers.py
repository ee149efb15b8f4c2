"""Blocking consumers against a real broker.

The broker runs on the loop of the test, so everything that blocks runs in a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sized
from concurrent.futures import Future

import pytest

from orbitmq.client import (
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    SendStatus,
)
from orbitmq.errors import SettingsError
from tests.integration.client.conftest import Cluster
from tests.integration.client.threads import WAIT_SECONDS, blocking, no_thread_is_left

__all__ = ["no_thread_is_left"]


async def test_a_message_is_sent_and_read_back(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic)

    def work() -> tuple[SendResult, list[ReceivedMessage]]:
        with Producer(namesrv=cluster.namesrv) as producer:
            result = producer.send(Message(topic, "größe 🚀", tags="paid", keys=["one", "two"]))
        with PullConsumer(group, namesrv=cluster.namesrv) as consumer:
            pulled = consumer.pull(result.queue, "*", result.queue_offset)
        return result, pulled.messages

    result, (message,) = await blocking(work)

    assert result.status is SendStatus.OK
    assert message.body.decode() == "größe 🚀"
    assert (message.topic, message.tags, message.keys) == (topic, "paid", ("one", "two"))
    assert message.message_id == result.message_id
    assert message.offset_message_id == result.offset_message_id


async def test_a_lite_pull_consumer_polls_seeks_and_commits(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)

    def work() -> None:
        with Producer(namesrv=cluster.namesrv) as producer:
            for number in range(5):
                producer.send(Message(topic, f"{number}"))
        with LitePullConsumer(group, namesrv=cluster.namesrv, auto_commit=False) as consumer:
            (queue,) = consumer.queues(topic)
            consumer.assign([queue])
            assert consumer.assignment() == [queue]
            consumer.seek_to_begin(queue)
            first = [message.body for message in iter_some(consumer, 3)]
            assert first == [b"0", b"1", b"2"]
            assert consumer.position(queue) == 3
            consumer.commit()
            assert consumer.committed(queue) == 3
            consumer.seek(queue, 1)
            assert consumer.poll(WAIT_SECONDS * 1000, max_messages=1)[0].body == b"1"
            consumer.seek_to_end(queue)
            consumer.pause([queue])
            consumer.resume([queue])
            assert consumer.poll(1) == []

    await blocking(work)


def iter_some(consumer: LitePullConsumer, count: int) -> list[ReceivedMessage]:
    """Take messages one by one, as a for loop does."""
    taken: list[ReceivedMessage] = []
    for message in consumer:
        taken.append(message)
        if len(taken) == count:
            break
    return taken


async def test_iteration_ends_when_another_thread_stops_the_consumer(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    assigned = threading.Event()
    names: list[str] = []

    def heard(_: str, __: object) -> None:
        names.append(threading.current_thread().name)
        assigned.set()

    consumer = LitePullConsumer(group, namesrv=cluster.namesrv, on_assigned=heard)

    def work() -> list[ReceivedMessage]:
        consumer.subscribe(topic)
        consumer.start()
        return list(consumer)

    reading = asyncio.create_task(blocking(work))
    await blocking(lambda: assigned.wait(WAIT_SECONDS))

    await blocking(consumer.stop)

    assert await reading == []
    assert names[0].startswith("orbitmq-queues")


async def test_a_plain_listener_gets_messages_and_may_send(
    cluster: Cluster, topic: str, group: str
) -> None:
    answers = f"{topic}-answers"
    for name in (topic, answers):
        await cluster.make_topic(name, queues=1)

    def work() -> tuple[bytes, str]:
        answered: Future[tuple[SendResult, str]] = Future()
        with Producer(namesrv=cluster.namesrv) as producer:

            def answer(message: ReceivedMessage) -> None:
                name = threading.current_thread().name
                result = producer.send(Message(answers, b"got " + message.body))
                answered.set_result((result, name))

            consumer = PushConsumer(
                group,
                on_message=answer,
                namesrv=cluster.namesrv,
                consume_from="first",
            )
            consumer.subscribe(topic)
            producer.send(Message(topic, b"one"))
            with consumer:
                result, thread = answered.result(WAIT_SECONDS)
                assert [queue.topic for queue in consumer.queues if queue.topic == topic]
                consumer.concurrency = 3
                assert consumer.concurrency == 3
                consumer.pause()
                consumer.resume()
            with PullConsumer(f"{group}-answers", namesrv=cluster.namesrv) as reader:
                (message,) = reader.pull(result.queue, "*", result.queue_offset).messages
        return message.body, thread

    body, thread = await blocking(work)

    assert body == b"got one"
    assert thread != "orbitmq-loop"


async def test_a_listener_for_changed_queues_runs_in_a_thread(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=2)

    def work() -> tuple[str, int]:
        heard: Future[tuple[str, int]] = Future()

        def changed(changed_topic: str, _: object, own: Sized) -> None:
            if changed_topic == topic and not heard.done():
                # It may ask blocking clients.
                assert consumer.concurrency
                consumer.pause()
                heard.set_result((threading.current_thread().name, len(own)))

        consumer = PushConsumer(
            group,
            on_message=lambda _: None,
            on_queues_changed=changed,
            namesrv=cluster.namesrv,
        )
        consumer.subscribe(topic)
        with consumer:
            return heard.result(WAIT_SECONDS)

    thread, own = await blocking(work)

    assert thread.startswith("orbitmq-queues")
    assert own == 2


async def test_an_async_listener_runs_on_the_loop_in_the_background(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)

    def work() -> tuple[str, bytes]:
        heard: Future[tuple[str, bytes]] = Future()

        async def listen(message: ReceivedMessage) -> None:
            heard.set_result((threading.current_thread().name, message.body))

        consumer = PushConsumer(
            group, on_message=listen, namesrv=cluster.namesrv, consume_from="first"
        )
        consumer.subscribe(topic)
        with Producer(namesrv=cluster.namesrv) as producer, consumer:
            producer.send(Message(topic, b"one"))
            return heard.result(WAIT_SECONDS)

    assert await blocking(work) == ("orbitmq-loop", b"one")


async def test_a_consumer_without_listener_is_refused_where_it_is_made(group: str) -> None:
    with pytest.raises(SettingsError, match="a push consumer takes one listener"):
        PushConsumer(group)


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_listener_may_stop_its_consumer(
    cluster: Cluster, topic: str, group: str, *, ordered: bool
) -> None:
    await cluster.make_topic(topic, queues=1)

    def work() -> tuple[int, int | None]:
        received: list[ReceivedMessage] = []
        stopped = threading.Event()

        def listen(message: ReceivedMessage) -> None:
            received.append(message)
            consumer.stop()
            stopped.set()

        consumer = PushConsumer(
            group,
            on_message=listen,
            ordered=ordered,
            namesrv=cluster.namesrv,
            consume_from="first",
            concurrency=1,
        )
        consumer.subscribe(topic)
        with Producer(namesrv=cluster.namesrv) as producer:
            sent = producer.send(Message(topic, b"one"))
        with consumer:
            assert stopped.wait(WAIT_SECONDS)
        with PullConsumer(group, namesrv=cluster.namesrv) as reader:
            return len(received), reader.committed(sent.queue)

    assert await blocking(work) == (1, 1)
