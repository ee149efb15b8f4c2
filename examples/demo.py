"""The main job on one screen: a name server, a broker, messages sent, delayed, filtered, found."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from orbitmq import java_json
from orbitmq.broker.app import Broker
from orbitmq.broker.app import load_settings as load_broker_settings
from orbitmq.client.aio.name_servers import NameServers
from orbitmq.nameserver.app import NameServer
from orbitmq.nameserver.app import load_settings as load_name_server_settings
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.protocol.requests.queries import FindMessages
from orbitmq.protocol.requests.sending import SendMessageShort, SendReply
from orbitmq.protocol.requests.topics import GetTopicStats, TopicStats, UpdateTopic
from orbitmq.record.decode import StoredMessage, decode_records
from orbitmq.record.properties import encode_properties
from orbitmq.transport import event_loop
from orbitmq.transport.rpc_client import RpcClient

TOPIC = "orders"
HERE = "127.0.0.1"
HOLD_MS = 5000


class Client:
    """Just enough of a producer and a consumer, in the requests that RocketMQ's clients send."""

    def __init__(self, rpc: RpcClient, broker: str) -> None:
        self._rpc = rpc
        self._broker = broker

    async def make_topic(self, *, queues: int) -> None:
        """Make the topic, as mqadmin updateTopic does."""
        await self._rpc.call(
            self._broker,
            UpdateTopic(
                topic=TOPIC,
                template_topic="TBW102",
                read_queues=queues,
                write_queues=queues,
                permission=6,
                filter_type="SINGLE_TAG",
            ),
        )

    async def send(self, queue_id: int, body: str, properties: dict[str, str]) -> SendReply:
        """Send a message; the answer comes once it is on disk."""
        header = SendMessageShort(
            producer_group="demo-producers",
            topic=TOPIC,
            template_topic="TBW102",
            template_queues=4,
            queue_id=queue_id,
            system_flag=0,
            born_timestamp_ms=Long(int(time.time() * 1000)),  # noqa: TID251  # no clock to pass in
            flag=0,
            properties=encode_properties(properties).decode(),
        )
        reply = await self._rpc.call(self._broker, header, body.encode())
        return SendReply.decode(reply.fields)

    async def pull(self, queue_id: int, offset: int, tags: str = "*") -> list[StoredMessage]:
        """Read messages of a queue; waits for one if there is none."""
        header = PullMessages(
            consumer_group="demo-consumers",
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=Long(offset),
            messages_max=32,
            system_flag=int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND),
            commit_offset=Long(0),
            suspend_timeout_ms=Long(HOLD_MS),
            expression=tags,
            subscription_version=Long(0),
        )
        reply = await self._rpc.call(self._broker, header, timeout_ms=2 * HOLD_MS)
        return decode_records(reply.body)

    async def find(self, key: str) -> list[StoredMessage]:
        """Find messages by a key."""
        header = FindMessages(
            topic=TOPIC, key=key, messages_max=10, begin_ms=Long(0), end_ms=Long(2**62)
        )
        return decode_records((await self._rpc.call(self._broker, header)).body)

    async def measure(self) -> TopicStats:
        """Ask where the queues of the topic begin and end."""
        reply = await self._rpc.call(self._broker, GetTopicStats(topic=TOPIC))
        return java_json.decode(reply.body, TopicStats)


def name_server(folder: Path) -> NameServer:
    """Make a name server on a free port."""
    flags = {
        "bindAddress": HERE,
        "listenPort": "0",
        "kvConfigPath": str(folder / "kvConfig.json"),
    }
    return NameServer(load_name_server_settings(flags=flags))


