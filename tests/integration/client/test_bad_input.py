"""Bad input and missing servers: the error names cause and remedy, and comes in time."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from orbitmq import client as blocking
from orbitmq.client import Message, by_sql
from orbitmq.client.aio import Admin, LitePullConsumer, Producer, PushConsumer
from orbitmq.client.aio.instance import instances
from orbitmq.clock import SystemClock
from orbitmq.errors import (
    CallTimeoutError,
    FilterError,
    MessageError,
    MessageTypeError,
    NameRuleError,
    OrbitError,
    SettingsError,
    StateError,
    TopicRefusedError,
)
from orbitmq.model.queues import MessageQueue
from tests import leftovers
from tests.integration.client.conftest import Cluster
from tests.integration.client.fault_proxy import FaultProxy
from tests.integration.conftest import PATIENCE_MS
from tests.waiting import until

CLOCK = SystemClock()
TIMEOUT_MS = 1000
# A refusal waits for no timeout but its own; a busy machine may be slow.
IN_TIME_MS = PATIENCE_MS / 2


@pytest.fixture
def nobody() -> Iterator[str]:
    """A reserved address where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where the system accepts connections and nothing ever replies."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
async def producer(cluster: Cluster) -> AsyncIterator[Producer]:
    async with Producer("bad-input", namesrv=cluster.namesrv) as made:
        yield made


class Failure:
    """Expects an error of ours in time, with these texts and a hint."""

    def __init__(self, *texts: str, kind: type[Exception], at_once: bool) -> None:
        self._texts = texts
        self._kind = kind
        self._at_once = at_once
        self._waited = False

    def __enter__(self) -> None:
        self._start_ms = CLOCK.monotonic_ms()
        # Without a loop a wait blocks, which the elapsed time shows.
        with suppress(RuntimeError):
            asyncio.get_running_loop().call_soon(self._note_loop_turn)

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        passed_ms = CLOCK.monotonic_ms() - self._start_ms
        assert error is not None, "nothing was raised"
        if not isinstance(error, self._kind):
            return False
        for text in self._texts:
            assert text in str(error), str(error)
        # An error that says what is expected needs no hint.
        says_what_is_expected = "it takes" in str(error) or "expected" in str(error)
        assert getattr(error, "hint", "") or says_what_is_expected, f"no hint in: {error}"
        assert passed_ms <= IN_TIME_MS, f"{passed_ms:.0f} ms until: {error}"
        assert not (self._at_once and self._waited), f"waited before: {error}"
        return True

    def _note_loop_turn(self) -> None:
        self._waited = True


def at_once(*texts: str, kind: type[Exception] = OrbitError) -> Failure:
    """Expect a failure before the event loop runs, so before anything is sent or awaited."""
    return Failure(*texts, kind=kind, at_once=True)


def in_time(*texts: str, kind: type[Exception] = OrbitError) -> Failure:
    """Expect a failure that may make calls, but does not wait for other timeouts."""
    return Failure(*texts, kind=kind, at_once=False)


# --- Servers that are missing -----------------------------------------------------------------


async def test_producer_says_which_name_server_does_not_listen(nobody: str) -> None:
    with in_time(nobody):
        async with Producer("bad-input", namesrv=nobody) as producer:
            await producer.send(Message("topic", "body"))


async def test_producer_says_which_name_server_does_not_answer(silent: str) -> None:
    with in_time(silent, f"{TIMEOUT_MS} ms"):
        async with Producer("bad-input", namesrv=silent) as producer:
            await producer.send(Message("topic", "body"), timeout_ms=TIMEOUT_MS)


def test_blocking_producer_says_which_name_server_does_not_listen(nobody: str) -> None:
    with in_time(nobody), blocking.Producer("bad-input", namesrv=nobody) as producer:
        producer.send(Message("topic", "body"), timeout_ms=TIMEOUT_MS)


async def test_consumer_says_which_name_server_does_not_listen(nobody: str) -> None:
    consumer = LitePullConsumer("bad-input", namesrv=nobody)
    consumer.subscribe("topic")
    with in_time(nobody):
        async with consumer:
            pass


@pytest.mark.parametrize(
    "address",
    ["localhost", "127.0.0.1:port", "127.0.0.1:99999", ":9876", "a:1,b:2"],
)
async def test_invalid_address_is_refused_at_once(address: str) -> None:
    with at_once(address.partition(",")[0], kind=SettingsError):
        Producer("bad-input", namesrv=address)


async def test_host_name_that_cannot_be_resolved_is_named() -> None:
    with in_time("no-such-host.invalid:9876"):
        async with Producer("bad-input", namesrv="no-such-host.invalid:9876") as producer:
            await producer.send(Message("topic", "body"), timeout_ms=TIMEOUT_MS)


