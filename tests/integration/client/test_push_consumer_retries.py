"""Failed messages: retried by the broker or the client, finally dead letters; never lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.client.aio.instance.broker_calls import BrokerCalls
from orbitmq.client.aio.push import concurrent_consumption
from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.core.consuming.consume_results import REJECT, Reject, RetryLater, Suspend
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.core.dead_letters import DeadLetter
from orbitmq.errors import ConnectionLostError
from orbitmq.model.messages import Message
from orbitmq.model.names import dead_letter_topic, retry_topic
from orbitmq.model.property_names import FAILURE_REASON, ORIGIN_MESSAGE_ID, RETRY_TOPIC
from tests.integration.client.conftest import Cluster
from tests.integration.client.consuming import (
    Seen,
    committed,
    consumer_of,
    numbered,
    send,
    until_committed,
)


@pytest.fixture
async def hasty(cluster: Cluster) -> Cluster:
    """A broker without delays before retries."""
    await cluster.stop_broker()
    await cluster.start_broker(messageDelayLevel=" ".join(["0s"] * 18))
    return cluster


class Failing:
    """Fails on some bodies a number of times."""

    def __init__(self, seen: Seen, fails: dict[bytes, int]) -> None:
        self.seen = seen
        self.fails = fails
        self.tried: list[tuple[bytes, int]] = []

    def __call__(self, message: ReceivedMessage) -> None:
        self.tried.append((message.body, message.reconsume_times))
        if self.fails.get(message.body, 0):
            self.fails[message.body] -= 1
            raise ValueError(message.body)
        self.seen.add(message)


async def dead_letters(cluster: Cluster, group: str, count: int) -> list[ReceivedMessage]:
    """Read the dead letters of a group."""
    seen = Seen()
    reader = consumer_of(cluster, f"{group}-dead", on_message=seen.awaited)
    reader.subscribe(dead_letter_topic(group))
    async with reader:
        await seen.count(count)
    return seen.messages


@pytest.mark.parametrize("kind", ["raises", "returns"])
async def test_a_failed_message_is_redelivered_unchanged(
    hasty: Cluster, topic: str, group: str, kind: str
) -> None:
    await hasty.make_topic(topic, queues=1)
    seen = Seen()
    tried: list[tuple[str, str, int]] = []

    async def listen(message: ReceivedMessage) -> RetryLater | None:
        tried.append((message.topic, message.message_id, message.reconsume_times))
        if message.reconsume_times < 2:
            if kind == "raises":
                raise ValueError
            return RetryLater(delay_level=1)
        seen.add(message)
        return None

    consumer = consumer_of(hasty, group, on_message=listen)
    consumer.subscribe(topic)
    async with consumer:
        async with Producer(namesrv=hasty.namesrv) as producer:
            sent = await producer.send(
                Message(topic, "ünïcode", tags="T", keys=["k"], properties={"own": "é"})
            )
        await seen.count(1)

    assert tried == [(topic, sent.message_id, times) for times in range(3)]
    (message,) = seen.messages
    assert (message.body.decode(), message.tags, message.keys) == ("ünïcode", "T", ("k",))
    assert message.properties["own"] == "é"
    assert message.queue.topic == retry_topic(group)
    assert await committed(hasty, group, topic, queues=1) == [1]


async def test_what_fails_too_often_becomes_a_dead_letter(
    hasty: Cluster, topic: str, group: str
) -> None:
    await hasty.make_topic(topic, queues=1)
    seen = Seen()
    failing = Failing(seen, {b"bad": 100})
    consumer = consumer_of(hasty, group, on_message=failing, max_reconsume_times=2)
    consumer.subscribe(topic)
    async with consumer:
        await send(hasty, topic, b"good", b"bad", b"good too")
        await seen.count(2)
        (letter,) = await dead_letters(hasty, group, 1)

    assert letter.body == b"bad"
    assert letter.properties[RETRY_TOPIC] == topic
    assert [times for body, times in failing.tried if body == b"bad"] == [0, 1, 2]


async def test_a_listener_may_ask_for_dead_letters_at_once(
    hasty: Cluster, topic: str, group: str
) -> None:
    await hasty.make_topic(topic, queues=1)
    consumer = consumer_of(hasty, group, on_message=lambda _: RetryLater(delay_level=-1))
    consumer.subscribe(topic)
    async with consumer:
        await send(hasty, topic, b"hopeless")
        (letter,) = await dead_letters(hasty, group, 1)

    assert letter.body == b"hopeless"


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_rejected_message_is_a_dead_letter_with_its_reason(
    hasty: Cluster, topic: str, group: str, *, ordered: bool
) -> None:
    await hasty.make_topic(topic, queues=1)
    seen = Seen()

    async def listen(message: ReceivedMessage) -> Reject | None:
        seen.add(message)
        return Reject("no such\x01 customer\n") if message.body == b"bad" else None

    consumer = consumer_of(hasty, group, on_message=listen, ordered=ordered)
    consumer.subscribe(topic)
    async with consumer:
        await send(hasty, topic, b"good", b"bad", b"good too")
        await seen.count(3)
        (letter,) = await dead_letters(hasty, group, 1)

    assert sorted(seen.bodies) == [b"bad", b"good", b"good too"]
    assert (letter.body, letter.reconsume_times) == (b"bad", 1)
    assert letter.properties[FAILURE_REASON].split() == ["no", "such", "customer"]
    assert FAILURE_REASON not in letter.as_message().properties
    assert await committed(hasty, group, topic, queues=1) == [3]


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_dead_letter_that_was_rejected_without_a_reason_says_so(
    hasty: Cluster, topic: str, group: str, *, ordered: bool
) -> None:
    await hasty.make_topic(topic, queues=1)
    consumer = consumer_of(hasty, group, on_message=lambda _: REJECT, ordered=ordered)
    consumer.subscribe(topic)
    async with consumer:
        await send(hasty, topic, b"bad")
        (letter,) = await dead_letters(hasty, group, 1)

    assert DeadLetter(letter).cause == "rejected"


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_dead_letter_says_how_its_listener_failed(
    hasty: Cluster, topic: str, group: str, *, ordered: bool
) -> None:
    await hasty.make_topic(topic, queues=1)

    def fail(message: ReceivedMessage) -> None:
        raise ValueError(f"no. {message.reconsume_times}\n" + "long " * 100)

    consumer = consumer_of(
        hasty,
        group,
        on_message=fail,
        ordered=ordered,
        max_reconsume_times=1,
        suspend_current_queue_ms=10,
    )
    consumer.subscribe(topic)
    async with consumer:
        await send(hasty, topic, b"bad")
        (letter,) = await dead_letters(hasty, group, 1)

    reason = letter.properties[FAILURE_REASON]
    assert reason.startswith("ValueError: no. 1 long")
    assert len(reason) <= 200


async def test_a_reason_that_does_not_fit_is_left_out(
    hasty: Cluster, topic: str, group: str
) -> None:
    await hasty.make_topic(topic, queues=1)
    consumer = consumer_of(hasty, group, on_message=lambda _: Reject("no room"))
    consumer.subscribe(topic)
    async with consumer:
        await send(hasty, topic, b"full", properties={"large": "x" * 32_000})
        (letter,) = await dead_letters(hasty, group, 1)

    assert letter.body == b"full"
    assert FAILURE_REASON not in letter.properties


async def test_only_the_failed_rest_of_a_list_is_redelivered(
    hasty: Cluster, topic: str, group: str
) -> None:
    await hasty.make_topic(topic, queues=1)
    await send(hasty, topic, *numbered(4))
    seen = Seen()

    async def listen(messages: list[ReceivedMessage]) -> RetryLater | None:
        for message in messages:
            seen.add(message)
        first_time = messages[0].reconsume_times == 0
        return RetryLater(succeeded=len(messages) - 1) if first_time else None

    consumer = consumer_of(hasty, group, on_messages=listen, consume_batch_size=4)
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(5)

    assert seen.bodies == [*numbered(4), b"3"]


async def test_the_client_sends_a_copy_when_the_broker_does_not_take_a_message_back(
    hasty: Cluster,
    topic: str,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refused(*_: Any, **__: Any) -> None:
        raise ConnectionLostError("broker-a", "cut by the test")

    monkeypatch.setattr(BrokerCalls, "send_back", refused)
    await hasty.make_topic(topic, queues=1)
    seen = Seen()
    failing = Failing(seen, {b"once": 1, b"never": 100})
    consumer = consumer_of(hasty, group, on_message=failing, max_reconsume_times=1)
    consumer.subscribe(topic)
    async with consumer:
        await send(hasty, topic, b"once", b"never", tags="T", properties={"own": "é"})
        await seen.count(1)
        (letter,) = await dead_letters(hasty, group, 1)

    (message,) = seen.messages
    assert (message.topic, message.tags, message.reconsume_times) == (topic, "T", 1)
    assert message.properties["own"] == "é"
    assert message.properties[ORIGIN_MESSAGE_ID]
    assert letter.body == b"never"
    assert "broker did not take a message back, sending a copy" in caplog.text
    assert await committed(hasty, group, topic, queues=1) == [2]


async def test_a_message_that_no_broker_takes_is_consumed_again_and_never_lost(
    cluster: Cluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any, **__: Any) -> None:
        raise ConnectionLostError("broker-a", "cut by the test")

    monkeypatch.setattr(BrokerCalls, "send_back", refused)
    monkeypatch.setattr(concurrent_consumption, "RETRY_MS", 100)
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    failing = Failing(seen, {b"1": 3})
    consumer = consumer_of(cluster, group, on_message=failing)
    consumer.subscribe(topic)
    async with consumer:
        assert consumer._member is not None
        monkeypatch.setattr(consumer._member, "_send", refused)
        consumer._member._consumption._send_backs._send = refused  # type: ignore[attr-defined]
        await send(cluster, topic, *numbered(3))
        await seen.count(2)
        await until_committed(cluster, group, topic, [1])
        await seen.count(3)
        await until_committed(cluster, group, topic, [3])

    assert [times for body, times in failing.tried if body == b"1"] == [0, 1, 2, 3]


# --- ordered --------------------------------------------------------------------------------------


async def test_ordered_messages_wait_for_the_one_that_fails(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *numbered(5))
    seen = Seen()
    failing = Failing(seen, {b"2": 3})
    consumer = consumer_of(
        cluster, group, on_message=failing, ordered=True, suspend_current_queue_ms=20
    )
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(5)

    assert seen.bodies == numbered(5)
    assert failing.tried == [
        (b"0", 0),
        (b"1", 0),
        *((b"2", times) for times in range(4)),
        (b"3", 0),
        (b"4", 0),
    ]


async def test_an_ordered_listener_may_choose_how_long_its_queue_pauses(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, b"one")
    seen = Seen()

    async def listen(message: ReceivedMessage) -> Suspend | None:
        seen.add(message)
        return Suspend(pause_ms=10) if len(seen.bodies) < 3 else None

    consumer = consumer_of(
        cluster, group, on_message=listen, ordered=True, suspend_current_queue_ms=30_000
    )
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(3)


async def test_what_fails_too_often_leaves_an_ordered_queue_as_a_dead_letter(
    hasty: Cluster, topic: str, group: str
) -> None:
    await hasty.make_topic(topic, queues=1)
    await send(hasty, topic, b"a", b"bad", b"b")
    seen = Seen()
    failing = Failing(seen, {b"bad": 100})
    consumer = consumer_of(
        hasty,
        group,
        on_message=failing,
        ordered=True,
        suspend_current_queue_ms=20,
        max_reconsume_times=2,
    )
    consumer.subscribe(topic)
    async with consumer:
        await seen.count(2)
        (letter,) = await dead_letters(hasty, group, 1)

    assert seen.bodies == [b"a", b"b"]
    assert letter.body == b"bad"
    assert await committed(hasty, group, topic, queues=1) == [3]


# --- too slow -------------------------------------------------------------------------------------


async def test_a_message_whose_listener_takes_too_long_is_sent_back(
    hasty: Cluster, topic: str, group: str
) -> None:
    await hasty.make_topic(topic, queues=1)
    seen = Seen()
    go_on = asyncio.Event()

    async def listen(message: ReceivedMessage) -> None:
        if message.body == b"slow" and message.reconsume_times == 0:
            await go_on.wait()
        seen.add(message)

    consumer = consumer_of(hasty, group, on_message=listen)
    consumer.subscribe(topic)
    async with consumer:
        await send(hasty, topic, b"slow", b"quick")
        await seen.count(1)
        assert consumer._member is not None
        consumption = consumer._member._consumption
        assert isinstance(consumption, concurrent_consumption.ConcurrentConsumption)
        consumption._timeout_ms = 0
        await consumption.send_back_overdue()
        await seen.count(2)
        await until_committed(hasty, group, topic, [2])
        go_on.set()
        await seen.count(3)

    assert seen.bodies == [b"quick", b"slow", b"slow"]


# --- trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_nothing_is_lost_when_the_broker_dies_while_messages_fail(
    hasty: Cluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch, *, ordered: bool
) -> None:
    monkeypatch.setattr(concurrent_consumption, "RETRY_MS", 100)
    await hasty.make_topic(topic)
    bodies = numbered(300)
    await send(hasty, topic, *bodies)
    seen = Seen()
    failing = Failing(seen, {body: 1 for body in bodies if int(body) % 7 == 3})
    consumer = consumer_of(
        hasty, group, on_message=failing, ordered=ordered, suspend_current_queue_ms=10
    )
    consumer.subscribe(topic)
    async with consumer:
        for part in (50, 150, 250):
            await seen.until(lambda part=part: len(set(seen.bodies)) >= part)  # type: ignore[misc]
            await hasty.kill_broker()
            await hasty.start_broker()
        await seen.all_of(set(bodies))

    assert set(seen.bodies) == set(bodies)


async def test_a_dead_letter_can_be_sent_again_and_arrives_without_a_delay(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    seen = Seen()
    fails = [RetryLater(delay_level=-1)]

    def listener(message: ReceivedMessage) -> RetryLater | None:
        if fails:
            return fails.pop()
        seen.add(message)
        return None

    consumer = consumer_of(cluster, group, on_message=listener)
    consumer.subscribe(topic)
    async with (
        Producer(f"{group}-producers", namesrv=cluster.namesrv) as producer,
        consumer,
    ):
        await producer.send(Message(topic, b"again", keys="k", properties={"own": "kept"}))
        (dead,) = await dead_letters(cluster, group, 1)
        await producer.send(dead.as_message())
        await seen.count(1)

    (again,) = seen.messages
    assert (again.topic, again.body, again.keys) == (topic, b"again", ("k",))
    assert (again.properties["own"], again.reconsume_times) == ("kept", 0)
    assert "DELAY" not in again.properties
