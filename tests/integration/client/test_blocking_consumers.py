"""Blocking consumers against a real broker.

The broker runs on the loop of the test, so everything that blocks runs in a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from orbitmq.client import (
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    ReceivedMessage,
    SendResult,
    SendStatus,
)
from tests.integration.client.conftest import Cluster

WAIT_SECONDS = 20

T = TypeVar("T")


async def blocking(action: Callable[[], T]) -> T:
    """Do in a thread what would keep the broker from answering."""
    return await asyncio.wait_for(asyncio.to_thread(action), WAIT_SECONDS)


def own_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("orbitmq-")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    assert own_threads() == []
    yield
    assert own_threads() == []


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


async def test_every_form_of_send_arrives(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=2)

    def work() -> list[bytes]:
        with Producer(namesrv=cluster.namesrv) as producer:
            queues = producer.queues(topic)
            assert len(queues) == 2
            producer.send(Message(topic, b"plain"))
            batch = producer.send([Message(topic, b"batch 1"), Message(topic, b"batch 2")])
            assert len(batch.message_id.split(",")) == 2
            to_queue = producer.send(Message(topic, b"queue"), queue=queues[1])
            assert to_queue.queue == queues[1]
            selected = producer.send(
                Message(topic, b"selector"),
                selector=lambda all_queues, _, number: all_queues[number],
                argument=0,
            )
            assert selected.queue == queues[0]
            producer.send_async(Message(topic, b"async")).result(WAIT_SECONDS)
            producer.send_oneway(Message(topic, b"oneway"))
            # A send on the same connection arrives later than what needs no answer.
            for queue in queues:
                producer.send(Message(topic, b"last"), queue=queue)
        bodies: list[bytes] = []
        with PullConsumer(group, namesrv=cluster.namesrv) as consumer:
            for queue in consumer.queues(topic):
                result = consumer.pull(queue, "*", consumer.min_offset(queue))
                bodies += [message.body for message in result.messages]
        return bodies

    bodies = await blocking(work)

    assert sorted(bodies) == [
        b"async",
        b"batch 1",
        b"batch 2",
        b"last",
        b"last",
        b"oneway",
        b"plain",
        b"queue",
        b"selector",
    ]


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
            assert consumer.poll(10_000, max_messages=1)[0].body == b"1"
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
