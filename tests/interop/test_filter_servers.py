"""Java consumers that filter by a class, at our broker and through our filter server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.filterserver import plugins
from tests.interop.building import LINES
from tests.interop.exchanges import MakeExchange, bodies, texts
from tests.interop.ours import OrbitFilterServer
from tests.interop.peers import OurCluster, Peer

pytestmark = pytest.mark.interop

JAVA = [Peer("java", line) for line in LINES]
NAME = "org.example.EveryThird"
# What Java's users wrote for RocketMQ's filter server.
SOURCE = """\
package org.example;

public class EveryThird implements org.apache.rocketmq.common.filter.MessageFilter {
    public boolean match(MessageExt message, FilterContext context) {
        return true;
    }
}
"""
FUNCTION = """
def every_third(message, context):
    return int(message.body.split()[1]) % 3 == 0
"""


@pytest.fixture(scope="module")
def cluster(new_cluster: Callable[..., OurCluster]) -> Iterator[OurCluster]:
    made = new_cluster()
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def filter_server(
    cluster: OurCluster, new_folder: Callable[[str], Path]
) -> Iterator[OrbitFilterServer]:
    folder = new_folder("filter-server")
    plugins.write_package(folder / "plugins", "example", FUNCTION, {NAME: "every_third"})
    made = OrbitFilterServer(folder, cluster.broker, folder / "plugins")
    made.start()
    yield made
    made.process.stop()


def wanted(count: int) -> list[str]:
    return sorted(f"message {number}" for number in range(0, count, 3))


@pytest.mark.scenario("client", "our filter server: only what its function accepts")
@pytest.mark.parametrize("client", JAVA, ids=str, indirect=True)
@pytest.mark.usefixtures("client", "filter_server")
@pytest.mark.parametrize("kind", ["push", "orderly"])
def test_a_java_consumer_gets_what_the_function_accepts(
    cluster: OurCluster, exchange_at: MakeExchange, kind: str
) -> None:
    exchange = exchange_at(cluster)
    exchange.create_topic()
    exchange.post(*bodies(30))
    exchange.subscribe(kind=kind, filter_class=NAME, source=SOURCE)

    exchange.received(10)
    exchange.post(*bodies(30, first=30))

    assert texts(exchange.received(20)) == wanted(60)


@pytest.mark.scenario("client", "our filter server: killed and started again elsewhere")
@pytest.mark.parametrize("client", JAVA, ids=str, indirect=True)
@pytest.mark.usefixtures("client")
def test_a_java_consumer_goes_on_after_the_filter_server_was_killed(
    cluster: OurCluster, exchange_at: MakeExchange, filter_server: OrbitFilterServer
) -> None:
    exchange = exchange_at(cluster)
    exchange.create_topic()
    exchange.post(*bodies(30))
    exchange.subscribe(filter_class=NAME, source=SOURCE)
    exchange.received(10)

    filter_server.process.kill()
    exchange.post(*bodies(30, first=30))
    filter_server.start()

    assert texts(exchange.received(20)) == wanted(60)
