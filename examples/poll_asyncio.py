"""Iterates over messages on asyncio."""

import asyncio

from local_cluster import name_server
from orbitmq.client import Message
from orbitmq.client.aio import LitePullConsumer, Producer


async def main(namesrv: str) -> None:
    """Send three messages, then read them."""
    async with Producer("shop", namesrv=namesrv) as producer:
        for body in ("order 1", "order 2", "order 3"):
            await producer.send(Message("orders", body))

    async with LitePullConsumer("billing", namesrv=namesrv, consume_from="first") as consumer:
        consumer.subscribe("orders")
        seen = 0
        async for message in consumer:
            print(message.body.decode())
            seen += 1
            if seen == 3:
                await consumer.commit()
                break


with name_server() as namesrv:
    asyncio.run(main(namesrv))
