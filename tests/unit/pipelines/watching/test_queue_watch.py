"""Lag and age of the oldest unprocessed message, by the brokers of a real cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.client import Message, MessageQueue, Producer
from orbitmq.embedded import Cluster
from orbitmq.pipelines.plan import Pipeline, TopicSource
from orbitmq.pipelines.watching.events import Event, Lag, QueryStarted, RunStarted
from orbitmq.pipelines.watching.progress import Position
from orbitmq.pipelines.watching.queue_watch import QueueWatch
from orbitmq.pipelines.watching.run_record import RunRecord

TIMEOUT_S = 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(in_memory=True) as made:
        yield made


def pipeline(namesrv: str) -> Pipeline:
    source = TopicSource(
        name="orders",
        topic="orders",
        namesrv=namesrv,
        start="earliest",
        options={"callTimeoutMs": "3000"},
        decoding=None,
        expectations=(),
        watermark=None,
    )
    return Pipeline(
        name="shop",
        file=Path("shop.yaml"),
        state="shop.state",
        quarantine="shop.state/quarantine",
        interval_ms=0,
        sources=(source,),
        steps=(),
        sinks=(),
    )


class Lags:
    """A record of a run with one query, and the lags that it gets."""

    def __init__(self) -> None:
        self.record = RunRecord()
        self.record.note(RunStarted(at_ms=1, pipeline="shop", queries={"table": "files t"}))
        self.record.note(QueryStarted(at_ms=1, query="table"))
        self.record.listeners.append(self._take)
        self.seen: list[Lag] = []
        self._came = threading.Event()

    def next(self) -> Lag:
        self._came.clear()
        assert self._came.wait(TIMEOUT_S)
        return self.seen[-1]

    def _take(self, event: Event) -> None:
        assert isinstance(event, Lag)
        self.seen.append(event)
        self._came.set()


def send(cluster: Cluster, count: int) -> list[MessageQueue]:
    """Send to each of two queues; the first messages are older by what a send takes."""
    with Producer("shop", namesrv=cluster.namesrv) as producer:
        queues = sorted(producer.queues("orders"))
        for queue in queues:
            for number in range(count):
                producer.send(Message("orders", str(number)), queue=queue)
    return queues


def test_lag_is_what_queues_have_beyond_the_last_batch_and_its_age_that_of_the_oldest_message(
    cluster: Cluster,
) -> None:
    cluster.create_topic("orders", queues=2)
    first, second = send(cluster, 5)
    lags = Lags()

    with QueueWatch(pipeline(cluster.namesrv), lags.record, period_s=0.05) as watch:
        watch.moved("table", {first: Position(2, 1000), second: Position(5, 1000)})
        behind = lags.next()
        watch.moved("table", {first: Position(5, 1000), second: Position(5, 1000)})
        lags.next()
        done = lags.next()

    assert behind.messages == 3
    assert behind.queues == {f"orders/{first.broker_name}/{first.queue_id}": 3}
    # Not since the last processed one, which was stored in 1970.
    assert behind.behind_s is not None
    assert 0 <= behind.behind_s < TIMEOUT_S
    assert (done.messages, done.behind_s, done.queues) == (0, 0, {})
    assert lags.record.queries["table"].lag == 0


def test_a_queue_that_the_query_does_not_know_yet_counts_in_full(
    cluster: Cluster,
) -> None:
    cluster.create_topic("orders", queues=2)
    first, second = send(cluster, 3)
    lags = Lags()

    with QueueWatch(pipeline(cluster.namesrv), lags.record, period_s=0.05) as watch:
        watch.moved("table", {first: Position(3, 1000)})
        new = lags.next()

    assert new.messages == 3
    assert new.queues == {f"orders/{second.broker_name}/{second.queue_id}": 3}
    assert new.behind_s is not None
    assert 0 <= new.behind_s < TIMEOUT_S


def test_brokers_that_are_away_cost_the_run_nothing(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.create_topic("orders", queues=2)
    first, _ = send(cluster, 3)
    lags = Lags()

    with QueueWatch(pipeline("127.0.0.1:1"), lags.record, period_s=0.05) as watch:
        watch.moved("table", {first: Position(3, 1000)})
        said = threading.Event()
        for _ in range(TIMEOUT_S * 10):
            if caplog.records:
                break
            said.wait(0.1)

    assert lags.seen == []
    assert len([one for one in caplog.records if "no lag pipeline=shop" in one.getMessage()]) == 1
