"""Lite pull consumers as members of a group: offsets, sharing, broadcasting, what operators see."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.client.aio import LitePullConsumer
from orbitmq.clock import ManualClock
from orbitmq.errors import OffsetRefusedError, RemoteError, StateError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.clients import ConsumerConnections, ListConsumerConnections
from orbitmq.protocol.requests.offsets import GetCommittedOffset, OffsetReply, ResetOffsets
from orbitmq.protocol.requests.relays import GetRunningConsumer, RunningConsumer
from tests.integration.client.conftest import Cluster
from tests.integration.client.pulling import bodies, polled, queue_of, send
from tests.waiting import until

POLL_MS = 60_000
COMMIT_MS = 5_000


def consumer(cluster: Cluster, group: str, **options: object) -> LitePullConsumer:
    chosen = {"namesrv": cluster.namesrv, "consume_from": "first", **options}
    return LitePullConsumer(group, **chosen)  # type: ignore[arg-type]  # any option of any type


async def committed(cluster: Cluster, group: str, queue: MessageQueue) -> int | None:
    header = GetCommittedOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, zero_if_missing=False
    )
    try:
        reply = await cluster.rpc.call(cluster.address(queue.broker_name), header)
    except RemoteError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return OffsetReply.decode(reply.fields).offset


# --- offsets ------------------------------------------------------------------------------------


async def test_a_group_resumes_where_it_committed(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abcd")
    async with consumer(cluster, group) as polling:
        polling.subscribe(topic)
        assert bodies(await polling.poll(POLL_MS, max_messages=2)) == ["a", "b"]
        await polling.commit()
        assert await polling.committed(queue_of(topic)) == 2

    assert await committed(cluster, group, queue_of(topic)) == 2
    async with consumer(cluster, group) as polling:
        polling.subscribe(topic)
        assert await polled(polling, 2) == ["c", "d"]


async def test_what_the_last_poll_returned_comes_again_unless_it_was_committed(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abc")
    async with consumer(cluster, group) as polling:
        polling.subscribe(topic)
        await polling.poll(POLL_MS, max_messages=1)
        await polling.poll(POLL_MS, max_messages=1)

    async with consumer(cluster, group) as polling:
        polling.subscribe(topic)
        assert await polled(polling, 2) == ["b", "c"]


async def test_a_program_that_fails_on_a_message_gets_it_again(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abc")

    async def work() -> None:
        async with consumer(cluster, group) as polling:
            polling.subscribe(topic)
            async for message in polling:
                if message.body == b"b":
                    raise ValueError("b is bad")

    with pytest.raises(ValueError, match="b is bad"):
        await work()

    assert await committed(cluster, group, queue_of(topic)) == 1


async def test_offsets_are_committed_periodically_up_to_the_previous_poll(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abcd")
    clock = ManualClock()
    polling = consumer(cluster, group, clock=clock, heartbeat_interval_ms=86_400_000)
    polling.subscribe(topic)
    async with polling:
        await polling.poll(POLL_MS, max_messages=2)
        await clock.advance(COMMIT_MS)
        # The commit is oneway; the next request on the same connection is handled after it.
        await polling.max_offset(queue_of(topic))
        assert not await committed(cluster, group, queue_of(topic))

        await polling.poll(POLL_MS, max_messages=1)
        await clock.advance(COMMIT_MS)
        await polling.max_offset(queue_of(topic))
        assert await committed(cluster, group, queue_of(topic)) == 2


async def test_nothing_is_committed_automatically_without_auto_commit(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abc")
    async with consumer(cluster, group, auto_commit=False) as polling:
        polling.subscribe(topic)
        await polling.poll(POLL_MS, max_messages=2)
        await polling.poll(POLL_MS, max_messages=1)

    async with consumer(cluster, group, auto_commit=False) as polling:
        polling.subscribe(topic)
        assert await polled(polling, 3) == ["a", "b", "c"]
        await polling.commit({queue_of(topic): 1})

    async with consumer(cluster, group, auto_commit=False) as polling:
        polling.subscribe(topic)
        assert await polled(polling, 2) == ["b", "c"]


async def test_messages_that_a_filter_leaves_out_count_as_done(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abc", TAGS="draft")
    async with consumer(cluster, group) as polling:
        polling.subscribe(topic, "paid")
        await until(lambda: polling.assignment() == [queue_of(topic)])
        await until(lambda: polling.position(queue_of(topic)) == 3)

    assert await committed(cluster, group, queue_of(topic)) == 3


async def test_a_seek_back_is_committed_too(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abcd")
    async with consumer(cluster, group) as polling:
        polling.subscribe(topic)
        await polled(polling, 4)
        await polling.commit()
        await polling.seek(queue_of(topic), 1)

    assert await committed(cluster, group, queue_of(topic)) == 1


async def test_reading_assigned_queues_commits_nothing_unasked(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=2)
    await send(cluster, topic, *"ab")
    async with consumer(cluster, group, auto_commit=False) as polling:
        polling.assign([queue_of(topic), queue_of(topic, 1)])
        await polled(polling, 2)
        polling.assign([queue_of(topic)])
        await polling.seek_to_begin(queue_of(topic))

    assert [broker.offsets.topics_of(group) for broker in cluster.brokers.values()] == [[]]


async def test_invalid_offsets_are_refused(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    async with consumer(cluster, group) as polling:
        polling.assign([queue_of(topic)])

        with pytest.raises(OffsetRefusedError, match="offset -1 cannot be committed"):
            await polling.commit({queue_of(topic): -1})
        with pytest.raises(StateError, match="is not read by this consumer"):
            await polling.commit({queue_of(topic, 7): 1})


@pytest.mark.parametrize(
    ("consume_from", "expected"), [("last", ["c"]), ("first", ["a", "b", "c"])]
)
async def test_a_new_group_starts_where_configured(
    cluster: Cluster, topic: str, group: str, consume_from: str, expected: list[str]
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"ab")
    # A broker lets a new group read all of a queue from which nothing was deleted yet.
    async with consumer(cluster, "somebody-else") as other:
        other.assign([queue_of(topic)])
    async with consumer(cluster, group, consume_from=consume_from) as polling:
        polling.assign([queue_of(topic)])
        await until(lambda: polling.position(queue_of(topic)) is not None)
        if polling.position(queue_of(topic)) == 0:
            expected = ["a", "b", "c"]
        await send(cluster, topic, "c")

        assert await polled(polling, len(expected)) == expected


async def test_a_new_group_can_start_at_a_time(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"ab")
    async with consumer(cluster, f"{group}-first") as polling:
        polling.assign([queue_of(topic)])
        messages = [m for _ in range(2) for m in await polling.poll(POLL_MS, max_messages=1)]
    chosen_ms = messages[1].store_ms
    first = 1 if messages[0].store_ms < chosen_ms else 0

    async with consumer(
        cluster, group, consume_from="timestamp", consume_timestamp_ms=chosen_ms
    ) as polling:
        polling.assign([queue_of(topic)])
        await until(lambda: polling.position(queue_of(topic)) is not None)

        assert polling.position(queue_of(topic)) in {0, first}


# --- sharing ------------------------------------------------------------------------------------


async def test_members_share_the_queues_of_a_topic(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=4)
    told: list[tuple[str, list[MessageQueue]]] = []
    one = consumer(cluster, group, on_assigned=lambda *change: told.append(change))
    two = consumer(cluster, group)
    one.subscribe(topic)
    two.subscribe(topic)
    async with one:
        await until(lambda: len(one.assignment()) == 4)
        async with two:
            await until(lambda: (len(one.assignment()), len(two.assignment())) == (2, 2))
            assert not set(one.assignment()) & set(two.assignment())
            for queue_id in range(4):
                await send(cluster, topic, f"q{queue_id}", queue_id=queue_id)
            halves = await asyncio.gather(polled(one, 2), polled(two, 2))
            assert sorted(halves[0] + halves[1]) == ["q0", "q1", "q2", "q3"]
            await asyncio.gather(one.commit(), two.commit())
        await until(lambda: len(one.assignment()) == 4)

    assert [len(queues) for told_topic, queues in told if told_topic == topic] == [4, 2, 4]
    for queue_id in range(4):
        assert await committed(cluster, group, queue_of(topic, queue_id)) == 1


async def test_a_member_that_leaves_hands_over_what_it_did_not_finish(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abc")
    one = consumer(cluster, group)
    one.subscribe(topic)
    await one.start()
    await one.poll(POLL_MS, max_messages=1)
    await one.poll(POLL_MS, max_messages=1)
    two = consumer(cluster, group)
    two.subscribe(topic)

    async with two:
        await one.stop()
        assert await polled(two, 2) == ["b", "c"]


async def test_every_member_of_a_broadcasting_group_gets_everything(
    cluster: Cluster, topic: str, group: str, tmp_path: Path
) -> None:
    await cluster.make_topic(topic, queues=2)
    await send(cluster, topic, "a", queue_id=0)
    await send(cluster, topic, "b", queue_id=1)
    folder = tmp_path / "offsets"

    def member(name: str) -> LitePullConsumer:
        made = consumer(
            cluster,
            group,
            message_model="BROADCASTING",
            local_offset_dir=folder,
            instance_name=name,
        )
        made.subscribe(topic)
        return made

    async with member("one") as one, member("two") as two:
        assert sorted(await polled(one, 2)) == ["a", "b"]
        assert sorted(await polled(two, 2)) == ["a", "b"]
        await one.commit()
        await send(cluster, topic, "c", queue_id=0)

    # One resumes where it was; the other has committed nothing.
    async with member("one") as one, member("two") as two:
        assert await polled(one, 1) == ["c"]
        assert sorted(await polled(two, 3)) == ["a", "b", "c"]
    assert len(list(folder.rglob("offsets.json"))) == 2


# --- topics and namespaces ------------------------------------------------------------------------


async def test_a_listener_is_called_when_a_topic_gets_queues(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    heard: list[tuple[str, list[MessageQueue]]] = []

    async def listener(changed: str, queues: list[MessageQueue]) -> None:
        heard.append((changed, queues))

    polling = consumer(cluster, group, route_interval_ms=100)
    await polling.on_queues_changed(topic, listener)
    async with polling:
        assert len(await polling.queues(topic)) == 1
        await cluster.make_topic(topic, queues=3)
        await until(lambda: bool(heard))

    assert heard == [(topic, [queue_of(topic, queue_id) for queue_id in range(3)])]


async def test_a_listener_can_be_added_later_and_may_fail(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer(cluster, group, route_interval_ms=100) as polling:

        def listener(_topic: str, _queues: list[MessageQueue]) -> None:
            raise ValueError("not my day")

        await polling.on_queues_changed(topic, listener)
        await cluster.make_topic(topic, queues=1)
        await until(lambda: "not my day" in caplog.text)


async def test_names_are_those_of_the_namespace(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(f"tenant%{topic}", queues=1)
    await send(cluster, f"tenant%{topic}", "a")
    told: list[tuple[str, list[MessageQueue]]] = []
    async with consumer(
        cluster, group, namespace="tenant", on_assigned=lambda *change: told.append(change)
    ) as polling:
        polling.subscribe(topic)
        (message,) = await polling.poll(POLL_MS)
        await polling.commit()

        assert message.topic == topic
        assert polling.assignment() == await polling.queues(topic) == [queue_of(topic)]
        assert await polling.committed(queue_of(topic)) == 1
        await polling.seek(message.queue, 0)
        assert await polled(polling, 1) == ["a"]
        assert told == [(topic, [queue_of(topic)])]

    wrapped = queue_of(f"tenant%{topic}")
    assert await committed(cluster, f"tenant%{group}", wrapped) == 0


# --- what operators see and do --------------------------------------------------------------------


async def test_an_operator_sees_the_consumer(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abc")
    async with consumer(cluster, group) as polling:
        polling.subscribe(topic, "*")
        await polling.poll(POLL_MS, max_messages=1)
        reply = await cluster.rpc.call(
            cluster.address(), ListConsumerConnections(consumer_group=group)
        )
        seen = java_json.decode(reply.body, ConsumerConnections)
        assert (seen.consume_type, seen.message_model) == ("CONSUME_ACTIVELY", "CLUSTERING")
        assert set(seen.subscriptions) == {topic}
        (client,) = seen.connections

        reply = await cluster.rpc.call(
            cluster.address(),
            GetRunningConsumer(consumer_group=group, client_id=client.client_id),
            timeout_ms=10_000,
        )

    running = java_json.decode(reply.body, RunningConsumer)
    assert running.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
    progress = running.queues[queue_of(topic)]
    assert (progress.cached_messages, progress.cached_min_offset) == (2, 1)


async def test_an_operator_can_reset_the_group(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abc")
    async with consumer(cluster, group) as polling:
        polling.subscribe(topic)
        assert await polled(polling, 3) == ["a", "b", "c"]
        await polling.commit()

        header = ResetOffsets(topic=topic, group=group, timestamp_ms=Long(0), force=True)
        await cluster.rpc.call(cluster.address(), header)

        assert await polled(polling, 3) == ["a", "b", "c"]


# --- brokers that come and go ---------------------------------------------------------------------


async def test_a_consumer_resumes_after_its_broker_was_away(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, "a")
    async with consumer(cluster, group, pull_retry_ms=50) as polling:
        polling.subscribe(topic)
        assert await polled(polling, 1) == ["a"]

        await cluster.kill_broker()
        await cluster.start_broker()
        await send(cluster, topic, "b")

        assert await polled(polling, 1) == ["b"]
