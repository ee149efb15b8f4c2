"""The pytest plug-in: fixtures for a cluster per test, its producer and consumers.

def test_an_order_is_billed(orbitmq_cluster, producer, consumer):
    bills = consumer("bills")
    producer.send(Message("orders", "one"))
    assert [bill.body for bill in bills.poll()] == [b"bill for one"]
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.client import LitePullConsumer, Producer
    from orbitmq.embedded import Cluster


class MakeConsumer(Protocol):
    """Creates consumers that are closed after the test."""

    def __call__(
        self, topic: str, expression: str = "*", *, group: str = "tests"
    ) -> LitePullConsumer:
        """Create a consumer that gets every message of a topic, from the first on."""


# Perf: the fixtures import what they need, so that test sessions without a cluster do not pay.


@pytest.fixture
def orbitmq_cluster() -> Iterator[Cluster]:
    """A cluster of one broker, in memory if possible; deleted after the test."""
    from orbitmq.embedded import Cluster

    with Cluster(in_memory=True, network_faults=True) as cluster:
        yield cluster


@pytest.fixture
def producer(orbitmq_cluster: Cluster) -> Iterator[Producer]:
    """A producer for the cluster."""
    from orbitmq.client import Producer

    with Producer(
        "tests", namesrv=orbitmq_cluster.namesrv, clock=orbitmq_cluster.clock
    ) as producer:
        yield producer


@pytest.fixture
def consumer(orbitmq_cluster: Cluster) -> Iterator[MakeConsumer]:
    """Creates consumers for the cluster."""
    from orbitmq.client import LitePullConsumer

    with ExitStack() as opened:

        def make(topic: str, expression: str = "*", *, group: str = "tests") -> LitePullConsumer:
            # A topic created here has one queue, so its messages stay in order.
            orbitmq_cluster.ensure_topic(topic)
            consumer = LitePullConsumer(
                group,
                namesrv=orbitmq_cluster.namesrv,
                clock=orbitmq_cluster.clock,
                consume_from="first",
            )
            consumer.subscribe(topic, expression)
            return opened.enter_context(consumer)

        yield make
