"""Our consumers at our broker and at official ones: each kind receives what it should, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from orbitmq.client import Message, by_sql
from orbitmq.client.aio import Admin, LitePullConsumer, Producer
from orbitmq.client.aio.group.offset_stores import BrokerOffsets
from orbitmq.client.aio.group.start_offsets import StartOffsets
from orbitmq.client.aio.instance.broker_calls import BrokerCalls
from orbitmq.client.core.consuming.consume_results import RETRY_LATER, SUSPEND
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.clock import SystemClock
from orbitmq.errors import RemoteError
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import FROM_LAST_OFFSET
from tests.interop import wire
from tests.interop.python_trials import Trial, numbered, sorted_bodies
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import beside, until_reached

pytestmark = pytest.mark.interop

MESSAGES = 40
ALL = sorted(numbered(MESSAGES))
POLL_MS = 200
RECEIVE_TIMEOUT_S = CLIENT_TIMEOUT_S


async def send_numbered(producer: Producer, topic: str, count: int, *, first: int = 0) -> None:
    for body in numbered(count, first=first):
        await producer.send(Message(topic, body))


@pytest.mark.scenario("site", "push: in any order, in order")
@pytest.mark.parametrize("kind", ["concurrent", "ordered"])
async def test_push_consumer_receives_each_message_once_and_goes_on_later(
    trial: Trial, kind: str
) -> None:
    ordered = kind == "ordered"
    producer = await trial.producer()
    await send_numbered(producer, trial.topic, MESSAGES)
    consumer, inbox = await trial.push(ordered=ordered, persist_interval_ms=500)
    before = sorted_bodies(await inbox.wait(MESSAGES))
    await send_numbered(producer, trial.topic, MESSAGES, first=MESSAGES)
    received = await inbox.wait_exactly(2 * MESSAGES)
    await trial.committed(2 * MESSAGES)
    await consumer.stop()
    await send_numbered(producer, trial.topic, 4, first=2 * MESSAGES)
    _, later = await trial.push(ordered=ordered)
    rest = await later.wait_exactly(4)

    assert before == ALL
    assert sorted_bodies(received) == sorted(numbered(2 * MESSAGES))
    for queue_id in range(4):
        offsets = [m.queue_offset for m in received if m.queue_id == queue_id]
        assert (offsets if ordered else sorted(offsets)) == list(range(2 * MESSAGES // 4))
    assert sorted_bodies(rest) == sorted(numbered(4, first=2 * MESSAGES))


class FirstMessageArrives:
    """Calls to a broker that stores the first message just before it is asked for the end."""

    def __init__(self, producer: Producer, topic: str, calls: BrokerCalls) -> None:
        self._producer = producer
        self._topic = topic
        self._calls = calls

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._calls.min_offset(queue)

    async def max_offset(self, queue: MessageQueue, *, at_master: bool = False) -> int:
        await self._producer.send(Message(self._topic, b"first"), queue=queue)
        return await self._calls.max_offset(queue, at_master=at_master)

    async def offset_at(
        self, queue: MessageQueue, timestamp_ms: int, *, at_master: bool = False
    ) -> int:
        return await self._calls.offset_at(queue, timestamp_ms, at_master=at_master)


@pytest.mark.scenario("site", "a new group skips no first message that arrives as it starts")
async def test_new_group_does_not_skip_the_first_message_of_an_empty_queue(trial: Trial) -> None:
    producer = await trial.producer()
    assert producer._instance is not None
    calls = producer._instance.brokers
    queue, *_ = await producer.queues(trial.topic)
    starts = StartOffsets(
        BrokerOffsets(trial.group, calls, SystemClock()),
        FirstMessageArrives(producer, trial.topic, calls),
        consume_from=FROM_LAST_OFFSET,
        timestamp_ms=0,
    )

    assert await starts.of(queue) == 0


@pytest.mark.scenario("site", "a topic that is created again is read from its first message")
async def test_topic_that_was_deleted_and_created_again_is_read_from_its_first_message(
    trial: Trial,
) -> None:
    producer = await trial.producer()
    consumer, inbox = await trial.push(pull_retry_ms=200)
    await send_numbered(producer, trial.topic, MESSAGES)
    await inbox.wait(MESSAGES)
    # Official brokers hold a pull of a deleted topic, and would answer it from the new one.
    consumer.pause()
    await send_numbered(producer, trial.topic, 4, first=MESSAGES)
    await inbox.wait(MESSAGES + 4)
    async with Admin(namesrv=trial.site.name_server) as admin:
        # An official broker without timers fails at the end of this, once the queues are gone.
        with suppress(RemoteError):
            await admin.topics.delete(trial.topic)
        await admin.topics.create(trial.topic, queues=4)
    await send_numbered(producer, trial.topic, 8, first=100)
    consumer.resume()

    received = await inbox.wait(MESSAGES + 12)

    assert sorted_bodies(received[MESSAGES + 4 :]) == sorted(numbered(8, first=100))


@pytest.mark.scenario("site", "broadcast: to all, from the last, from a time, on from its file")
async def test_broadcast_reaches_every_consumer_and_starts_where_it_says(
    trial: Trial, tmp_path: Path
) -> None:
    producer = await trial.producer()
    await send_numbered(producer, trial.topic, 4)
    clock = SystemClock()
    # Times are asked for by the second, and RocketMQ 4.9 starts at the message that is nearest: those
    # before are further away than the next one is late.
    second_ms = (clock.now_ms() // 1000 + 4) * 1000
    await clock.sleep_ms(second_ms - clock.now_ms() + 1)
    await send_numbered(producer, trial.topic, 4, first=4)
    model = "BROADCASTING"
    folders = [tmp_path / name for name in ("first", "last", "time")]
    first, from_first = await trial.push(
        message_model=model,
        local_offset_dir=folders[0],
        consume_from="first",
        instance_name="first",
    )
    # Official brokers show messages after their reply, and find by time only what they show.
    await from_first.wait(8)
    last, from_last = await trial.push(
        message_model=model, local_offset_dir=folders[1], consume_from="last", instance_name="last"
    )
    _, from_time = await trial.push(
        message_model=model,
        local_offset_dir=folders[2],
        instance_name="time",
        consume_from="timestamp",
        consume_timestamp_ms=second_ms,
    )
    await from_time.wait(4)
    # With its queues it has found their ends.
    await until_reached(lambda: len(last.queues) == 4, timeout_s=RECEIVE_TIMEOUT_S, what="queues")
    await send_numbered(producer, trial.topic, 4, first=8)

    assert sorted_bodies(await from_first.wait_exactly(12)) == sorted(numbered(12))
    assert sorted_bodies(await from_time.wait_exactly(8)) == sorted(numbered(8, first=4))
    assert sorted_bodies(await from_last.wait_exactly(4)) == sorted(numbered(4, first=8))

    await first.stop()
    await send_numbered(producer, trial.topic, 2, first=12)
    _, again = await trial.push(
        message_model=model,
        local_offset_dir=folders[0],
        consume_from="first",
        instance_name="first",
    )
    assert sorted_bodies(await again.wait_exactly(2)) == sorted(numbered(2, first=12))


@pytest.mark.scenario("site", "tags, SQL92")
async def test_consumers_receive_what_they_asked_for(trial: Trial) -> None:
    # "Aa" and "BB" have the same hash in Java, which is what the broker filters by.
    tags = ["red", "green", "Aa", "BB", "żółć"]
    producer = await trial.producer()
    for tag in tags:
        for size in range(5):
            await producer.send(
                Message(
                    trial.topic,
                    f"{tag} {size}",
                    tags=tag,
                    properties={"color": tag, "size": str(size)},
                )
            )
    await producer.send(Message(trial.topic, "without properties"))

    _, by_tags = await trial.push("red || Aa || żółć", group=f"{trial.group}-tags")
    _, selected = await trial.push(
        by_sql("color IN ('red', 'BB') AND size BETWEEN 2 AND 3"), group=f"{trial.group}-sql"
    )
    await asyncio.gather(by_tags.wait(15), selected.wait(4))
    await by_tags.wait_exactly(15)
    await selected.wait_exactly(4)

    assert Counter(m.tags for m in by_tags.messages) == {"red": 5, "Aa": 5, "żółć": 5}
    assert sorted_bodies(selected.messages) == [b"BB 2", b"BB 3", b"red 2", b"red 3"]


def _fails(message: ReceivedMessage) -> object:
    if message.body == b"raises":
        raise ValueError("a listener's own trouble")
    return RETRY_LATER if message.body == b"poison" else None


@pytest.mark.scenario("site", "retry, then the dead-letter topic")
async def test_failing_message_comes_again_and_ends_among_the_dead_letters(trial: Trial) -> None:
    producer = await trial.producer()
    _, inbox = await trial.push(verdict=_fails, max_reconsume_times=2)
    await producer.send(
        Message(trial.topic, "poison", tags="t", keys=["poison-key"], properties={"mine": "kept"})
    )
    await producer.send(Message(trial.topic, "raises"))
    await producer.send(Message(trial.topic, "fine"))

    received = await inbox.wait(7)
    dead_letters = f"%DLQ%{trial.group}"
    await beside(
        wire.wait_route_code,
        trial.site.name_server,
        dead_letters,
        wire.SUCCESS,
        timeout_s=CLIENT_TIMEOUT_S,
    )
    _, undertaker = await trial.push(topic=dead_letters, group=f"{trial.group}-dead")
    dead = {m.body: m for m in await undertaker.wait_exactly(2)}
    nothing_more = await inbox.wait_exactly(7)

    for body in (b"poison", b"raises"):
        tries = [m for m in received if m.body == body]
        assert [m.reconsume_times for m in tries] == [0, 1, 2]
        assert {m.topic for m in tries} == {trial.topic}
        assert len({m.message_id for m in tries}) == 1
        assert [m.properties.get("DELAY") for m in (*tries, dead[body])] == [None, "3", "4", "0"]
    assert len(nothing_more) == 7
    assert set(dead) == {b"poison", b"raises"}
    assert dead[b"poison"].keys == ("poison-key",)
    assert dead[b"poison"].properties["mine"] == "kept"


@pytest.mark.scenario("site", "ordered: a failed message is tried again in its place")
async def test_ordered_consumer_tries_again_in_place(trial: Trial) -> None:
    seen: Counter[bytes] = Counter()

    def fails_once(message: ReceivedMessage) -> object:
        seen[message.body] += 1
        return SUSPEND if seen[message.body] == 1 else None

    producer = await trial.producer()
    queue = (await producer.queues(trial.topic))[1]
    for body in numbered(3):
        await producer.send(Message(trial.topic, body), queue=queue)
    _, inbox = await trial.push(ordered=True, verdict=fails_once, suspend_current_queue_ms=100)

    received = await inbox.wait_exactly(6)

    assert [m.body for m in received] == [body for body in numbered(3) for _ in range(2)]
    assert inbox.reconsume_times == [0, 1] * 3


async def poll_all(consumer: LitePullConsumer, count: int) -> list[ReceivedMessage]:
    """Poll until so many messages came."""
    got: list[ReceivedMessage] = []
    async with asyncio.timeout(RECEIVE_TIMEOUT_S):
        while len(got) < count:
            got += await consumer.poll(timeout_ms=POLL_MS)
    return got


@pytest.mark.scenario("site", "lite pull: subscribe, commit; assign, seek, pause")
async def test_lite_pull_consumer_polls_commits_and_seeks(trial: Trial) -> None:
    producer = await trial.producer()
    await send_numbered(producer, trial.topic, MESSAGES)

    subscribed = trial.lite_pull(consume_from="first", auto_commit=False)
    subscribed.subscribe(trial.topic)
    await subscribed.start()
    received = await poll_all(subscribed, MESSAGES)
    await subscribed.commit()
    committed = [await subscribed.committed(q) for q in await subscribed.queues(trial.topic)]
    await subscribed.stop()

    again = trial.lite_pull(consume_from="first")
    again.subscribe(trial.topic)
    await again.start()
    await send_numbered(producer, trial.topic, 4, first=MESSAGES)
    rest = await poll_all(again, 4)
    await again.stop()

    assigned = trial.lite_pull(group=f"{trial.group}-assigned", consume_from="first")
    await trial.opened(assigned)
    (chosen, other, *_) = await assigned.queues(trial.topic)
    assigned.assign([chosen, other])
    await poll_all(assigned, 22)
    await assigned.seek(chosen, 3)
    sought = await poll_all(assigned, 8)
    await assigned.seek_to_begin(other)
    from_begin = await poll_all(assigned, 11)
    assigned.pause([chosen])
    await assigned.seek_to_end(other)
    await assigned.seek_to_begin(chosen)
    while_paused = await assigned.poll(timeout_ms=500)
    assigned.resume([chosen])
    resumed = await poll_all(assigned, 11)

    assert sorted_bodies(received) == ALL
    assert committed == [MESSAGES // 4] * 4
    assert sorted_bodies(rest) == sorted(numbered(4, first=MESSAGES))
    assert [(m.queue, m.queue_offset) for m in sought] == [(chosen, n) for n in range(3, 11)]
    assert [(m.queue, m.queue_offset) for m in from_begin] == [(other, n) for n in range(11)]
    assert while_paused == []
    assert [(m.queue, m.queue_offset) for m in resumed] == [(chosen, n) for n in range(11)]


@pytest.mark.scenario("site", "pull: by hand, held, offsets, by time")
async def test_pull_consumer_reads_a_queue_by_hand(trial: Trial) -> None:
    producer = await trial.producer()
    puller = await trial.pull()
    queue = (await puller.queues(trial.topic))[2]
    for number, body in enumerate(numbered(10)):
        await producer.send(Message(trial.topic, body, tags=f"t{number % 2}"), queue=queue)
    await trial.shown(10)

    first = await puller.pull(queue, "*", 0, 4)
    odd = await puller.pull(queue, "t1", 0, 32)
    held = asyncio.create_task(puller.pull_held(queue, "*", 10, 32))
    late = await producer.send(Message(trial.topic, "late"), queue=queue)
    # A broker holds a pull for a while only.
    while not (arrived := await held).messages:
        held = asyncio.create_task(puller.pull_held(queue, "*", 10, 32))
    await puller.commit({queue: 11})

    assert [m.body for m in first.messages] == numbered(4)
    assert first.next_offset == 4
    assert [m.body for m in odd.messages] == numbered(10)[1::2]
    assert [(m.body, m.queue_offset) for m in arrived.messages] == [(b"late", late.queue_offset)]
    assert await puller.min_offset(queue) == 0
    assert await puller.max_offset(queue) == 11
    assert await puller.offset_for_time(queue, first.messages[0].store_ms) == 0
    assert await puller.committed(queue) == 11