async def test_no_name_server_at_all_is_an_error_with_a_hint() -> None:
    with in_time("name server", "NAMESRV_ADDR"):
        async with Producer("bad-input"):
            pass


async def test_producer_says_which_broker_is_down(
    cluster: Cluster, producer: Producer, topic: str
) -> None:
    await cluster.make_topic(topic)
    await producer.send(Message(topic, "before"))
    await cluster.kill_broker()

    with in_time("broker-a", cluster.address()):
        await producer.send(Message(topic, "after"), timeout_ms=TIMEOUT_MS)


async def test_producer_that_was_given_a_broker_for_a_name_server_says_so(cluster: Cluster) -> None:
    with in_time(cluster.address()):
        async with Producer("bad-input", namesrv=cluster.address()) as producer:
            await producer.send(Message("topic", "body"))


async def test_topic_that_may_not_be_created_is_named(cluster: Cluster, producer: Producer) -> None:
    await cluster.start_broker("broker-b", autoCreateTopicEnable="false")
    await cluster.stop_broker("broker-a")
    with in_time("nowhere"):
        await producer.send(Message("nowhere", "body"))


# --- Messages that cannot be sent ---------------------------------------------------------------

BODY_BYTES_MAX = 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("make", "texts"),
    [
        (lambda: Message(7, b"body"), ["topic", "int"]),  # type: ignore[arg-type]
        (lambda: Message("topic", 7), ["body", "int"]),  # type: ignore[arg-type]
        (lambda: Message("topic", None), ["body", "None"]),  # type: ignore[arg-type]
        (lambda: Message("topic", {"a": 1}), ["body", "dict"]),  # type: ignore[arg-type]
        (lambda: Message("topic", b"", tags=7), ["tags", "int"]),  # type: ignore[arg-type]
        (lambda: Message("topic", b"", keys=[7]), ["a key", "int"]),  # type: ignore[list-item]
        (lambda: Message("topic", b"", keys=7), ["keys", "int"]),  # type: ignore[arg-type]
        (lambda: Message("topic", b"", flag="7"), ["flag", "str"]),  # type: ignore[arg-type]
        (lambda: Message("topic", b"", flag=2**31), ["flag", str(2**31)]),
        (lambda: Message("topic", b"", delay_level=-1), ["delay_level", "-1"]),
        (lambda: Message("topic", b"", properties={"a": 1}), ["'a'", "int"]),  # type: ignore[dict-item]
        (lambda: Message("topic", b"", properties=[1]), ["properties", "list"]),  # type: ignore[arg-type]
        (lambda: Message("topic", b"", properties={"TAGS": "a"}), ["TAGS", "tags="]),
        (lambda: Message("topic", b"", properties={"UNIQ_KEY": "a"}), ["UNIQ_KEY"]),
        (lambda: Message("topic", b"", properties={"a": "b\x01c"}), ["'a'"]),
        (lambda: Message("topic", b"", properties={"": "b"}), ["property ''"]),
    ],
)
def test_message_with_invalid_parts_is_refused(
    make: Callable[[], Message], texts: list[str]
) -> None:
    with at_once(*texts, kind=MessageError):
        make()


