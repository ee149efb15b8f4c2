"""`orbitmq broker drain`: a broker leaves while producers send and consumers consume."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orbitmq.broker.app import Broker, load_settings
from orbitmq.cli.main import command_for
from orbitmq.client import Message
from orbitmq.client.aio import Admin, Producer, PushConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.keywords import ClientKeywords
from orbitmq.embedded import Cluster
from orbitmq.errors import CommandError
from tests.waiting import WAIT_SECONDS, until

TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, in_memory=True) as cluster:
        cluster.create_topic(TOPIC, queues=2)
        yield cluster


def quick(cluster: Cluster) -> ClientKeywords:
    """Clients that notice changes soon."""
    return {
        "namesrv": cluster.namesrv,
        "route_interval_ms": 200,
        "heartbeat_interval_ms": 500,
        "persist_interval_ms": 200,
    }


async def command(cluster: Cluster, *words: str, code: int = 0) -> str:
    """Run a command beside the clients; returns what it prints."""
    given = [*words, "--namesrv", cluster.namesrv]
    result = await asyncio.to_thread(CliRunner().invoke, command_for(given), given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


async def drain(cluster: Cluster, *flags: str, code: int = 0, quiet: str = "1") -> dict[str, Any]:
    words = ["broker", "drain", "broker-a", "--yes", "--json", "--quiet", quiet, *flags]
    found: dict[str, Any] = json.loads(await command(cluster, *words, code=code))
    return found


class Load:
    """Sends numbered messages until it is told to stop, each once it is acknowledged."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.sent: list[bytes] = []
        self.brokers: Counter[str] = Counter()
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            body = b"%d" % len(self.sent)
            result = await self._producer.send(Message(TOPIC, body))
            self.sent.append(body)
            self.brokers[result.queue.broker_name] += 1


