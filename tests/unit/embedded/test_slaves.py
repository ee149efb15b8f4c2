"""Slaves of an embedded cluster: what programs see of a fail-over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.client import LitePullConsumer, Message, Producer, SendStatus
from orbitmq.embedded import Cluster
from orbitmq.errors import PromotionError, SettingsError, StateError

CALL_MS = 60_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(slaves=1, in_memory=True) as cluster:
        cluster.create_topic("orders", queues=1)
        yield cluster


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[Producer]:
    with Producer(
        "tests",
        namesrv=cluster.namesrv,
        clock=cluster.clock,
        send_timeout_ms=CALL_MS,
        call_timeout_ms=CALL_MS,
    ) as producer:
        yield producer


def test_a_message_is_on_two_brokers_and_counted_once(cluster: Cluster, producer: Producer) -> None:
    before = cluster.message_count("orders")

    result = producer.send(Message("orders", "one"))

    assert (result.status, result.copies) == (SendStatus.OK, 2)
    assert cluster.message_count("orders") == before + 1
    assert cluster.brokers == ["broker-a"]


def test_a_program_lives_through_a_fail_over_and_back(cluster: Cluster, producer: Producer) -> None:
    before = cluster.message_count("orders")
    first = cluster.master()
    with LitePullConsumer(
        "billing", namesrv=cluster.namesrv, clock=cluster.clock, consume_from="first"
    ) as consumer:
        consumer.subscribe("orders")
        producer.send(Message("orders", "before"))
        assert poll(consumer, before + 1)[-1] == b"before"
        consumer.commit()
        cluster.wait_for_slaves()

        cluster.faults.kill_broker(first)
        with pytest.raises(StateError, match="broker-a has no master now"):
            cluster.master()
        second = cluster.promote()
        producer.send(Message("orders", "while it is dead"))

        assert (second, cluster.master()) == (other(first), second)
        assert poll(consumer, 1) == [b"while it is dead"]
        cluster.faults.restart_broker(first)
        cluster.wait_for_slaves()
        assert cluster.message_count("orders") == before + 2
        with pytest.raises(PromotionError, match=r"the master .* answers"):
            cluster.promote(first)
        cluster.faults.stop_broker(second)
        assert cluster.promote(first) == first
        cluster.faults.restart_broker(second)
        cluster.wait_for_slaves()
        # A producer looks up routes once a second at most.
        cluster.advance(seconds=1)
        assert producer.send(Message("orders", "and back")).copies == 2
        assert poll(consumer, 1) == [b"and back"]


def test_a_topic_without_messages_outlasts_the_death_of_its_master(
    cluster: Cluster, producer: Producer
) -> None:
    producer.send(Message("orders", "no empty slave is promoted"))
    cluster.create_topic("empty", queues=3)

    killed = cluster.faults.kill_broker(cluster.master())
    cluster.promote()

    assert cluster.message_count("empty") == 0
    assert len(producer.queues("empty")) == 3
    cluster.faults.restart_broker(killed)
    cluster.wait_for_slaves()


def test_wrong_numbers_of_slaves_are_refused() -> None:
    with pytest.raises(SettingsError, match="0 to 3"):
        Cluster(slaves=4)


def other(name: str) -> str:
    """The other broker of the pair."""
    return {"broker-a": "broker-a-slave-1"}.get(name, "broker-a")


def poll(consumer: LitePullConsumer, count: int) -> list[bytes]:
    """Poll until there are this many messages."""
    found: list[bytes] = []
    for _ in range(600):
        found += [message.body for message in consumer.poll(100)]
        if len(found) >= count:
            break
    assert len(found) == count
    return found
