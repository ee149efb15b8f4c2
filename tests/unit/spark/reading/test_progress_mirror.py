"""The progress of a stream, as lag tools see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from orbitmq.client import Message, MessageQueue, Producer, PullConsumer
from orbitmq.client.aio.admin import Admin
from orbitmq.embedded import Cluster
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.reading.progress_mirror import ProgressMirror

QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
OTHER = MessageQueue(topic="orders", broker_name="broker-a", queue_id=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(in_memory=True) as started:
        started.create_topic("orders", queues=2)
        # Brokers refuse offsets of messages that do not exist.
        with Producer("fill", namesrv=started.namesrv, send_timeout_ms=60_000) as producer:
            for queue in (QUEUE, OTHER):
                producer.send([Message("orders", "text")] * 7, queue=queue)
        yield started


_made: list[ProgressMirror] = []


@pytest.fixture(autouse=True)
def _mirrors_are_stopped() -> Iterator[None]:
    yield
    for each in _made:
        each.stop()
    _made.clear()


def mirror(namesrv: str, **options: str) -> ProgressMirror:
    given = {"namesrvAddr": namesrv, "subscribe": "orders", **options}
    _made.append(ProgressMirror(ReadOptions.from_spark(given, streaming=True)))
    return _made[-1]


def committed(cluster: Cluster, group: str) -> list[int | None]:
    with PullConsumer(group, namesrv=cluster.namesrv, call_timeout_ms=60_000) as consumer:
        return [consumer.committed(queue) for queue in (QUEUE, OTHER)]


def test_a_group_shows_where_the_stream_resumes(cluster: Cluster) -> None:
    shown = mirror(cluster.namesrv, group="shown")

    shown.publish({QUEUE: 5, OTHER: 7})
    shown.publish({QUEUE: 6, OTHER: 7})

    assert committed(cluster, "shown") == [6, 7]


def test_only_changed_offsets_are_published_again(cluster: Cluster) -> None:
    shown = mirror(cluster.namesrv, group="moved")
    shown.publish({QUEUE: 5, OTHER: 7})

    async def set_back() -> None:
        async with Admin(namesrv=cluster.namesrv, call_timeout_ms=60_000) as admin:
            await admin.offsets.set("moved", {QUEUE: 0, OTHER: 0})

    asyncio.run(set_back())
    shown.publish({QUEUE: 6, OTHER: 7})

    assert committed(cluster, "moved") == [6, 0]


def test_without_a_group_nothing_is_published(caplog: pytest.LogCaptureFixture) -> None:
    shown = mirror("127.0.0.1:1")

    with caplog.at_level(logging.WARNING):
        shown.publish({QUEUE: 5})

    assert caplog.text == ""


def test_a_failed_publication_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    shown = mirror("127.0.0.1:1", group="unheard")

    with caplog.at_level(logging.WARNING):
        shown.publish({QUEUE: 5})

    assert "could not publish progress group=unheard" in caplog.text
