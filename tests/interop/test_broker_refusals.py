"""What our broker refuses, official clients report with the cause and the cure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.interop import wire
from tests.interop.exchanges import Exchange, MakeExchange
from tests.interop.peers import OurCluster
from tests.interop.timeouts import CLIENT_TIMEOUT_S

pytestmark = pytest.mark.interop

NO_PERMISSION = 16
GROUP_MISSING = 26


@pytest.fixture(scope="module")
def strict_cluster(new_cluster: Callable[..., OurCluster]) -> Iterator[OurCluster]:
    """A cluster that makes no topics and no groups by itself, and takes small messages only."""
    made = new_cluster(
        brokers=2,
        autoCreateTopicEnable="false",
        autoCreateSubscriptionGroup="false",
        maxMessageSize="65536",
    )
    yield made.start()
    made.stop()


@pytest.fixture
def refused(exchange_at: MakeExchange, strict_cluster: OurCluster) -> Exchange:
    """The test's use of a client there, with a topic that exists."""
    exchange = exchange_at(strict_cluster)
    exchange.create_topic()
    exchange.open_producer(retries=0, compress_above_bytes=1 << 20)
    return exchange


def error_of(exchange: Exchange, **wish: object) -> str:
    """What the client says of one message that is refused."""
    (outcome,) = exchange.post({"body": "refused", **wish})
    assert outcome.status == "", outcome
    return outcome.error


@pytest.mark.scenario("client", "our broker: refuses a body above its limit")
def test_error_names_the_limit_when_a_body_is_too_large(refused: Exchange) -> None:
    error = error_of(refused, body_bytes=70_000, noise=True)

    assert "CODE: 13" in error
    assert "a body of 70000 bytes is above the limit of 65536" in error
    assert "maxMessageSize" in error


@pytest.mark.scenario("client", "our broker: refuses properties above their limit")
def test_error_names_the_size_when_properties_are_too_large(refused: Exchange) -> None:
    error = error_of(refused, properties={"large": "x" * 40_000})

    assert "CODE: 13" in error
    assert "properties" in error
    assert "32767" in error


@pytest.mark.scenario("client", "our broker: refuses a queue that is not there")
def test_error_names_the_queues_when_there_is_no_such_queue(refused: Exchange) -> None:
    error = error_of(refused, broker=refused.cluster.broker.name, queue_id=77)

    assert "77" in error
    assert refused.topic in error
    assert "0 to 3" in error


@pytest.mark.scenario("client", "our broker: refuses a topic that may not be written")
def test_error_names_the_topic_when_it_may_not_be_written(refused: Exchange) -> None:
    # A client that finds no queue to write to in its route does not ask a broker; the other broker
    # has some.
    closed, open_to_all = refused.cluster.brokers
    open_to_all.create_topic(refused.topic)
    wire.create_topic(closed.address, refused.topic, permission=wire.READ_ONLY)
    wire.wait_route_permissions(
        refused.name_server,
        refused.topic,
        {closed.name: wire.READ_ONLY, open_to_all.name: wire.READ_WRITE},
        timeout_s=CLIENT_TIMEOUT_S,
    )

    error = error_of(refused, broker=closed.name, queue_id=0)

    assert f"CODE: {NO_PERMISSION}" in error
    assert refused.topic in error


@pytest.mark.scenario("client", "our broker: refuses a topic that is not there")
def test_error_names_the_topic_when_there_is_none(refused: Exchange) -> None:
    error = error_of(refused, topic=f"{refused.topic}-missing")

    # No name server has a route, so it is the client that says so.
    assert f"{refused.topic}-missing" in error


@pytest.mark.scenario("client", "our broker: refuses a group that is not there")
def test_group_that_is_not_there_gets_nothing_and_is_told_why(refused: Exchange) -> None:
    refused.post({"body": "allowed"})
    refused.subscribe()

    answer = wire.ask(
        refused.cluster.broker.address,
        wire.PULL,
        {
            "consumerGroup": refused.group,
            "topic": refused.topic,
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "1",
            "sysFlag": "0",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subVersion": "0",
        },
    )
    received = refused.received(1, timeout_ms=500)

    assert received == []
    assert answer.code == GROUP_MISSING
    assert refused.group in answer.remark
    assert "updateSubGroup" in answer.remark or "autoCreateSubscriptionGroup" in answer.remark
