"""The queues of a cluster as the driver sees them, on real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.client import Admin, Message, Producer
from orbitmq.embedded import Cluster
from orbitmq.errors import NameServersUnreachableError, SettingsError, TopicMissingError
from orbitmq.model.queues import MessageQueue
from orbitmq.model.topics import Permission
from orbitmq.spark.options.read_options import FIRST_RETRIES, ReadOptions
from orbitmq.spark.reading.queue_view import QueueView


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, in_memory=True) as started:
        for topic in ("orders", "order-lines", "%RETRY%billing", "%DLQ%billing"):
            started.create_topic(topic, queues=2)
        with Producer(
            "tests", namesrv=started.namesrv, send_timeout_ms=60_000, call_timeout_ms=60_000
        ) as producer:
            target = min(producer.queues("orders"))
            producer.send([Message("orders", b"x" * 100) for _ in range(5)], queue=target)
        yield started


def view(cluster: Cluster, **given: str) -> QueueView:
    return QueueView(
        ReadOptions.from_spark(
            {"namesrvAddr": cluster.namesrv, "retries": "1", "retryIntervalMs": "1", **given},
            streaming=None,
        )
    )


def topics(queues: list[MessageQueue]) -> list[str]:
    return sorted({queue.topic for queue in queues})


def test_topics_are_looked_up_each_time(cluster: Cluster) -> None:
    with view(cluster, subscribe="orders,order-lines") as seen:
        assert len(seen.queues()) == 8

        cluster.create_topic("orders", queues=3)

        assert len(seen.queues()) == 10
    cluster.create_topic("orders", queues=2)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("order.*", ["order-lines", "orders"]),
        ("orders", ["orders"]),
        (".*", ["order-lines", "orders"]),
        ("%RETRY%.*", ["%RETRY%billing"]),
        (".*|%DLQ%.*", ["%DLQ%billing", "order-lines", "orders"]),
        ("nothing", []),
    ],
)
def test_a_pattern_finds_topics_of_users(cluster: Cluster, pattern: str, found: list[str]) -> None:
    with view(cluster, subscribePattern=pattern) as seen:
        assert topics(seen.queues()) == found


def test_assigned_queues_must_exist(cluster: Cluster) -> None:
    with view(cluster, assign='{"orders": {"broker-a": [1, 0]}}') as seen:
        assert [queue.queue_id for queue in seen.queues()] == [0, 1]
    with (
        view(cluster, assign='{"orders": {"broker-a": [7]}}') as seen,
        pytest.raises(SettingsError, match=r"names queue 7 .*queues that exist: orders/broker-a/0"),
    ):
        seen.queues()


def test_an_error_about_a_missing_topic_suggests_the_nearest(cluster: Cluster) -> None:
    with (
        view(cluster, subscribe="orderz") as seen,
        pytest.raises(TopicMissingError, match=r"no topic 'orderz' \(did you mean orders"),
    ):
        seen.queues()
    with (
        view(cluster, subscribe="zzz") as seen,
        pytest.raises(TopicMissingError, match=r"no topic 'zzz' \(create it first\)"),
    ):
        seen.queues()


def test_queues_have_starts_and_ends(cluster: Cluster) -> None:
    with view(cluster, subscribe="orders") as seen:
        queues = seen.queues()
        first, *others = sorted(queues)

        assert seen.earliest(queues) == dict.fromkeys(queues, 0)
        assert seen.latest(queues) == {first: 5, **dict.fromkeys(others, 0)}
        assert seen.at_times(dict.fromkeys(queues, 0)) == {first: 0, **dict.fromkeys(others)}
        assert seen.at_times({first: 1 << 50}) == {first: None}
        sizes = seen.row_bytes({first: 0})
        assert 150 < sizes[first] < 400


def test_an_unreachable_cluster_is_retried_and_named() -> None:
    options = ReadOptions.from_spark(
        {
            "namesrvAddr": "127.0.0.1:1",
            "subscribe": "orders",
            "retries": "2",
            "retryIntervalMs": "1",
        }
    )
    with (
        QueueView(options) as seen,
        pytest.raises(NameServersUnreachableError, match=r"127\.0\.0\.1:1"),
    ):
        seen.queues()


def test_servers_that_answered_once_are_waited_for_longer(caplog: pytest.LogCaptureFixture) -> None:
    with (
        Cluster(in_memory=True) as passing,
        view(passing, subscribePattern=".*", retries="20") as known,
        view(passing, subscribePattern=".*", retries="20") as unknown,
    ):
        known.queues()
        passing.stop()
        retried = []
        for seen in (known, unknown):
            caplog.clear()
            with pytest.raises(NameServersUnreachableError):
                seen.queues()
            retried.append(caplog.text.count("retrying a request"))

    assert retried == [20, FIRST_RETRIES]


def test_an_unreadable_topic_is_an_error_and_skipped_by_patterns(
    cluster: Cluster,
) -> None:
    with Admin(namesrv=cluster.namesrv, call_timeout_ms=60_000) as admin:
        admin.topics.create("letterbox", permission=Permission.WRITE)

    with (
        view(cluster, subscribe="letterbox") as seen,
        pytest.raises(SettingsError, match="no readable queue"),
    ):
        seen.queues()
    with view(cluster, subscribePattern="letter.*") as seen:
        assert seen.queues() == []
