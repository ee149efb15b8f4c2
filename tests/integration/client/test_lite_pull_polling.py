"""A lite pull consumer on a real broker: what polls return, and where they resume."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client.aio import LitePullConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.core.subscriptions import by_sql
from orbitmq.errors import (
    OffsetRefusedError,
    RemoteError,
    SettingsError,
    StateError,
    UnknownOptionError,
)
from tests.integration.client.conftest import Cluster
from tests.integration.client.pulling import bodies, polled, queue_of, send
from tests.waiting import until

POLL_MS = 60_000


def consumer(cluster: Cluster, group: str, **options: object) -> LitePullConsumer:
    chosen = {"namesrv": cluster.namesrv, "consume_from": "first", **options}
    return LitePullConsumer(group, **chosen)  # type: ignore[arg-type]  # any option of any type


# --- subscribing and assigning --------------------------------------------------------------------


async def test_a_subscriber_gets_the_messages_of_all_queues(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic, queues=2)
    await send(cluster, topic, "a", "b", queue_id=0)
    await send(cluster, topic, "c", queue_id=1)

    async with consumer(cluster, group) as polling:
        polling.subscribe(topic)
        found = await polled(polling, 3)

        assert sorted(found) == ["a", "b", "c"]
        assert found.index("a") < found.index("b")
        assert sorted(polling.assignment()) == [queue_of(topic, 0), queue_of(topic, 1)]
    # An ordinary start logs no warning.
    assert caplog.records == []


async def test_a_subscription_made_before_the_start_counts(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    polling = consumer(cluster, group)
    polling.subscribe(topic)

    async with polling:
        await send(cluster, topic, "a")

        assert await polled(polling, 1) == ["a"]


async def test_only_subscribed_tags_are_returned(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, "no", TAGS="draft")
    await send(cluster, topic, "yes", TAGS="paid")
    # Aa and BB have the same hash in Java.
    await send(cluster, topic, "same hash", TAGS="BB")
    await send(cluster, topic, "last", TAGS="Aa")

    async with consumer(cluster, group) as polling:
        polling.subscribe(topic, "paid || Aa")

        assert await polled(polling, 2) == ["yes", "last"]


async def test_only_messages_that_match_a_condition_are_returned(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, "cheap", price="2")
    await send(cluster, topic, "dear", price="4")

    async with consumer(cluster, group) as polling:
        polling.subscribe(topic, by_sql("price > 3"))

        assert await polled(polling, 1) == ["dear"]


async def test_an_invalid_condition_fails_the_start(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    polling = consumer(cluster, group)
    polling.subscribe(topic, by_sql("price >"))

    with pytest.raises(RemoteError, match="price >"):
        await polling.start()


async def test_assigned_queues_are_read_and_no_others(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=3)
    for queue_id in range(3):
        await send(cluster, topic, f"q{queue_id}", queue_id=queue_id, TAGS="paid")
        await send(cluster, topic, f"x{queue_id}", queue_id=queue_id)

    async with consumer(cluster, group) as polling:
        queues = await polling.queues(topic)
        assert queues == [queue_of(topic, queue_id) for queue_id in range(3)]
        polling.assign(queues[:2], "paid")

        assert sorted(await polled(polling, 2)) == ["q0", "q1"]
        polling.assign(queues[2:])
        assert polling.assignment() == queues[2:]
        assert await polled(polling, 2) == ["q2", "x2"]


async def test_a_consumer_subscribes_or_is_assigned_queues_but_not_both(
    cluster: Cluster, topic: str, group: str
) -> None:
    subscriber, assigned = consumer(cluster, group), consumer(cluster, group)
    subscriber.subscribe(topic)
    assigned.assign([queue_of(topic)])

    with pytest.raises(StateError, match="subscribes to topics"):
        subscriber.assign([queue_of(topic)])
    with pytest.raises(StateError, match="has queues assigned"):
        assigned.subscribe(topic)
    with pytest.raises(SettingsError, match="no queue is assigned"):
        assigned.assign([])


async def test_a_topic_can_be_unsubscribed(cluster: Cluster, topic: str, group: str) -> None:
    other = f"{topic}-other"
    await cluster.make_topic(topic, queues=1)
    await cluster.make_topic(other, queues=1)

    async with consumer(cluster, group) as polling:
        polling.subscribe(topic)
        polling.subscribe(other)
        await until(lambda: len(polling.assignment()) == 2)
        polling.unsubscribe(other)
        await until(lambda: len(polling.assignment()) == 1)
        await send(cluster, other, "not for us")
        await send(cluster, topic, "for us")

        assert await polled(polling, 1) == ["for us"]


# --- polling ------------------------------------------------------------------------------------


async def test_a_poll_waits_for_a_message(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    async with consumer(cluster, group) as polling:
        polling.assign([queue_of(topic)])
        waiting = asyncio.ensure_future(polling.poll(POLL_MS))
        await until(lambda: polling.position(queue_of(topic)) == 0)

        await send(cluster, topic, "late")

        assert bodies(await waiting) == ["late"]


async def test_a_poll_returns_an_empty_list_on_timeout(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    async with consumer(cluster, group, poll_timeout_ms=1) as polling:
        polling.assign([queue_of(topic)])

        assert await polling.poll(1) == []
        assert await polling.poll(0) == []
        assert await polling.poll() == []


async def test_a_poll_returns_no_more_than_it_is_asked_for(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abcde")
    async with consumer(cluster, group, pull_batch_size=4) as polling:
        polling.assign([queue_of(topic)])

        assert bodies(await polling.poll(POLL_MS, max_messages=1)) == ["a"]
        assert bodies(await polling.poll(POLL_MS, max_messages=2)) == ["b", "c"]
        assert await polled(polling, 2) == ["d", "e"]


async def test_messages_can_be_iterated_over(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abc")
    found = []

    async with consumer(cluster, group) as polling:
        polling.subscribe(topic)
        async for message in polling:
            found.append(message.body.decode())
            if len(found) == 3:
                break

    assert found == ["a", "b", "c"]


async def test_an_iteration_ends_when_the_consumer_stops(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    polling = consumer(cluster, group)
    polling.subscribe(topic)
    await polling.start()

    async def collect() -> list[bytes]:
        return [message.body async for message in polling]

    collecting = asyncio.ensure_future(collect())
    await until(lambda: len(polling.assignment()) == 1)
    await polling.stop()

    assert await collecting == []


async def test_a_pending_poll_ends_when_the_consumer_stops(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    polling = consumer(cluster, group)
    polling.assign([queue_of(topic)])
    await polling.start()
    waiting = asyncio.ensure_future(polling.poll(60_000))
    await until(lambda: polling.position(queue_of(topic)) == 0)

    await polling.stop()

    assert await waiting == []
    with pytest.raises(StateError, match="is stopped"):
        await polling.poll(0)


async def test_no_more_is_read_ahead_than_there_is_room_for(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=2)
    numbers = [str(number) for number in range(40)]
    await send(cluster, topic, *numbers, queue_id=0)
    await send(cluster, topic, *numbers, queue_id=1)

    async with consumer(
        cluster, group, pull_batch_size=4, pull_threshold_for_queue=6, pull_threshold_for_all=9
    ) as polling:
        polling.assign([queue_of(topic, 0), queue_of(topic, 1)])
        assert polling._member is not None
        buffer = polling._member.buffer
        await until(lambda: buffer.count >= 9)
        found: list[ReceivedMessage] = []
        while len(found) < 80:
            # Neither of two pulls in flight knows how many messages the other will return.
            assert buffer.count < 9 + 4
            assert all(len(buffer.buffered(queue)) <= 6 for queue in buffer.queues)
            found += await polling.poll(POLL_MS, max_messages=3)

    for queue_id in (0, 1):
        assert bodies(m for m in found if m.queue_id == queue_id) == numbers


# --- seeking ------------------------------------------------------------------------------------


async def test_a_seek_goes_back_and_forth(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abcd")
    async with consumer(cluster, group) as polling:
        queue = queue_of(topic)
        polling.assign([queue])
        assert await polled(polling, 4) == ["a", "b", "c", "d"]

        await polling.seek(queue, 1)
        assert await polled(polling, 3) == ["b", "c", "d"]
        await polling.seek_to_begin(queue)
        assert await polled(polling, 4) == ["a", "b", "c", "d"]
        await polling.seek_to_begin(queue)
        await polling.seek_to_end(queue)
        await send(cluster, topic, "e")
        assert await polled(polling, 1) == ["e"]
        assert polling.position(queue) == 5


async def test_a_seek_before_anything_was_read_counts(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abcd")
    async with consumer(cluster, group) as polling:
        polling.assign([queue_of(topic)])

        await polling.seek(queue_of(topic), 2)

        assert await polled(polling, 2) == ["c", "d"]


async def test_no_message_from_before_a_seek_is_returned_after_it(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    queue = queue_of(topic)
    await send(cluster, topic, *(str(number) for number in range(200)))

    async with consumer(cluster, group, pull_batch_size=3) as polling:
        polling.assign([queue])
        for round_number in range(60):
            target = (round_number * 37) % 200
            # Pulls are in flight, and their replies may arrive at any moment.
            await polling.poll(1, max_messages=1 + round_number % 3)
            await polling.seek(queue, target)

            found = await polling.poll(POLL_MS, max_messages=5)

            offsets = [message.queue_offset for message in found]
            assert offsets == list(range(target, target + len(offsets)))
            assert offsets


async def test_a_seek_ends_a_held_pull(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    queue = queue_of(topic)
    await send(cluster, topic, *"ab")
    async with consumer(cluster, group) as polling:
        polling.assign([queue])
        await polling.seek_to_end(queue)
        waiting = asyncio.ensure_future(polling.poll(POLL_MS))
        await until(lambda: len(cluster.brokers["broker-a"].parts.long_polls) > 0)

        await polling.seek_to_begin(queue)

        assert bodies(await waiting) == ["a", "b"]


async def test_a_seek_outside_the_queue_is_refused(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"ab")
    async with consumer(cluster, group) as polling:
        polling.assign([queue_of(topic)])

        with pytest.raises(OffsetRefusedError, match=r"offset 3 .* which has 0 to 2"):
            await polling.seek(queue_of(topic), 3)
        with pytest.raises(StateError, match="is not read by this consumer"):
            await polling.seek(queue_of(topic, 9), 0)


async def test_a_committed_offset_after_the_end_skips_no_message(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    queue = queue_of(topic)
    await send(cluster, topic, *"ab")
    # As a crash leaves it that loses the end of the log.
    cluster.brokers["broker-a"].offsets.commit(group, topic, 0, 50)

    async with consumer(cluster, group) as polling:
        polling.assign([queue])
        assert await polled(polling, 2) == ["a", "b"]
        await send(cluster, topic, "c")

        assert await polled(polling, 1) == ["c"]
        await polling.commit()
        assert await polling.committed(queue) == 3


# --- pausing ------------------------------------------------------------------------------------


async def test_a_paused_queue_waits(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=2)
    first, second = queue_of(topic, 0), queue_of(topic, 1)
    async with consumer(cluster, group) as polling:
        polling.assign([first, second])
        polling.pause([first])
        await send(cluster, topic, "paused", queue_id=0)
        await send(cluster, topic, "open", queue_id=1)

        assert await polled(polling, 1) == ["open"]
        assert await polling.poll(50) == []
        polling.resume([first])
        assert await polled(polling, 1) == ["paused"]
        with pytest.raises(StateError, match="is not read by this consumer"):
            polling.pause([queue_of(topic, 5)])


# --- misuse -------------------------------------------------------------------------------------


async def test_misuse_is_refused(cluster: Cluster, topic: str, group: str) -> None:
    polling = consumer(cluster, group)
    with pytest.raises(StateError, match=r"is not started \(call start\(\)"):
        await polling.poll()
    with pytest.raises(StateError, match="is not started"):
        await polling.queues(topic)

    async with polling:
        with pytest.raises(StateError, match="nothing to poll"):
            await polling.poll()
        with pytest.raises(StateError, match="already started"):
            await polling.start()

    with pytest.raises(StateError, match="is stopped"):
        polling.subscribe(topic)
    with pytest.raises(StateError, match="is stopped"):
        await polling.start()
    with pytest.raises(UnknownOptionError, match="did you mean poll_timeout_ms"):
        consumer(cluster, group, poll_timeout=1)


async def test_times_and_bounds_of_a_queue_can_be_queried(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    queue = queue_of(topic)
    async with consumer(cluster, group) as polling:
        assert await polling.oldest_ms(queue) is None
        await send(cluster, topic, *"ab")
        polling.assign([queue])
        messages = [m for _ in range(2) for m in await polling.poll(POLL_MS, max_messages=1)]

        assert await polling.min_offset(queue) == 0
        assert await polling.max_offset(queue) == 2
        assert await polling.oldest_ms(queue) == messages[0].store_ms
        assert await polling.offset_for_time(queue, messages[0].store_ms) == 0
        assert await polling.offset_for_time(queue, messages[1].store_ms + 1) == 2
