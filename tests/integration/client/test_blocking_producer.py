"""Blocking producers against a real broker: sends, callbacks, threads, misuse.

The broker runs on the loop of the test, so everything that blocks runs in a thread.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from orbitmq.client import (
    Message,
    Producer,
    PullConsumer,
    SendResult,
    SendStatus,
)
from orbitmq.client.keywords import ClientKeywords
from orbitmq.errors import MessageError, OrbitError, StateError
from tests.integration.client.conftest import Cluster
from tests.integration.client.threads import WAIT_SECONDS, blocking, no_thread_is_left

__all__ = ["no_thread_is_left"]

# --- sends --------------------------------------------------------------------------------------


async def test_every_form_of_send_is_answered_and_arrives(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=2)

    def work() -> list[bytes]:
        with Producer(namesrv=cluster.namesrv) as producer:
            queues = producer.queues(topic)
            assert len(queues) == 2
            assert producer.send(Message(topic, b"plain")).status is SendStatus.OK
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
            later = producer.send_async(Message(topic, b"async")).result(WAIT_SECONDS)
            assert later.status is SendStatus.OK
            producer.send_oneway(Message(topic, b"oneway"))
            # A send on the same connection arrives after the one-way send.
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


async def test_callbacks_run_in_threads_and_may_send_again(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)

    def work() -> tuple[str, SendResult]:
        done: Future[tuple[str, SendResult]] = Future()

        with Producer(namesrv=cluster.namesrv) as producer:

            def send_again(_: SendResult) -> None:
                name = threading.current_thread().name
                done.set_result((name, producer.send(Message(topic, b"again"))))

            producer.send_async(Message(topic, b"first"), on_success=send_again)
            return done.result(WAIT_SECONDS)

    thread, result = await blocking(work)

    assert thread.startswith("orbitmq-sent")
    assert result.status is SendStatus.OK


async def test_a_failure_reaches_its_callback_and_the_future(cluster: Cluster) -> None:
    def work() -> tuple[BaseException | None, BaseException]:
        failed: Future[BaseException] = Future()
        with Producer(namesrv=cluster.namesrv) as producer:
            future = producer.send_async(Message("orders", b""), on_failure=failed.set_result)
            return future.exception(WAIT_SECONDS), failed.result(WAIT_SECONDS)

    through_future, to_callback = await blocking(work)

    assert isinstance(through_future, MessageError)
    assert to_callback is through_future


async def test_stop_waits_for_the_callbacks_of_sends(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)
    sent: list[SendResult] = []

    def work() -> None:
        with Producer(namesrv=cluster.namesrv) as producer:
            for number in range(50):
                producer.send_async(Message(topic, f"{number}"), on_success=sent.append)

    await blocking(work)

    assert len(sent) == 50


async def test_many_threads_share_a_producer(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)
    ids: list[str] = []

    def work() -> None:
        with Producer(namesrv=cluster.namesrv) as producer:

            def send() -> None:
                ids.extend(producer.send(Message(topic, b"x")).message_id for _ in range(20))

            threads = [threading.Thread(target=send) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    await blocking(work)

    assert len(set(ids)) == 100


async def test_small_messages_of_many_threads_go_in_batches(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)

    def work() -> list[SendResult]:
        with Producer(namesrv=cluster.namesrv, accumulate=True) as producer:
            futures = [producer.send_async(Message(topic, f"{n}")) for n in range(20)]
            return [future.result(WAIT_SECONDS) for future in futures]

    results = await blocking(work)

    assert sorted(result.queue_offset for result in results) == [*range(20)]
    assert len({result.message_id for result in results}) == 20


# --- bad input ----------------------------------------------------------------------------------


def test_a_producer_that_is_not_started_says_so() -> None:
    producer = Producer("shop", namesrv="127.0.0.1:1")

    with pytest.raises(StateError, match="the producer of group 'shop' is not started"):
        producer.send(Message("orders", b"x"))
    with pytest.raises(StateError, match="is not started"):
        producer.send_async(Message("orders", b"x"))


def test_a_missing_name_server_is_reported_in_time() -> None:
    with (
        Producer(namesrv="127.0.0.1:1") as producer,
        pytest.raises(OrbitError, match=r"127\.0\.0\.1:1"),
    ):
        producer.send(Message("orders", b"x"), timeout_ms=10_000)


async def test_a_selector_that_calls_a_blocking_client_gets_an_error(
    cluster: Cluster, topic: str
) -> None:
    await cluster.make_topic(topic)

    def work() -> None:
        with Producer(namesrv=cluster.namesrv) as producer:

            def select(queues: object, message: object, argument: object) -> object:
                del queues, message, argument
                return producer.queues(topic)[0]

            with pytest.raises(StateError, match="would wait for itself"):
                producer.send(Message(topic, b"x"), selector=select)  # type: ignore[arg-type]  # wrong use

    await blocking(work)


async def test_two_clients_of_one_name_share_an_instance(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)

    def work() -> None:
        options: ClientKeywords = {"namesrv": cluster.namesrv, "instance_name": "shared"}
        with Producer("one", **options) as first, Producer("two", **options) as second:
            assert first.client_id == second.client_id
            first.stop()
            second.send(Message(topic, b"x"))

    await blocking(work)
