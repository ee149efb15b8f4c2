"""Official clients go on when our broker or our name server is restarted, or one broker is gone."""

from __future__ import annotations

import pytest

from tests.interop import wire
from tests.interop.exchanges import MakeExchange, bodies, texts
from tests.interop.peers import StartOurCluster
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

MESSAGES = 20


@pytest.mark.scenario("client", "our broker: it and its name server are restarted")
def test_client_goes_on_after_restarts(
    exchange_at: MakeExchange, start_our_cluster: StartOurCluster
) -> None:
    cluster = start_our_cluster()
    exchange = exchange_at(cluster)
    exchange.create_topic()
    exchange.open_producer(retries=0)
    exchange.subscribe()
    acked: list[str] = []

    def post_until_acked() -> None:
        body = f"message {len(acked)}"
        wait_until(
            lambda: exchange.post({"body": body})[0].status == "SEND_OK",
            timeout_s=CLIENT_TIMEOUT_S,
            what=f"{body} acknowledged",
        )
        acked.append(body)

    for _ in range(MESSAGES):
        post_until_acked()
    exchange.received(MESSAGES)
    cluster.broker.process.kill()
    cluster.broker.restart()
    for _ in range(MESSAGES):
        post_until_acked()
    cluster.name_server.process.kill()
    cluster.name_server.process.start()
    cluster.name_server.wait_ready()
    wire.wait_route_code(
        cluster.name_server.address, exchange.topic, wire.SUCCESS, timeout_s=CLIENT_TIMEOUT_S
    )
    cluster.broker.process.stop()
    cluster.broker.restart()
    for _ in range(MESSAGES):
        post_until_acked()
    wait_until(
        lambda: {message.body for message in exchange.received(0)} == set(acked),
        timeout_s=CLIENT_TIMEOUT_S,
        what="everything acknowledged received",
    )


@pytest.mark.scenario("client", "our broker: one of two is killed")
def test_client_goes_on_with_the_other_broker_when_one_is_killed(
    exchange_at: MakeExchange, start_our_cluster: StartOurCluster
) -> None:
    cluster = start_our_cluster(brokers=2)
    lost, left = cluster.brokers
    exchange = exchange_at(cluster)
    for broker in cluster.brokers:
        broker.create_topic(exchange.topic)
    # One attempt more than there are queues on a broker: a Go client tries the next queue,
    # not the next broker.
    exchange.open_producer(retries=4)
    both = exchange.post(*bodies(MESSAGES))
    exchange.subscribe()
    before = exchange.received(MESSAGES)

    lost.process.kill()
    # What a client sends before it sees the connection close is lost, with any broker.
    wait_until(
        lambda: lost.address not in exchange.client.process.connected_addresses(),
        timeout_s=CLIENT_TIMEOUT_S,
        what="the client sees its broker go",
    )
    after = exchange.post(*bodies(MESSAGES, first=MESSAGES))
    received = exchange.received(2 * MESSAGES)
    asked = {"topic": exchange.topic}
    plain, full = (
        wire.ask(cluster.name_server.address, wire.GET_ROUTE, fields).body
        for fields in (asked, {**asked, "withMissingBrokers": "true"})
    )

    # The name server remembers the lost broker, and official clients do not see that.
    assert [broker["brokerName"] for broker in full.pop("missingBrokerDatas")] == [lost.name]
    assert [part["brokerName"] for part in full.pop("missingQueueDatas")] == [lost.name]
    assert full == plain
    assert {outcome.broker for outcome in both} == {lost.name, left.name}
    assert texts(before) == sorted(f"message {number}" for number in range(MESSAGES))
    assert {(outcome.status, outcome.broker) for outcome in after} == {("SEND_OK", left.name)}
    assert {message.body for message in received} == {
        f"message {number}" for number in range(2 * MESSAGES)
    }
