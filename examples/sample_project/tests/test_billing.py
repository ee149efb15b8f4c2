"""The service tested against a real broker, which each test gets for itself."""

from __future__ import annotations

from billing import Billing

from orbitmq.client import Message, Producer
from orbitmq.embedded import Cluster
from orbitmq.embedded.pytest_plugin import MakeConsumer


def test_a_paid_order_gets_a_bill(
    orbitmq_cluster: Cluster, producer: Producer, consumer: MakeConsumer
) -> None:
    orbitmq_cluster.create_topic("orders")
    bills = consumer("bills")
    with Billing(orbitmq_cluster.namesrv):
        producer.send(Message("orders", "7", tags="paid", keys=["order-1"]))
        producer.send(Message("orders", "8", tags="cancelled"))

        (bill,) = bills.poll(10_000)

    assert bill.body == b"pay 7"
    assert bill.keys == ("order-1",)


def test_an_order_that_fails_is_tried_again_later(
    orbitmq_cluster: Cluster, producer: Producer
) -> None:
    orbitmq_cluster.create_topic("orders")
    with Billing(orbitmq_cluster.namesrv, clock=orbitmq_cluster.clock):
        producer.send(Message("orders", "not a number", tags="paid"))

        # The first retry comes after 10 seconds, the second 30 later; here they pass in no time.
        for _ in range(60):
            if orbitmq_cluster.message_count("%RETRY%billing") == 2:
                break
            orbitmq_cluster.advance(seconds=2)

    assert orbitmq_cluster.message_count("%RETRY%billing") >= 2


def test_no_bill_is_lost_when_the_broker_is_killed(
    orbitmq_cluster: Cluster, producer: Producer, consumer: MakeConsumer
) -> None:
    orbitmq_cluster.create_topic("orders")
    bills = consumer("bills")
    with Billing(orbitmq_cluster.namesrv):
        producer.send(Message("orders", "1", tags="paid"))
        (first,) = bills.poll(10_000)
        name = orbitmq_cluster.faults.kill_broker()
        orbitmq_cluster.faults.restart_broker(name)
        producer.send(Message("orders", "2", tags="paid"), timeout_ms=10_000)

        later = bills.poll(20_000)

    assert first.body == b"pay 1"
    assert b"pay 2" in {bill.body for bill in later}
