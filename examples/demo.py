"""The main job on one screen, as far as it is built: a name server, a broker's entry, its route."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from orbitmq.client.aio.name_servers import NameServers
from orbitmq.errors import RouteNotFoundError
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.nameserver.app import NameServer, load_settings
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.registration import (
    RegisterBroker,
    UnregisterBroker,
    encode_register_body,
)
from orbitmq.transport import event_loop
from orbitmq.transport.rpc_client import RpcClient

ARRIVAL = RegisterBroker(
    broker_name="broker-a",
    broker_address="127.0.0.1:10911",
    cluster_name="demo",
    broker_id=Long(0),
)
DEPARTURE = UnregisterBroker(
    broker_name="broker-a",
    broker_address="127.0.0.1:10911",
    cluster_name="demo",
    broker_id=Long(0),
)


async def demo(folder: Path, console: Console) -> None:
    """Start a name server, report a broker to it, and ask it for a route."""
    server = NameServer(
        load_settings(
            flags={
                "bindAddress": "127.0.0.1",
                "listenPort": "0",
                "kvConfigPath": str(folder / "kvConfig.json"),
            }
        )
    )
    await server.start()
    address = f"127.0.0.1:{server.port}"
    console.print(f"[bold]1[/] a name server listens on [cyan]{address}[/]")

    async with RpcClient() as rpc:
        topics = {
            name: TopicConfig(name=name, read_queues=queues, write_queues=queues)
            for name, queues in (("orders", 8), ("payments", 4))
        }
        await rpc.call(address, ARRIVAL, encode_register_body(topics, DataVersion(counter=1)))
        console.print("[bold]2[/] broker-a reported itself with topics orders and payments")

        name_servers = NameServers([address], rpc)
        route = await name_servers.route("orders")
        table = Table(title="3 the route of topic orders, as any RocketMQ client sees it")
        for column in ("broker", "cluster", "address", "read queues", "write queues"):
            table.add_column(column)
        for broker, queues in zip(route.brokers, route.queues, strict=True):
            table.add_row(
                broker.name,
                broker.cluster,
                broker.addresses[0],
                str(queues.read_queues),
                str(queues.write_queues),
            )
        console.print(table)

        await rpc.call(address, DEPARTURE)
        try:
            await name_servers.route("orders")
        except RouteNotFoundError as gone:
            console.print(
                f"[bold]4[/] broker-a left, so there is no route any more: [yellow]{gone}[/]"
            )
    await server.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        event_loop.run(demo(Path(folder), Console()), use_native_loop=True)
