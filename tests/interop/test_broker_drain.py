"""`orbitmq broker drain` of an official broker, while our clients send and consume."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orbitmq.cli.main import command_for
from orbitmq.client import Message
from orbitmq.client.aio import Producer, PushConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.keywords import ClientKeywords
from tests.interop.official import OfficialBroker, OfficialNameServer
from tests.interop.peers import BROKERS, REFERENCE_LINE
from tests.waiting import beside, until

pytestmark = pytest.mark.interop


@pytest.fixture(params=BROKERS, ids=str)
def masters(
    request: pytest.FixtureRequest, new_folder: Callable[[str], Path], new_topic: str
) -> Iterator[tuple[OfficialBroker, OfficialBroker]]:
    """Two official masters with a topic and a name server of their own."""
    line = request.param.line
    server = OfficialNameServer(REFERENCE_LINE, new_folder("drain name server"))
    leaving, staying = (
        OfficialBroker(line, name, new_folder(f"{name}-{line}"), [server.address])
        for name in ("leaving", "staying")
    )
    try:
        server.process.start()
        server.wait_ready()
        for broker in (leaving, staying):
            broker.process.start()
        for broker in (leaving, staying):
            broker.wait_ready()
            broker.create_topic(new_topic)
        yield leaving, staying
    finally:
        for process in (leaving.process, staying.process, server.process):
            process.kill()


def _drain(namesrv: str, *flags: str) -> tuple[int, dict[str, Any]]:
    words = ["broker", "drain", "leaving", "-y", "--json", "--quiet", "3", "-n", namesrv, *flags]
    result = CliRunner().invoke(command_for(words), words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, json.loads(result.stdout)


async def test_an_official_broker_is_drained_and_stopped_under_load(
    masters: tuple[OfficialBroker, OfficialBroker], new_topic: str
) -> None:
    leaving, _ = masters
    (namesrv,) = leaving.name_servers
    quick: ClientKeywords = {
        "namesrv": namesrv,
        "route_interval_ms": 500,
        "heartbeat_interval_ms": 1_000,
        "persist_interval_ms": 500,
    }
    received: list[bytes] = []
    sent: list[bytes] = []
    brokers: Counter[str] = Counter()

    async def take(message: ReceivedMessage) -> None:
        received.append(message.body)

    async def send(producer: Producer, enough: asyncio.Event) -> None:
        while not enough.is_set():
            result = await producer.send(Message(new_topic, b"%d" % len(sent)))
            sent.append(b"%d" % len(sent))
            brokers[result.queue.broker_name] += 1

    consumer = PushConsumer("drainers", on_message=take, consume_from="first", **quick)
    consumer.subscribe(new_topic)
    async with consumer, Producer("drain-senders", retries=0, **quick) as producer:
        enough = asyncio.Event()
        sending = asyncio.create_task(send(producer, enough))
        await until(lambda: brokers["leaving"] > 20 and brokers["staying"] > 20)

        code, found = await beside(_drain, namesrv)
        before = brokers.copy()
        await beside(leaving.process.kill)
        await until(lambda: sending.done() or brokers["staying"] > before["staying"] + 20)
        enough.set()
        await sending

        assert (code, found["drained"], found["reasons"]) == (0, True, [])
        assert brokers["leaving"] == before["leaving"]
        await until(lambda: set(received) == set(sent))