@asynccontextmanager
async def consuming(cluster: Cluster, group: str = "billing") -> AsyncIterator[list[bytes]]:
    """A member of a group; yields the bodies it receives."""
    bodies: list[bytes] = []

    async def take(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    consumer = PushConsumer(group, on_message=take, consume_from="first", **quick(cluster))
    consumer.subscribe(TOPIC)
    async with consumer:
        yield bodies


async def test_a_broker_is_drained_and_stopped_under_load_without_a_failed_send(
    cluster: Cluster,
) -> None:
    # Without retries: no send may meet a broker that refuses it.
    producer = Producer("senders", retries=0, **quick(cluster))
    async with producer, consuming(cluster) as received:
        load = Load(producer)
        sending = asyncio.create_task(load.run())
        await until(lambda: load.brokers["broker-a"] > 20 and load.brokers["broker-b"] > 20)

        found = await drain(cluster)
        await asyncio.to_thread(cluster.faults.stop_broker, "broker-a")
        before = load.brokers.copy()
        await until(lambda: sending.done() or load.brokers["broker-b"] > before["broker-b"] + 20)
        load.stopping = True
        await sending

        assert (found["drained"], found["lag"], found["groups"]) == (True, 0, [])
        assert load.brokers["broker-a"] == before["broker-a"]
        await until(lambda: set(received) == set(load.sent))


@asynccontextmanager
async def added_broker(cluster: Cluster, folder: Path) -> AsyncIterator[None]:
    """A broker that joins a cluster that is running."""
    flags = {
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerName": "broker-b",
        "listenPort": "0",
        "mappedFileSizeCommitLog": str(8 << 20),
        "maxHashSlotNum": "100",
        "maxIndexNum": "400",
        "namesrvAddr": cluster.namesrv,
        "storePathRootDir": str(folder),
    }
    broker = Broker(load_settings(flags=flags))
    await broker.start()
    try:
        yield
    finally:
        await broker.stop()


async def test_a_cluster_moves_to_a_new_broker_under_load_without_a_failed_send(
    tmp_path: Path,
) -> None:
    with Cluster(brokers=1, in_memory=True) as cluster:
        cluster.create_topic(TOPIC, queues=2)
        producer = Producer("senders", retries=0, **quick(cluster))
        async with added_broker(cluster, tmp_path), producer, consuming(cluster) as received:
            load = Load(producer)
            sending = asyncio.create_task(load.run())
            await until(lambda: load.brokers["broker-a"] > 20)

            # It takes part once the topic is created there; clients follow by themselves.
            before = load.brokers["broker-b"]
            await command(cluster, "topic", "create", TOPIC)
            await until(lambda: sending.done() or load.brokers["broker-b"] > 20)
            queues = Counter(queue.broker_name for queue in await producer.queues(TOPIC))
            found = await drain(cluster)
            await asyncio.to_thread(cluster.faults.stop_broker, "broker-a")
            drained = load.brokers.copy()
            await until(
                lambda: sending.done() or load.brokers["broker-b"] > drained["broker-b"] + 20
            )
            load.stopping = True
            await sending

            assert before == 0
            # The added broker gets as many queues as the other one has.
            assert queues == {"broker-a": 2, "broker-b": 2}
            assert (found["drained"], found["lag"]) == (True, 0)
            assert load.brokers["broker-a"] == drained["broker-a"]
            await until(lambda: set(received) == set(load.sent))


async def test_a_broker_that_is_drained_comes_back_and_takes_messages_again(
    cluster: Cluster,
) -> None:
    async with Producer("senders", **quick(cluster)) as producer, consuming(cluster) as received:
        await drain(cluster, quiet="0")
        load = Load(producer)
        sending = asyncio.create_task(load.run())
        await until(lambda: load.brokers["broker-b"] > 20)
        drained = load.brokers["broker-a"]

        await command(cluster, "broker", "drain", "broker-a", "--undo")
        await until(lambda: load.brokers["broker-a"] > 20)
        load.stopping = True
        await sending

        assert drained == 0
        await until(lambda: set(received) == set(load.sent))


async def test_a_group_without_members_is_named_and_can_be_ignored(cluster: Cluster) -> None:
    async with Producer("senders", **quick(cluster)) as producer:
        async with consuming(cluster) as received:
            await _send_to_a(producer, 1)
            await until(lambda: len(received) == 1)
        await _send_to_a(producer, 3)

        behind = await drain(cluster, "--member-wait", "0", code=1, quiet="0")
        ignored = await drain(cluster, "--ignore-group", "billing", quiet="0")
        words = ("broker", "drain", "broker-a", "--yes", "--quiet", "0")
        shown = await command(cluster, *words, "--ignore-group", "billing")

    assert behind["groups"] == [{"group": "billing", "lag": 3, "members": 0}]
    assert behind["reasons"] == ["group billing is 3 messages behind and has no members"]
    assert (behind["drained"], ignored["drained"]) == (False, True)
    assert ignored["ignored_groups"] == ["billing"]
    assert "all groups but the ignored ones have consumed" in shown
    assert "ignored, and not done: group billing, 3 messages behind" in shown


async def test_what_is_not_due_yet_is_named_and_can_be_left(cluster: Cluster) -> None:
    async with Producer("senders", **quick(cluster)) as producer:
        await _send_to_a(producer, 2, delay_level=18)

        waiting = await drain(cluster, "--timeout", "0", code=1, quiet="0")
        left = await drain(cluster, "--leave-pending", quiet="0")

    assert waiting["pending"] == {"delayed": 2, "timed": 0, "half": 0}
    assert waiting["reasons"] == ["2 delayed messages"]
    assert left["drained"]


async def test_a_drain_that_somebody_undoes_says_so_and_ends(cluster: Cluster) -> None:
    async with Producer("senders", **quick(cluster)) as producer:
        await _send_to_a(producer, 1, delay_level=18)
    words = ("broker", "drain", "broker-a", "--yes", "--quiet", "0")
    async with Admin(namesrv=cluster.namesrv) as admin:
        found = await admin.draining.find("broker-a")

        draining = asyncio.create_task(command(cluster, *words, code=1))
        async with asyncio.timeout(WAIT_SECONDS):
            while not await admin.draining.refuses_sends(found):
                pass
        await admin.draining.undo(found)
        shown = await draining

    assert "broker-a may not be switched off yet:" in shown
    assert "it takes messages again: somebody undid the drain" in shown
    assert "to drain it again: orbitmq broker drain broker-a" in shown
    assert "--undo" not in shown


async def test_the_last_broker_that_takes_messages_is_not_drained(cluster: Cluster) -> None:
    await drain(cluster, quiet="0")
    words = ("broker", "drain", "broker-b", "--yes", "--quiet", "0")

    with pytest.raises(CommandError, match=f"no other broker takes messages of {TOPIC}") as refused:
        await command(cluster, *words)

    assert "orbitmq broker drain broker-a --undo" in refused.value.hint


async def test_messages_that_no_group_consumes_stay_and_are_named(cluster: Cluster) -> None:
    async with Producer("senders", **quick(cluster)) as producer:
        await _send_to_a(producer, 2)

    found = await drain(cluster, quiet="0")
    shown = await command(cluster, "broker", "drain", "broker-a", "-y", "--quiet", "0")

    assert found["unread_topics"] == {TOPIC: 2}
    assert "broker-a may be switched off" in shown
    assert f"stays on it, as no group consumes it: {TOPIC}" in shown


async def test_a_broker_is_not_drained_while_it_alone_takes_a_topic(cluster: Cluster) -> None:
    await command(cluster, "topic", "create", "lonely", "-q", "1", "--broker", "broker-a")
    await command(cluster, "topic", "create", "strict", "-q", "1", "--ordered")
    await command(cluster, "namesrv", "set", "orderMessageEnable=true", "--yes")

    with pytest.raises(CommandError, match="no other broker takes messages of lonely"):
        await drain(cluster)
    await command(cluster, "topic", "create", "lonely", "-q", "1", "--broker", "broker-b")
    with pytest.raises(CommandError, match="producers of strict stay with broker-a"):
        await drain(cluster)
    forced = await drain(cluster, "--force", quiet="0")

    assert forced["drained"]


async def _send_to_a(producer: Producer, count: int, **fields: Any) -> None:
    queues = await producer.queues(TOPIC)
    (queue, *_) = [one for one in queues if one.broker_name == "broker-a"]
    for number in range(count):
        await producer.send(Message(TOPIC, b"%d" % number, **fields), queue=queue)
