"""Clients read from a slave while its master is gone, and return to the master."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from orbitmq.client import Message, ReceivedMessage
from orbitmq.client.aio import Producer, PushConsumer
from tests.integration.replication.group import Group
from tests.waiting import until


async def test_a_consumer_reads_on_from_the_slave_and_returns_to_the_master(
    tmp_path: Path,
) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic("orders")
        async with Producer("p", namesrv=group.namesrv) as producer:
            for number in range(20):
                await producer.send(Message("orders", b"%d" % number))
        await group.until_copied()
        await until(lambda: group.brokers[1].topics.get("orders"))
        await group.kill(0)

        got: Counter[bytes] = Counter()

        async def on_message(message: ReceivedMessage) -> None:
            got[message.body] += 1

        consumer = PushConsumer(
            "readers", on_message=on_message, consume_from="first", namesrv=group.namesrv
        )
        consumer.subscribe("orders")
        async with consumer:
            await until(lambda: len(got) == 20)
            master = await group.start(0)
            async with Producer("p", namesrv=group.namesrv) as producer:
                for number in range(20, 25):
                    await producer.send(Message("orders", b"%d" % number))
            await until(lambda: len(got) == 25)

        await until(lambda: master.offsets.get("readers", "orders", 0) == 25)
        assert set(got.values()) == {1}
