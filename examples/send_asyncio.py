"""Sends many messages at once on asyncio."""

import asyncio

from local_cluster import name_server
from orbitmq.client import Message
from orbitmq.client.aio import Producer


async def main(namesrv: str) -> None:
    """Send a hundred messages, all under way together."""
    async with Producer("shop", namesrv=namesrv) as producer:
        sends = [producer.send(Message("orders", f"order {number}")) for number in range(100)]
        results = await asyncio.gather(*sends)
    used = {(result.queue.broker_name, result.queue.queue_id) for result in results}
    print(f"{len(results)} messages in {len(used)} queues")


with name_server() as namesrv:
    asyncio.run(main(namesrv))
