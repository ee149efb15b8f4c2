"""Official clients find their broker through a name server, send and receive."""

from __future__ import annotations

import pytest

from tests.interop.drivers import Driver
from tests.interop.official import OfficialBroker
from tests.interop.peers import BROKERS, NameServer, StartBroker, StartNameServer
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

MESSAGES = 50


@pytest.mark.scenario("client", "sends and receives 50 messages")
def test_client_receives_what_it_sent(
    client: Driver, broker: OfficialBroker, name_server: NameServer, new_topic: str
) -> None:
    broker.create_topic(new_topic)

    sent = client.produce(
        name_server.address, new_topic, MESSAGES, tags="interop", keys="key-", body_bytes=100
    )
    received = client.consume(
        name_server.address, new_topic, MESSAGES, group=f"group-{new_topic}", expression="interop"
    )

    assert sent.statuses == ["SEND_OK"] * MESSAGES
    assert set(sent.queue_ids) == {0, 1, 2, 3}
    assert sorted(message.message_id for message in received) == sorted(sent.message_ids)
    assert sorted(message.keys or "" for message in received) == sorted(
        f"key-{number}" for number in range(MESSAGES)
    )
    assert {message.body for message in received} == {
        f"message {number}".ljust(100, ".") for number in range(MESSAGES)
    }
    assert {(message.tags, message.reconsume_times) for message in received} == {("interop", 0)}


@pytest.mark.scenario("client", "keeps working when one of two name servers is killed")
def test_client_goes_on_through_the_other_name_server_when_one_is_killed(
    client: Driver, start_name_server: StartNameServer, start_broker: StartBroker, new_topic: str
) -> None:
    servers = [start_name_server(), start_name_server()]
    both = ";".join(server.address for server in servers)
    broker = start_broker(BROKERS[-1].line, [server.address for server in servers])
    topic_before, topic_after = f"{new_topic}-before", f"{new_topic}-after"
    broker.create_topic(topic_before)
    broker.create_topic(topic_after)
    client.open_producer(new_topic, both)
    client.send(new_topic, topic_before, 1)

    asked = next(
        server for server in servers if server.address in client.process.connected_addresses()
    )
    (other,) = [server for server in servers if server is not asked]
    asked.process.kill()
    # A call made before the client sees the connection close fails, with any name server.
    wait_until(
        lambda: asked.address not in client.process.connected_addresses(),
        timeout_s=CLIENT_TIMEOUT_S,
        what="the client sees its name server go",
    )
    sent = client.send(new_topic, topic_after, 10)
    # A Java consumer does not start with a dead name server in its list, if it tries that one first.
    received = client.consume(other.address, topic_after, 10, group=f"group-{new_topic}")
    client.close_producer(new_topic)

    assert sent.statuses == ["SEND_OK"] * 10
    assert sorted(message.message_id for message in received) == sorted(sent.message_ids)
