"""Our blocking clients at our broker and at official ones: the same calls, without asyncio."""

from __future__ import annotations

import threading

import pytest

from orbitmq import client
from orbitmq.client import Message, ReceivedMessage, SendResult, SendStatus
from tests.interop.python_trials import PATIENCE_MS, Site, numbered, sorted_bodies
from tests.interop.timeouts import CLIENT_TIMEOUT_S

pytestmark = pytest.mark.interop

MESSAGES = 40
RECEIVE_TIMEOUT_S = CLIENT_TIMEOUT_S


class Inbox:
    """A plain listener, called in threads, that lets a test wait."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.threads: set[int] = set()
        self._more = threading.Condition()

    def take(self, message: ReceivedMessage) -> None:
        with self._more:
            self.messages.append(message)
            self.threads.add(threading.get_ident())
            self._more.notify_all()

    def wait(self, count: int) -> list[ReceivedMessage]:
        with self._more:
            assert self._more.wait_for(
                lambda: len(self.messages) >= count, timeout=RECEIVE_TIMEOUT_S
            ), f"{len(self.messages)} of {count} came"
            return list(self.messages)


def producer_of(site: Site, topic: str) -> client.Producer:
    return client.Producer(
        f"producers-{topic}", namesrv=site.name_server, send_timeout_ms=PATIENCE_MS
    )


@pytest.mark.scenario("site", "blocking: every form of send, push in threads")
def test_blocking_producer_and_push_consumer(site: Site, new_topic: str) -> None:
    site.broker.create_topic(new_topic)
    inbox = Inbox()
    told: list[SendResult] = []
    answered = threading.Event()

    def note(result: SendResult) -> None:
        told.append(result)
        answered.set()

    with producer_of(site, new_topic) as producer:
        (queue, *_) = producer.queues(new_topic)
        results = [
            producer.send(Message(new_topic, b"plain")),
            producer.send(Message(new_topic, b"chosen"), queue=queue),
            producer.send_async(Message(new_topic, b"future")).result(RECEIVE_TIMEOUT_S),
            producer.send([Message(new_topic, b"batch 0"), Message(new_topic, b"batch 1")]),
        ]
        producer.send_async(Message(new_topic, b"called back"), on_success=note)
        producer.send_oneway(Message(new_topic, b"one-way"))
        assert answered.wait(RECEIVE_TIMEOUT_S)
    consumer = client.PushConsumer(
        f"group-{new_topic}",
        on_message=inbox.take,
        namesrv=site.name_server,
        consume_from="first",
    )
    consumer.subscribe(new_topic)
    with consumer:
        received = inbox.wait(7)

    assert {result.status for result in (*results, *told)} == {SendStatus.OK}
    assert sorted_bodies(received) == sorted(
        [b"plain", b"chosen", b"future", b"batch 0", b"batch 1", b"called back", b"one-way"]
    )
    ids = [one for result in (*results, *told) for one in result.message_id.split(",")]
    assert set(ids) < {message.message_id for message in received}
    assert threading.get_ident() not in inbox.threads


@pytest.mark.scenario("site", "blocking: lite pull and pull; resumes where its group stopped")
def test_blocking_pull_consumers(site: Site, new_topic: str) -> None:
    site.broker.create_topic(new_topic)
    bodies = numbered(MESSAGES)
    with producer_of(site, new_topic) as producer:
        for body in bodies[: MESSAGES // 2]:
            producer.send(Message(new_topic, body))
        first = _polled(site, new_topic, MESSAGES // 2)
        for body in bodies[MESSAGES // 2 :]:
            producer.send(Message(new_topic, body))
        second = _polled(site, new_topic, MESSAGES // 2)
    with client.PullConsumer(f"pullers-{new_topic}", namesrv=site.name_server) as puller:
        queues = puller.queues(new_topic)
        pulled = [message for queue in queues for message in puller.pull(queue, "*", 0).messages]

    assert sorted_bodies(first) == sorted(bodies[: MESSAGES // 2])
    assert sorted_bodies(second) == sorted(bodies[MESSAGES // 2 :])
    assert sorted_bodies(pulled) == sorted(bodies)


def _polled(site: Site, topic: str, count: int) -> list[ReceivedMessage]:
    consumer = client.LitePullConsumer(
        f"group-{topic}", namesrv=site.name_server, consume_from="first"
    )
    consumer.subscribe(topic)
    received: list[ReceivedMessage] = []
    with consumer:
        for _ in range(RECEIVE_TIMEOUT_S * 2):
            received += consumer.poll(timeout_ms=500)
            if len(received) >= count:
                break
        consumer.commit()
    return received
