"""Lets a producer gather small messages and send them in batches by itself."""

import asyncio

from local_cluster import name_server
from orbitmq.client import Message
from orbitmq.client.aio import Producer


async def main(namesrv: str) -> None:
    """Send small messages at once; each waits up to 5 ms for others to travel with."""
    async with Producer(
        "shop", namesrv=namesrv, accumulate=True, accumulate_delay_ms=5
    ) as producer:
        await producer.send(Message("clicks", "begin"))
        sends = [producer.send(Message("clicks", f"click {number}")) for number in range(500)]
        results = await asyncio.gather(*sends)
    print(f"{len(results)} messages stored, each with a result of its own")


with name_server() as namesrv:
    asyncio.run(main(namesrv))