@pytest.mark.parametrize(
    ("message", "kind", "texts"),
    [
        (
            Message("topic", bytes(BODY_BYTES_MAX + 1)),
            MessageError,
            [f"{BODY_BYTES_MAX + 1} bytes", f"limit of {BODY_BYTES_MAX}"],
        ),
        (Message("topic", b""), MessageError, ["empty body"]),
        (Message("topic", b"x", properties={"p": "v" * 40_000}), MessageError, ["32767"]),
        (Message("", b"body"), NameRuleError, ["topic is blank"]),
        (Message("no such name", b"body"), NameRuleError, ["'no such name' contains ' '"]),
        (Message("t" * 128, b"body"), NameRuleError, ["at most 127"]),
        (Message("SCHEDULE_TOPIC_XXXX", b"body"), TopicRefusedError, ["belongs to the brokers"]),
        ([], MessageError, ["at least one"]),
        ([Message("one", b"1"), Message("two", b"2")], MessageError, ["to one and to two"]),
        ([Message("one", b"1", delay_level=1)], MessageError, ["delay level 1"]),
        ([Message("%RETRY%group", b"1")], MessageError, ["%RETRY%group"]),
        ([Message("one", bytes(BODY_BYTES_MAX // 2))] * 3, MessageError, [str(BODY_BYTES_MAX)]),
        ([Message("one", b"1"), "two"], MessageTypeError, ["type str"]),
        ("text", MessageTypeError, ["type str", "a Message"]),
        (b"bytes", MessageTypeError, ["type bytes", "a Message"]),
        (None, MessageTypeError, ["None", "a Message"]),
    ],
    ids=lambda value: f"{value!r:.30}",
)
async def test_message_that_cannot_be_sent_is_refused_before_it_is_sent(
    producer: Producer, message: Any, kind: type[OrbitError], texts: list[str]
) -> None:
    # Large ones are checked in a thread.
    is_large = isinstance(message, Message) and len(message.body) > BODY_BYTES_MAX
    expected = in_time if is_large else at_once

    for send in (producer.send, producer.send_async, producer.send_oneway):
        with expected(*texts, kind=kind):
            await send(message)


@pytest.mark.parametrize(
    ("timeout_ms", "kind"),
    [
        ("3000", MessageTypeError),
        (True, MessageTypeError),
        (None.__class__, MessageTypeError),
        (0, MessageError),
        (-1, MessageError),
    ],
)
async def test_invalid_timeout_is_refused(
    producer: Producer, timeout_ms: Any, kind: type[OrbitError]
) -> None:
    with at_once("timeout_ms", kind=kind):
        await producer.send(Message("topic", "body"), timeout_ms=timeout_ms)


async def test_queue_and_selector_of_a_wrong_type_are_refused(
    cluster: Cluster, producer: Producer, topic: str
) -> None:
    await cluster.make_topic(topic)
    message = Message(topic, "body")
    (queue, *_) = await producer.queues(topic)
    elsewhere = MessageQueue(topic="other-topic", broker_name=queue.broker_name, queue_id=0)

    with in_time("other-topic", topic):
        await producer.send(message, queue=elsewhere)
    with in_time("queue", "int"):
        await producer.send(message, queue=2)  # type: ignore[arg-type]
    with in_time("selector"):
        await producer.send(message, queue=queue, selector=lambda queues, *_: queues[0])
    with in_time("selector"):
        await producer.send(message, selector=lambda *_: 7)  # type: ignore[arg-type]
    with in_time("selector"):
        await producer.send(message, selector=7)  # type: ignore[arg-type]


# --- Options and misuse -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"retires": 3}, ["retires", "did you mean retries"]),
        ({"retries": "3"}, ["retries cannot be '3'", "a whole number from 0 to 100, not a str"]),
        ({"tls": "no"}, ["tls cannot be 'no'", "true or false, not a str"]),
        ({"namesrv": None}, ["namesrv cannot be 'None'", "not a NoneType"]),
        ({"retries": -1}, ["retries", "-1"]),
        ({"send_timeout_ms": 2.5}, ["send_timeout_ms", "2.5"]),
        ({"namesrv": ["127.0.0.1:9876"]}, ["namesrv"]),
        ({"compress_kind": "gzip"}, ["compress_kind", "gzip", "zlib, lz4, zstd"]),
        ({"compress_level": 10}, ["0 to 9 with zlib"]),
        ({"access_key": "only"}, ["access_key", "secret_key"]),
    ],
)
@pytest.mark.parametrize("face", [Producer, blocking.Producer], ids=["aio", "blocking"])
def test_invalid_option_is_refused_at_once(
    face: Any, options: dict[str, Any], texts: list[str]
) -> None:
    with at_once(*texts, kind=SettingsError):
        face("bad-input", **options)


@pytest.mark.parametrize(
    "made",
    [
        lambda: PushConsumer("g", on_message=print, ordered="no"),  # type: ignore[arg-type]
        lambda: PushConsumer("g", on_message=print, allocation=5),  # type: ignore[arg-type]
        lambda: PushConsumer("g", on_message=print, on_queues_changed=5),  # type: ignore[arg-type]
        lambda: LitePullConsumer("g", on_assigned=5),  # type: ignore[arg-type]
        lambda: LitePullConsumer("g", allocation=5),  # type: ignore[arg-type]
        lambda: LitePullConsumer("g").assign([5]),  # type: ignore[list-item]
    ],
)
def test_argument_of_a_wrong_type_is_refused_at_once(made: Callable[[], object]) -> None:
    with at_once("cannot be", "it takes"):
        made()


@pytest.mark.parametrize("group", ["", "no such group", "g" * 256])
def test_invalid_group_name_is_refused_at_once(group: str) -> None:
    for face in (Producer, blocking.Producer):
        with at_once("group", kind=NameRuleError):
            face(group, namesrv="127.0.0.1:9876")
    with at_once("group", kind=NameRuleError):
        LitePullConsumer(group, namesrv="127.0.0.1:9876")


async def test_calls_in_a_wrong_state_raise_with_a_hint(namesrv: str) -> None:
    producer = Producer("bad-input", namesrv=namesrv)
    with at_once("start", kind=StateError):
        await producer.send(Message("topic", "body"))
    await producer.start()
    with at_once("start", kind=StateError):
        await producer.start()
    await producer.stop()
    await producer.stop()
    with at_once("stopped", kind=StateError):
        await producer.send(Message("topic", "body"))
    with at_once("stopped", kind=StateError):
        await producer.start()


async def test_calls_of_an_admin_client_in_a_wrong_state_raise_with_a_hint(namesrv: str) -> None:
    admin = Admin(namesrv=namesrv)
    with at_once("the admin client is not started", kind=StateError):
        await admin.topics.names()
    async with admin:
        await admin.topics.names()
    with at_once("the admin client is stopped", kind=StateError):
        await admin.groups.progress("bad-input")
    with at_once("the admin client is stopped", kind=StateError):
        await admin.start()


async def test_an_admin_client_waits_for_a_broker_until_its_timeout(
    namesrv: str, silent: str
) -> None:
    async with Admin(namesrv=namesrv, call_timeout_ms=TIMEOUT_MS) as admin:
        with pytest.raises(CallTimeoutError, match=f"no answer from {silent}"):
            async with asyncio.timeout(IN_TIME_MS / 1000):
                await admin.brokers.runtime(silent)


@pytest.mark.parametrize("kind", [LitePullConsumer, PushConsumer])
async def test_a_stop_cancels_a_start_that_waits_for_servers(silent: str, kind: Any) -> None:
    options = {"on_message": print} if kind is PushConsumer else {}
    consumer = kind("bad-input", namesrv=silent, call_timeout_ms=60_000, **options)
    consumer.subscribe("topic")
    starting = asyncio.create_task(consumer.start())
    await until(lambda: consumer._instance is not None)

    with at_once("is still starting", kind=StateError):
        _ = consumer.client_id
    await consumer.stop()

    with pytest.raises(StateError, match="was stopped while it started"):
        await starting
    assert not [key for key in instances._entries if key[0] is asyncio.get_running_loop()]


def test_a_stop_cancels_a_start_of_a_blocking_client_too(silent: str) -> None:
    consumer = blocking.LitePullConsumer("bad-input", namesrv=silent, call_timeout_ms=60_000)
    consumer.subscribe("topic")
    failures: list[str] = []
    threads = leftovers.threads()

    def start() -> None:
        try:
            consumer.start()
        except StateError as error:
            failures.append(str(error))

    starting = threading.Thread(target=start)
    starting.start()
    while consumer._client._instance is None:
        starting.join(0.01)
    consumer.stop()
    starting.join()

    assert failures == [
        "the lite pull consumer of the group 'bad-input' was stopped while it started"
    ]
    leftovers.no_threads_since(threads)


async def test_group_twice_in_one_instance_is_refused(namesrv: str) -> None:
    options: Any = {"namesrv": namesrv, "instance_name": "shared"}
    async with Producer("twice", **options):
        with in_time("twice", kind=StateError):
            async with Producer("twice", **options):
                pass


async def test_push_consumer_without_what_it_needs_is_refused(namesrv: str) -> None:
    with at_once("on_message"):
        async with PushConsumer("bad-input", namesrv=namesrv) as consumer:
            pass
    with at_once("on_message"):
        PushConsumer("bad-input", on_message=7, namesrv=namesrv)  # type: ignore[arg-type]
    with at_once("on_message"):
        PushConsumer("bad-input", on_message=print, on_messages=print, namesrv=namesrv)
    consumer = PushConsumer("bad-input", on_message=print, namesrv=namesrv)
    with at_once(kind=FilterError):
        consumer.subscribe("topic", "||")
    with at_once(kind=FilterError):
        consumer.subscribe("topic", by_sql(" "))
    with at_once("no such topic"):
        consumer.subscribe("no such topic")


async def test_filter_that_the_broker_refuses_fails_the_start(cluster: Cluster, topic: str) -> None:
    await cluster.make_topic(topic)
    consumer = PushConsumer("bad-input", on_message=print, namesrv=cluster.namesrv)
    consumer.subscribe(topic, by_sql("a >"))
    with in_time("a >"):
        async with consumer:
            pass


async def test_reply_that_breaks_the_protocol_is_an_error_and_not_a_hang(
    cluster: Cluster, topic: str
) -> None:
    """The server at the address is not a name server."""
    with FaultProxy(cluster.namesrv, renames={'"brokerDatas"': '"brokerDatax"'}) as proxy:
        await cluster.make_topic(topic)
        with in_time(topic):
            async with Producer("bad-input", namesrv=proxy.address) as producer:
                await producer.send(Message(topic, "body"))
