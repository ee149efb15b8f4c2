"""The official mqadmin administers our broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import wire
from tests.interop.drivers import NOTHING_CONSUMED, JavaDriver
from tests.interop.exchanges import Exchange, bodies
from tests.interop.official import CLUSTER
from tests.interop.peers import OurCluster
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

pytestmark = pytest.mark.interop


class Tool:
    """mqadmin at our cluster, and a client of the same line beside it."""

    def __init__(self, admin: JavaDriver, cluster: OurCluster, topic: str) -> None:
        self.admin = admin
        self.cluster = cluster
        self.topic = topic
        self.exchange = Exchange(admin, cluster, topic)

    def run(self, *arguments: str, complaint: str = "") -> str:
        """Run a command line and return what it printed."""
        return self.admin.mqadmin(
            *arguments, "-n", self.cluster.name_server.address, complaint=complaint
        )


@pytest.fixture
def tool(admin: JavaDriver, our_cluster: OurCluster, new_topic: str) -> Iterator[Tool]:
    made = Tool(admin, our_cluster, new_topic)
    yield made
    made.exchange.close()


@pytest.mark.scenario("admin", "our broker: updateTopic, topicRoute, topicStatus, deleteTopic")
def test_topic_is_made_shown_and_deleted(tool: Tool) -> None:
    broker = tool.cluster.broker
    made = tool.run("updateTopic", "-b", broker.address, "-t", tool.topic, "-r", "3", "-w", "2")
    route = tool.run("topicRoute", "-t", tool.topic)
    tool.exchange.post(*bodies(10))
    status = tool.run("topicStatus", "-t", tool.topic)
    deleted = tool.run("deleteTopic", "-c", "InteropCluster", "-t", tool.topic)

    assert f"create topic to {broker.address} success" in made
    assert broker.address in route
    assert '"readQueueNums":3' in route.replace(" ", "")
    assert '"writeQueueNums":2' in route.replace(" ", "")
    ends = {
        int(columns[1]): int(columns[3])
        for line in status.splitlines()
        if (columns := line.split()) and columns[0] == broker.name
    }
    assert set(ends) == {0, 1, 2}
    assert sum(ends.values()) == 10
    assert "success" in deleted
    assert wire.route_code(tool.cluster.name_server.address, tool.topic) == wire.TOPIC_NOT_EXIST


@pytest.mark.scenario("admin", "our broker: updateSubGroup, consumerProgress, consumerConnection")
def test_group_is_made_and_watched(tool: Tool) -> None:
    broker, exchange = tool.cluster.broker, tool.exchange
    exchange.create_topic()
    made = tool.run("updateSubGroup", "-b", broker.address, "-g", exchange.group, "-r", "5")
    exchange.post(*bodies(10))
    exchange.subscribe()
    exchange.received(10)

    def consumed() -> int:
        printed = tool.run("consumerProgress", "-g", exchange.group, complaint=NOTHING_CONSUMED)
        rows = [line.split() for line in printed.splitlines() if line.startswith(exchange.topic)]
        return sum(int(columns[4]) for columns in rows)

    wait_until(lambda: consumed() == 10, timeout_s=CLIENT_TIMEOUT_S, what="10 consumed")
    connection = tool.run("consumerConnection", "-g", exchange.group)

    assert f"create subscription group to {broker.address} success" in made
    assert exchange.topic in connection
    assert "CONSUME_PASSIVELY" in connection
    assert "JAVA" in connection


@pytest.mark.scenario("admin", "our broker: brokerStatus")
def test_broker_shows_its_status(tool: Tool, tmp_path: Path) -> None:
    broker = tool.cluster.broker
    status = tool.run("brokerStatus", "-b", broker.address)
    clusters = tool.run("clusterList")
    for command in ("exportConfigs", "exportMetrics"):
        assert "success" in tool.run(command, "-c", CLUSTER, "-f", str(tmp_path))
    options = json.loads((tmp_path / "configs.json").read_text())["brokerConfigs"][broker.name]

    assert broker.address in clusters
    assert (options["brokerRole"], options["useTLS"]) == ("ASYNC_MASTER", "false")
    if tool.admin.line == "v5":
        assert "#SlaveNum\t0" in tool.run("haStatus", "-b", broker.address)
    shown = {line.partition(":")[0].strip() for line in status.splitlines()}
    assert {"brokerVersionDesc", "putTps", "getTotalTps", "msgPutTotalTodayNow"} <= shown
    assert {"bootTimestamp", "commitLogMaxOffset", "runtime"} <= shown


@pytest.mark.scenario("admin", "our broker: sendMessage, queryMsgByKey, ById, ByOffset, find, view")
def test_message_is_sent_and_found(tool: Tool) -> None:
    broker, exchange = tool.cluster.broker, tool.exchange
    exchange.create_topic()
    sent = tool.run("sendMessage", "-t", tool.topic, "-p", "by hand", "-k", "hand-key")
    (outcome,) = exchange.post({"body": "by client", "keys": "first-key second-key", "tags": "red"})
    (later,) = exchange.post({"body": "later", "keys": "second-key", "tags": "red"})

    by_key = tool.run("queryMsgByKey", "-t", tool.topic, "-k", "second-key")
    # The tool of the 4.9 line asks for no topic here.
    topic = ["-t", tool.topic] if tool.admin.line == "v5" else []
    by_offset_id = tool.run("queryMsgById", *topic, "-i", outcome.offset_message_id)
    by_unique_id = tool.run("queryMsgByUniqueKey", "-t", tool.topic, "-i", outcome.message_id)
    by_offset = tool.run(
        "queryMsgByOffset",
        *("-t", tool.topic, "-b", broker.name),
        *("-i", str(outcome.queue_id), "-o", str(outcome.queue_offset)),
    )
    name_server = tool.cluster.name_server.address
    found = tool.admin.find(name_server, tool.topic, ["hand-key", "first-key"])
    seen = tool.admin.view(name_server, tool.topic, [outcome.offset_message_id])

    assert "SEND_OK" in sent
    for printed in (by_key, by_offset_id, by_unique_id, by_offset):
        assert outcome.message_id in printed, printed
    assert by_key.index(outcome.message_id) < by_key.index(later.message_id)
    if tool.admin.line == "v5":
        by_tag = tool.run("queryMsgByKey", "-t", tool.topic, "-k", "red", "-p", "T")
        assert by_tag.index(outcome.message_id) < by_tag.index(later.message_id)
    assert [message.body for message in found["hand-key"]] == ["by hand"]
    assert [message.body for message in found["first-key"]] == ["by client"]
    assert seen[outcome.offset_message_id].body == "by client"


@pytest.mark.scenario("admin", "our broker: resetOffsetByTime")
def test_offsets_are_reset_by_time(tool: Tool) -> None:
    exchange = tool.exchange
    exchange.create_topic()
    exchange.post(*bodies(4))
    exchange.subscribe()
    (first, *_) = sorted(exchange.received(4), key=lambda message: message.stored_ms)

    printed = tool.run(
        "resetOffsetByTime", "-g", exchange.group, "-t", tool.topic, "-s", str(first.stored_ms)
    )

    assert tool.cluster.broker.name in printed
    assert len(exchange.received(8)) == 8
