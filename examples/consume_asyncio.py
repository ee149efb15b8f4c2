"""Consumes messages on asyncio: a coroutine is called with each, many at once."""

import asyncio

from local_cluster import name_server
from orbitmq.client import Message, ReceivedMessage
from orbitmq.client.aio import Producer, PushConsumer


async def main(namesrv: str) -> None:
    """Send five messages, and consume them."""
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def charge(message: ReceivedMessage) -> None:
        await seen.put(message.body.decode())

    async with Producer("shop", namesrv=namesrv) as producer:
        for number in range(5):
            await producer.send(Message("orders", f"order {number}"))

    consumer = PushConsumer(
        "billing", on_message=charge, namesrv=namesrv, consume_from="first", concurrency=100
    )
    consumer.subscribe("orders")
    async with consumer:
        for _ in range(5):
            print(await seen.get())


with name_server() as namesrv:
    asyncio.run(main(namesrv))