def broker(folder: Path, name_servers: str) -> Broker:
    """Make a broker on free ports, with small files."""
    flags = {
        "bindAddress": HERE,
        "listenPort": "0",
        "brokerIP1": HERE,
        "brokerName": "broker-a",
        "namesrvAddr": name_servers,
        "storePathRootDir": str(folder / "store"),
        "mappedFileSizeCommitLog": str(1 << 20),
        "maxHashSlotNum": "1000",
        "maxIndexNum": "4000",
    }
    return Broker(load_broker_settings(flags=flags))


async def show_sends(client: Client, console: Console) -> None:
    """Send a plain, a tagged and a delayed message."""
    table = Table(title="3 three sends, each answered once its bytes are on disk")
    for column in ("body", "properties", "queue", "offset", "took"):
        table.add_column(column)
    for queue_id, body, properties in (
        (0, "a plain one", {}),
        (0, "a tagged one", {"TAGS": "paid", "KEYS": "order-7"}),
        (1, "a delayed one", {"DELAY": "1"}),
    ):
        begun = time.perf_counter()
        reply = await client.send(queue_id, body, properties)
        took_ms = (time.perf_counter() - begun) * 1000
        shown = ", ".join(f"{name}={value}" for name, value in properties.items())
        offset = "(later)" if "DELAY" in properties else str(reply.queue_offset)
        table.add_row(body, shown, str(reply.queue_id), offset, f"{took_ms:.1f} ms")
    console.print(table)


async def show_reads(client: Client, console: Console) -> None:
    """Read by long poll, by tag, by key."""
    begun = time.perf_counter()
    delayed = await client.pull(1, 0)
    waited = time.perf_counter() - begun
    console.print(f"[bold]4[/] a pull of queue 1, held {waited:.1f} s: {_of(delayed)}")
    console.print(f"[bold]5[/] a pull of queue 0, everything: {_of(await client.pull(0, 0))}")
    console.print(f"[bold]6[/] a pull of queue 0, tag paid: {_of(await client.pull(0, 0, 'paid'))}")
    found = await client.find("order-7")
    places = ", ".join(f"byte {message.physical_offset}" for message in found)
    console.print(f"[bold]7[/] by key order-7: {_of(found)}, at {places} of the commit log")


async def show_store(client: Client, store_folder: Path, console: Console) -> None:
    """Tell of the queues, and of the files below."""
    stats = await client.measure()
    queues = ", ".join(
        f"queue {queue.queue_id} from {bounds.min_offset} to {bounds.max_offset}"
        for queue, bounds in sorted(stats.queues.items(), key=lambda item: item[0].queue_id)
    )
    console.print(f"[bold]8[/] the queues of {TOPIC}: {queues}")
    console.print(f"[bold]9[/] what the store is made of: {_folders(store_folder)}")


async def demo(folder: Path, console: Console) -> None:
    """Run everything, then stop it."""
    names = name_server(folder)
    await names.start()
    name_server_address = f"{HERE}:{names.port}"
    here = broker(folder, name_server_address)
    await here.start()
    console.print(
        f"[bold]1[/] a name server listens on [cyan]{name_server_address}[/], "
        f"a broker on [cyan]{here.advertised}[/]"
    )
    async with RpcClient() as rpc:
        client = Client(rpc, here.advertised)
        await client.make_topic(queues=2)
        route = await NameServers([name_server_address], rpc).route(TOPIC)
        console.print(
            f"[bold]2[/] topic {TOPIC}: the name server says {route.queues[0].write_queues} queues "
            f"on {route.brokers[0].name}, {route.brokers[0].addresses[0]}"
        )
        await show_sends(client, console)
        await show_reads(client, console)
        await show_store(client, folder / "store", console)
    await here.stop()
    await names.stop()
    console.print("Unmodified RocketMQ clients do the same: README.md shows how.")


def _of(messages: list[StoredMessage]) -> str:
    return ", ".join(
        f"{message.body.decode()} [dim](offset {message.queue_offset})[/]" for message in messages
    )


def _folders(folder: Path) -> str:
    return ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        event_loop.run(demo(Path(folder), Console()), use_native_loop=True)
