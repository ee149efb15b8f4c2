"""Consumers whose topic is deleted and created again: its new messages start at offset 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.client.aio import LitePullConsumer, PullConsumer, PullStatus, PushConsumer
from orbitmq.protocol.requests.topics import DeleteTopic
from tests.integration.client.conftest import Cluster
from tests.integration.client.consuming import QUICK, Seen, consumer_of
from tests.integration.client.pulling import bodies, polled, queue_of, send
from tests.waiting import until

OLD = ["old 0", "old 1", "old 2", "old 3"]
FEW = ["new 0", "new 1"]
MANY = [f"new {number}" for number in range(10)]
WARNED = "queue ends before the offset"


async def replace_topic(cluster: Cluster, topic: str, messages: list[str]) -> None:
    """Delete a topic, create it again with one queue, and send messages to it."""
    await cluster.rpc.call(cluster.address(), DeleteTopic(topic=topic))
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *messages)


def encoded(texts: list[str]) -> set[bytes]:
    return {text.encode() for text in texts}


# --- push consumers -------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("messages", [FEW, MANY], ids=["fewer", "more"])
async def test_a_push_consumer_gets_all_messages_of_the_new_topic(
    cluster: Cluster, topic: str, group: str, messages: list[str], *, ordered: bool
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *OLD)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited, ordered=ordered)
    consumer.subscribe(topic)
    async with consumer:
        await seen.all_of(encoded(OLD))

        await replace_topic(cluster, topic, messages)

        await seen.all_of(encoded(messages))


async def test_a_push_consumer_that_was_paused_gets_all_messages_of_the_new_topic(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *OLD)
    seen = Seen()
    consumer = consumer_of(cluster, group, on_message=seen.awaited)
    consumer.subscribe(topic)
    async with consumer:
        await seen.all_of(encoded(OLD))
        consumer.pause()
        await send(cluster, topic, "ends the pull that is held")
        await seen.count(len(OLD) + 1)

        await replace_topic(cluster, topic, FEW)
        consumer.resume()

        await seen.all_of(encoded(FEW))
    assert WARNED in caplog.text


async def test_a_group_that_starts_above_the_end_reads_the_queue_from_its_start(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *OLD)
    seen = Seen()

    def broadcasting() -> PushConsumer:
        consumer = consumer_of(
            cluster,
            group,
            on_message=seen.awaited,
            message_model="BROADCASTING",
            local_offset_dir=tmp_path,
            instance_name="reader",
        )
        consumer.subscribe(topic)
        return consumer

    async with broadcasting():
        await seen.all_of(encoded(OLD))
    await replace_topic(cluster, topic, FEW)

    async with broadcasting():
        await seen.all_of(encoded(FEW))
    assert WARNED in caplog.text


# --- pull consumers -------------------------------------------------------------------------------


@pytest.mark.parametrize("assigned", [False, True], ids=["subscribed", "assigned"])
@pytest.mark.parametrize("messages", [FEW, MANY], ids=["fewer", "more"])
async def test_a_lite_pull_consumer_gets_all_messages_of_the_new_topic(
    cluster: Cluster, topic: str, group: str, messages: list[str], *, assigned: bool
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *OLD)
    quick = {name: value for name, value in QUICK.items() if name != "await_termination_ms"}
    consumer = LitePullConsumer(group, namesrv=cluster.namesrv, consume_from="first", **quick)
    async with consumer:
        if assigned:
            consumer.assign([queue_of(topic)])
        else:
            consumer.subscribe(topic)
        assert await polled(consumer, len(OLD)) == OLD

        await replace_topic(cluster, topic, messages)

        assert await polled(consumer, len(messages)) == messages


async def test_a_pull_consumer_is_sent_to_the_first_message_of_the_new_topic(
    cluster: Cluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *OLD)
    async with PullConsumer(group, namesrv=cluster.namesrv) as consumer:
        read = await consumer.pull(queue_of(topic), "*", 0)
        await replace_topic(cluster, topic, FEW)

        moved = await consumer.pull(queue_of(topic), "*", read.next_offset)

        assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_ILLEGAL, 0)
        assert bodies((await consumer.pull(queue_of(topic), "*", 0)).messages) == FEW
    assert WARNED in caplog.text


async def test_a_reset_past_the_end_skips_all_messages(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *OLD)
    consumer = LitePullConsumer(group, namesrv=cluster.namesrv, consume_from="first")
    async with consumer:
        consumer.assign([queue_of(topic)])
        assert await polled(consumer, len(OLD)) == OLD

        await consumer._running_member().reset_offsets(topic, {queue_of(topic): 100})
        await until(lambda: consumer.position(queue_of(topic)) == len(OLD))
        await send(cluster, topic, "after")

        assert await polled(consumer, 1) == ["after"]
