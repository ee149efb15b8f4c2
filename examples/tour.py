"""What a broker does, on one screen: messages sent, delayed, filtered, found and consumed."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from orbitmq.client import Message, ReceivedMessage, RetryLater
from orbitmq.client.aio import Producer, PullConsumer, PushConsumer
from orbitmq.embedded import Cluster
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.queries import FindMessages
from orbitmq.record.decode import decode_records
from orbitmq.transport.rpc_client import RpcClient

TOPIC = "orders"
WAIT_S = 20


async def show_sends(producer: Producer, console: Console) -> None:
    """Send a plain, a tagged and a delayed message."""
    first, second = await producer.queues(TOPIC)
    table = Table(title="2 three sends, each answered once its bytes are on disk")
    for column in ("body", "properties", "queue", "offset", "took"):
        table.add_column(column)
    for queue, message, shown in (
        (first, Message(TOPIC, "a plain one"), ""),
        (first, Message(TOPIC, "a tagged one", tags="paid", keys="order-7"), "paid, order-7"),
        (second, Message(TOPIC, "a delayed one", delay_level=1), "delay level 1"),
    ):
        begun = time.perf_counter()
        result = await producer.send(message, queue=queue)
        took_ms = (time.perf_counter() - begun) * 1000
        offset = "(later)" if message.delay_level else str(result.queue_offset)
        place = str(result.queue.queue_id)
        table.add_row(message.body.decode(), shown, place, offset, f"{took_ms:.1f} ms")
    console.print(table)


async def show_pulls(consumer: PullConsumer, console: Console) -> None:
    """Read by long poll, by tag, by key."""
    first, second = await consumer.queues(TOPIC)
    begun = time.perf_counter()
    delayed = (await consumer.pull_held(second, "*", 0)).messages
    waited_s = time.perf_counter() - begun
    console.print(f"[bold]3[/] a pull of queue 1, held {waited_s:.1f} s: {_of(delayed)}")
    everything = (await consumer.pull(first, "*", 0)).messages
    console.print(f"[bold]4[/] a pull of queue 0, everything: {_of(everything)}")
    paid = (await consumer.pull(first, "paid", 0)).messages
    console.print(f"[bold]5[/] a pull of queue 0, tag paid: {_of(paid)}")
    await show_by_key("order-7", "{}:{}".format(*paid[0].store_host), console)


async def show_by_key(key: str, broker: str, console: Console) -> None:
    """Find a message by its key, as mqadmin does."""
    asked = FindMessages(
        topic=TOPIC, key=key, messages_max=10, begin_ms=Long(0), end_ms=Long(2**62)
    )
    async with RpcClient() as rpc:
        found = decode_records((await rpc.call(broker, asked)).body)
    console.print(
        f"[bold]6[/] by key {key}: {found[0].body.decode()} "
        f"[dim](offset {found[0].queue_offset})[/], at byte {found[0].physical_offset} of the log"
    )


async def show_consumer(namesrv: str, console: Console) -> None:
    """Let a listener have all messages, those with trouble a second time."""
    got: asyncio.Queue[str] = asyncio.Queue()

    async def charge(message: ReceivedMessage) -> RetryLater | None:
        if message.tags == "paid" and message.reconsume_times == 0:
            await got.put("a tagged one fails")
            return RetryLater(delay_level=1)
        again = " the second time" if message.reconsume_times else ""
        await got.put(f"{message.body.decode()} is done{again}")
        return None

    consumer = PushConsumer("billing", on_message=charge, namesrv=namesrv, consume_from="first")
    consumer.subscribe(TOPIC)
    async with asyncio.timeout(WAIT_S), consumer:
        received = [await got.get() for _ in range(4)]
    console.print(f"[bold]7[/] a consumer of the group billing: {', '.join(sorted(received))}")


async def show_ends(consumer: PullConsumer, console: Console) -> None:
    """Tell of the queues."""
    bounds = [
        f"queue {queue.queue_id} from {await consumer.min_offset(queue)} "
        f"to {await consumer.max_offset(queue)}"
        for queue in await consumer.queues(TOPIC)
    ]
    console.print(f"[bold]8[/] the queues of {TOPIC}: {', '.join(bounds)}")


async def demo(namesrv: str, folder: Path, console: Console) -> None:
    """Show everything."""
    console.print(f"[bold]1[/] a name server listens on [cyan]{namesrv}[/], and knows a broker")
    async with Producer("shop", namesrv=namesrv, template_queues=2) as producer:
        await show_sends(producer, console)
    async with PullConsumer("auditors", namesrv=namesrv) as consumer:
        await show_pulls(consumer, console)
        await show_consumer(namesrv, console)
        await show_ends(consumer, console)
    console.print(f"[bold]9[/] what the store is made of: {_folders(folder / 'broker-a')}")
    console.print("Unmodified RocketMQ clients do the same: README.md shows how.")


def _of(messages: list[ReceivedMessage]) -> str:
    return ", ".join(
        f"{message.body.decode()} [dim](offset {message.queue_offset})[/]" for message in messages
    )


def _folders(folder: Path) -> str:
    return ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        with Cluster(directory=place) as cluster:
            asyncio.run(demo(cluster.namesrv, place, Console()))
