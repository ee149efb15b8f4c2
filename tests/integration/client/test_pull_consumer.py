"""A pull consumer on a real broker: reads at the offsets of the caller."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.client.aio import PullConsumer, PullStatus
from orbitmq.client.core.subscriptions import by_sql
from orbitmq.errors import (
    BrokerUnknownError,
    OffsetRefusedError,
    RouteNotFoundError,
    SettingsError,
    StateError,
)
from orbitmq.model.names import retry_topic
from tests.integration.client.conftest import Cluster
from tests.integration.client.pulling import bodies, queue_of, send
from tests.waiting import until


def consumer(cluster: Cluster, group: str, **options: object) -> PullConsumer:
    chosen = {"namesrv": cluster.namesrv, **options}
    return PullConsumer(group, **chosen)  # type: ignore[arg-type]  # any option of any type


async def test_messages_are_pulled_from_an_offset_on(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=2)
    await send(cluster, topic, *"abcd", queue_id=1)
    async with consumer(cluster, group) as pulling:
        first, second = await pulling.queues(topic)

        result = await pulling.pull(second, "*", 1, 2)

        assert result.status is PullStatus.FOUND
        assert bodies(result.messages) == ["b", "c"]
        assert (result.next_offset, result.min_offset, result.max_offset) == (3, 0, 4)
        assert (await pulling.pull(first, "*", 0)).status is PullStatus.NO_NEW


async def test_a_pull_past_the_end_returns_where_unseen_messages_begin_and_the_end(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"ab")
    async with consumer(cluster, group) as pulling:
        result = await pulling.pull(queue_of(topic), "*", 7)

    assert result.status is PullStatus.OFFSET_ILLEGAL
    assert (result.messages, result.next_offset, result.max_offset) == ([], 0, 2)


async def test_a_pull_can_filter(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, "a", TAGS="draft", price="1")
    await send(cluster, topic, "b", TAGS="paid", price="5")
    async with consumer(cluster, group) as pulling:
        by_tag = await pulling.pull(queue_of(topic), "paid", 0)
        by_condition = await pulling.pull(queue_of(topic), by_sql("price < 3"), 0)
        neither = await pulling.pull(queue_of(topic), "sent", 0)

    assert bodies(by_tag.messages) == ["b"]
    assert bodies(by_condition.messages) == ["a"]
    assert neither.status is PullStatus.NO_MATCH
    assert (neither.messages, neither.next_offset) == ([], 2)


async def test_a_held_pull_waits_for_a_message(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    async with consumer(cluster, group) as pulling:
        held = asyncio.ensure_future(pulling.pull_held(queue_of(topic), "*", 0))
        await until(lambda: len(cluster.brokers["broker-a"].parts.long_polls) == 1)

        await send(cluster, topic, "a")

        assert bodies((await held).messages) == ["a"]


async def test_a_held_pull_ends_without_a_message(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    async with consumer(cluster, group, hold_ms=50) as pulling:
        result = await pulling.pull_held(queue_of(topic), "*", 0)

    assert (result.status, result.messages) == (PullStatus.NO_NEW, [])


async def test_offsets_are_committed_at_once(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, *"abc")
    queue = queue_of(topic)
    async with consumer(cluster, group) as pulling, consumer(cluster, group) as other:
        await pulling.commit({queue: 2})
        assert await other.committed(queue) == 2
        await other.commit({queue: 1})
        assert await pulling.committed(queue) == 1
        with pytest.raises(OffsetRefusedError, match="offset -1 cannot be committed"):
            await pulling.commit({queue: -1})


async def test_a_broadcasting_consumer_keeps_its_offsets_in_a_file(
    cluster: Cluster, topic: str, group: str, tmp_path: Path
) -> None:
    await cluster.make_topic(topic, queues=1)
    queue = queue_of(topic)
    folder = tmp_path / "offsets"
    for expected in (None, 2):
        async with consumer(
            cluster, group, message_model="BROADCASTING", local_offset_dir=folder
        ) as pulling:
            assert await pulling.committed(queue) == expected
            await pulling.commit({queue: 2})

    assert len(list(folder.rglob("offsets.json"))) == 1


async def test_a_message_can_be_sent_back(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(topic, queues=1)
    await send(cluster, topic, "a")
    async with consumer(cluster, group) as pulling:
        (message,) = (await pulling.pull(queue_of(topic), "*", 0)).messages

        # The shortest delay is a second.
        await pulling.send_back(message, delay_level=1)

        (again,) = (await pulling.pull_held(queue_of(retry_topic(group)), "*", 0)).messages
    assert (again.body, again.topic, again.reconsume_times) == (b"a", topic, 1)


async def test_names_are_those_of_the_namespace(cluster: Cluster, topic: str, group: str) -> None:
    await cluster.make_topic(f"tenant%{topic}", queues=1)
    await send(cluster, f"tenant%{topic}", "a")
    async with consumer(cluster, group, namespace="tenant") as pulling:
        (queue,) = await pulling.queues(topic)
        (message,) = (await pulling.pull(queue, "*", 0)).messages

        assert (queue, message.topic) == (queue_of(topic), topic)
        assert await pulling.max_offset(queue) == 1


async def test_misuse_is_refused(cluster: Cluster, topic: str, group: str) -> None:
    pulling = consumer(cluster, group)
    with pytest.raises(StateError, match=r"is not started \(call start\(\)"):
        await pulling.pull(queue_of(topic), "*", 0)

    async with pulling:
        with pytest.raises(OffsetRefusedError, match="offset -1 is below 0"):
            await pulling.pull(queue_of(topic), "*", -1)
        with pytest.raises(SettingsError, match="count 0 is below 1"):
            await pulling.pull(queue_of(topic), "*", 0, 0)
        with pytest.raises(RouteNotFoundError):
            await pulling.queues("nobody-has-this")
        await cluster.make_topic(topic, queues=1)
        with pytest.raises(BrokerUnknownError, match="broker-z"):
            await pulling.pull(queue_of(topic, 0, "broker-z"), "*", 0)
        with pytest.raises(StateError, match="already started"):
            await pulling.start()

    with pytest.raises(StateError, match="is stopped"):
        await pulling.pull(queue_of(topic), "*", 0)


async def test_a_second_consumer_of_a_group_needs_an_instance_of_its_own(
    cluster: Cluster, group: str
) -> None:
    async with consumer(cluster, group, instance_name="shared"):
        with pytest.raises(StateError, match="has a consumer of the group"):
            await consumer(cluster, group, instance_name="shared").start()
