"""Transactions of official producers on our broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.interop.drivers import Driver, Listed
from tests.interop.exchanges import MakeExchange, texts
from tests.interop.peers import CLIENTS, OurCluster

pytestmark = pytest.mark.interop

FAST_CHECKS = {"transactionTimeOut": "100", "transactionCheckInterval": "500"}


@pytest.fixture(scope="module")
def cluster(new_cluster: Callable[..., OurCluster]) -> Iterator[OurCluster]:
    made = new_cluster(**FAST_CHECKS)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.mark.scenario("client", "our broker: transactions end as the listener says")
@pytest.mark.parametrize("client", CLIENTS, ids=str, indirect=True)
def test_transactions_end_as_the_listener_says(
    client: Driver, cluster: OurCluster, exchange_at: MakeExchange
) -> None:
    exchange = exchange_at(cluster)
    exchange.create_topic()
    exchange.subscribe()
    name = f"transactions-{exchange.topic}"
    client.open_transactions(name, exchange.name_server, group=name, topic="BenchmarkTest")

    client.transact(
        name,
        exchange.topic,
        [
            Listed(body="committed", ending="COMMIT_MESSAGE"),
            Listed(body="rolled back", ending="ROLLBACK_MESSAGE"),
            # The producer commits it when the broker asks.
            Listed(body="asked about", ending="UNKNOW"),
        ],
    )

    assert texts(exchange.received(2)) == ["asked about", "committed"]
    client.close_producer(name)


@pytest.mark.scenario("client", "our broker: another producer answers for one that left")
@pytest.mark.parametrize("client", CLIENTS, ids=str, indirect=True)
def test_another_producer_of_the_group_answers(
    client: Driver, cluster: OurCluster, exchange_at: MakeExchange
) -> None:
    exchange = exchange_at(cluster)
    exchange.create_topic()
    exchange.subscribe()
    group = f"transactions-{exchange.topic}"
    first, second = f"{group}-1", f"{group}-2"
    # Checks find nobody until the second producer is there.
    client.open_transactions(first, exchange.name_server, group=group, topic="BenchmarkTest")
    client.transact(first, exchange.topic, [Listed(body="left open", ending="UNKNOW")])
    client.close_producer(first)

    client.open_transactions(second, exchange.name_server, group=group, topic="BenchmarkTest")

    assert texts(exchange.received(1)) == ["left open"]
    client.close_producer(second)
