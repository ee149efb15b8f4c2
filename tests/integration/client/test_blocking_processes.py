"""Blocking clients in processes of their own: forks, pools, other event loops, exits.

Each program prints its observations; the broker runs on the loop of the test.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.client.conftest import Cluster
from tests.unit.client.scripts import run_script


async def _run(source: str, *arguments: str) -> list[str]:
    return (await asyncio.to_thread(run_script, source, *arguments)).splitlines()


async def test_after_the_stop_no_thread_and_no_socket_is_left(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)
    printed = await _run(
        """
        import gc, sys, threading
        import psutil
        from orbitmq.client import LitePullConsumer, Message, Producer, PushConsumer

        namesrv, topic = sys.argv[1:]
        process = psutil.Process()

        def left():
            return [each.name for each in threading.enumerate()], len(process.net_connections())

        for _ in range(3):
            received = threading.Event()
            consumer = PushConsumer(
                "group", on_message=lambda message: received.set(), namesrv=namesrv,
                consume_from="first",
            )
            consumer.subscribe(topic)
            puller = LitePullConsumer("other", namesrv=namesrv)
            puller.subscribe(topic)
            with Producer(namesrv=namesrv) as producer, puller, consumer:
                producer.send_async(Message(topic, b"x"), on_success=lambda _: None)
                assert received.wait(60)
            # Idle threads may need a moment to end.
            for _ in range(3000):
                if left() == (["MainThread"], 0):
                    break
                threading.Event().wait(0.01)
            print(*left())
        gc.collect()
        descriptors = process.num_fds()
        for _ in range(20):
            with Producer(namesrv=namesrv) as producer:
                producer.send(Message(topic, b"x"))
        gc.collect()
        print("descriptors grown:", max(0, process.num_fds() - descriptors))
        """,
        cluster.namesrv,
        topic,
    )

    assert printed == ["['MainThread'] 0"] * 3 + ["descriptors grown: 0"]


async def test_a_forked_child_makes_its_own_client_and_the_parent_continues(
    cluster: Cluster, topic: str
) -> None:
    await cluster.make_topic(topic)
    printed = await _run(
        """
        import os, sys
        from orbitmq.client import Message, Producer
        from orbitmq.errors import StateError

        namesrv, topic = sys.argv[1:]
        with Producer(namesrv=namesrv) as producer:
            producer.send(Message(topic, b"parent"))
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    try:
                        producer.send(Message(topic, b"no"))
                    except StateError as error:
                        assert "make the client in the child process" in str(error)
                        print("refused", flush=True)
                    with Producer(namesrv=namesrv) as own:
                        print(own.send(Message(topic, b"child")).status.name, flush=True)
                    # As a program that ends inside the with block.
                    sys.exit(0)
                assert os.waitpid(child, 0)[1] == 0
            print("parent", producer.send(Message(topic, b"parent")).status.name, flush=True)
        """,
        cluster.namesrv,
        topic,
    )

    assert printed == ["refused", "OK"] * 3 + ["parent OK"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
async def test_workers_of_multiprocessing_send(cluster: Cluster, topic: str, method: str) -> None:
    await cluster.make_topic(topic)
    printed = await _run(
        """
        import multiprocessing, sys
        from orbitmq.client import Message, Producer
        from tests.integration.client.pool_work import send_one

        if __name__ == "__main__":
            namesrv, topic, method = sys.argv[1:]
            context = multiprocessing.get_context(method)
            with Producer(namesrv=namesrv) as producer:
                producer.send(Message(topic, b"parent"))
                with context.Pool(1) as pool:
                    work = [(namesrv, Message(topic, f"{n}")) for n in range(3)]
                    ids = pool.starmap(send_one, work)
                print(len(set(ids)), producer.send(Message(topic, b"parent")).status.name)
        """,
        cluster.namesrv,
        topic,
        method,
    )

    assert printed == ["3 OK"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_program_with_a_loop_of_its_own_uses_blocking_clients(
    cluster: Cluster, topic: str, loop: str
) -> None:
    await cluster.make_topic(topic)
    printed = await _run(
        """
        import asyncio, sys
        import uvloop
        from orbitmq.client import Message, Producer
        from orbitmq.client.aio import Producer as AioProducer

        namesrv, topic, loop = sys.argv[1:]

        async def handle(producer, aio_producer, number):
            # A request handler: in the loop's own thread, in a pool, and without blocking.
            producer.send(Message(topic, f"{number}"))
            await asyncio.to_thread(producer.send, Message(topic, f"{number}"))
            await asyncio.wrap_future(producer.send_async(Message(topic, f"{number}")))
            await aio_producer.send(Message(topic, f"{number}"))
            return number

        async def main():
            with Producer(namesrv=namesrv) as producer:
                async with AioProducer(namesrv=namesrv) as aio_producer:
                    calls = [handle(producer, aio_producer, number) for number in range(5)]
                    print(sum(await asyncio.gather(*calls)))

        factory = uvloop.new_event_loop if loop == "uvloop" else None
        with asyncio.Runner(loop_factory=factory, debug=loop == "asyncio") as runner:
            # It blocks on purpose; how long depends on the machine, not on the client.
            runner.get_loop().slow_callback_duration = 60
            runner.run(main())
        """,
        cluster.namesrv,
        topic,
        loop,
    )

    assert printed == ["10"]


async def test_an_interrupt_ends_a_blocking_call_and_the_program_in_order(
    cluster: Cluster, topic: str
) -> None:
    await cluster.make_topic(topic)
    printed = await _run(
        """
        import signal, sys, threading
        from orbitmq.client import LitePullConsumer

        namesrv, topic = sys.argv[1:]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assigned = threading.Event()

        def interrupt():
            assigned.wait(60)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        consumer = LitePullConsumer(
            "group", namesrv=namesrv, on_assigned=lambda topic, queues: assigned.set()
        )
        consumer.subscribe(topic)
        try:
            with consumer:
                consumer.poll(600_000)
        except KeyboardInterrupt:
            interrupting.join()
            print("interrupted", [each.name for each in threading.enumerate()])
        """,
        cluster.namesrv,
        topic,
    )

    assert printed == ["interrupted ['MainThread']"]


async def test_a_program_that_forgets_to_stop_ends_in_order(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic, queues=1)
    printed = await _run(
        """
        import sys, threading
        from orbitmq.client import Message, Producer, PushConsumer

        namesrv, topic = sys.argv[1:]
        received = threading.Event()
        producer = Producer(namesrv=namesrv)
        producer.start()
        producer.send(Message(topic, b"x"))
        consumer = PushConsumer(
            "group", on_message=lambda message: received.set(), namesrv=namesrv,
            consume_from="first",
        )
        consumer.subscribe(topic)
        consumer.start()
        assert received.wait(60)
        print("end")
        """,
        cluster.namesrv,
        topic,
    )

    assert printed == ["end"]
    # It left its group and committed its messages: the next member does not get them.
    printed = await _run(
        """
        import sys
        from orbitmq.client import PullConsumer

        namesrv, topic = sys.argv[1:]
        with PullConsumer("group", namesrv=namesrv) as consumer:
            (queue,) = consumer.queues(topic)
            print(consumer.committed(queue))
        """,
        cluster.namesrv,
        topic,
    )
    assert printed == ["1"]


async def test_a_listener_that_stops_its_consumer_while_the_program_exits_is_no_failure(
    cluster: Cluster, topic: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    printed = await _run(
        """
        import sys, threading
        from orbitmq.client import Message, Producer, PushConsumer

        namesrv, topic = sys.argv[1:]
        received = threading.Event()

        def listen(message):
            received.set()
            threading.main_thread().join()
            consumer.stop()
            print("listener returns", flush=True)

        with Producer(namesrv=namesrv) as producer:
            producer.send(Message(topic, b"x"))
        consumer = PushConsumer(
            "group", on_message=listen, namesrv=namesrv, consume_from="first",
        )
        consumer.subscribe(topic)
        consumer.start()
        assert received.wait(60)
        """,
        cluster.namesrv,
        topic,
    )

    assert printed == ["listener returns"]


async def test_callbacks_of_sends_are_called_after_the_main_thread_has_ended(
    cluster: Cluster, topic: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    printed = await _run(
        """
        import sys, threading
        from concurrent.futures import Future
        from orbitmq.client import Message, Producer

        namesrv, topic = sys.argv[1:]
        producer = Producer(namesrv=namesrv)
        producer.start()

        def send(body):
            # The callback makes a blocking call: it is not on the loop.
            seen = Future()
            producer.send_async(
                Message(topic, body), on_success=lambda _: seen.set_result(len(producer.queues(topic)))
            )
            return seen.result(60)

        def work():
            threading.main_thread().join()
            print("then", send(b"then"), flush=True)

        print("now", send(b"now"), flush=True)
        threading.Thread(target=work).start()
        """,
        cluster.namesrv,
        topic,
    )

    assert printed == ["now 1", "then 1"]
