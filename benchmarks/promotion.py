"""How long does nobody take sends when a master dies and its slave becomes the master?

    python -m benchmarks.promotion [--messages N] [--rounds N] [--no-java] [--smoke]

A pair has a log of so many messages; the master is killed. Ours: one request makes the running slave
the master. RocketMQ without a controller: its slave is stopped, and started again over the same store
as a master, as an operator does it. Measured is the time from that act to the first send that is
accepted, and to the moment when the name server shows the new master; both must have every message.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from benchmarks.broker_requests import send_request
from benchmarks.broker_start import REPLY_TIMEOUT_S
from benchmarks.brokers import QUEUES
from benchmarks.load import LoadError
from benchmarks.pairs import (
    BODY_BYTES,
    SLAVE,
    TIMEOUT_S,
    Question,
    Server,
    Site,
    ask,
    fill,
    seconds_until,
    start_broker,
    start_slave,
    stored,
    wait_copied,
)
from orbitmq.errors import TransportError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.replication import PromoteBroker
from orbitmq.transport.rpc_client import RpcClient
from tests.interop import wire
from tests.interop.ours import OrbitBroker
from tests.waiting import wait_until

TOPIC: Final = "benchmark_promotion"


def promoted_after(site: Site) -> dict[str, float]:
    """Kill a master, make its slave the master, and tell how long that took."""
    with contextlib.ExitStack() as running:
        master = start_broker(
            running, site.line, site.name, site.folder / "master", site.name_server, {}
        )
        wire.create_topic(master.address, TOPIC, queues=QUEUES)
        slave = start_slave(running, site, site.name, master)
        asyncio.run(fill(master, TOPIC, site))
        wait_copied(master.address, slave.address)
        wait_until(
            lambda: stored(slave.address, TOPIC) == stored(master.address, TOPIC),
            timeout_s=TIMEOUT_S,
            what="the slave's queues",
        )
        had = stored(master.address, TOPIC)
        master.process.kill()
        began_s = time.perf_counter()
        if isinstance(slave, OrbitBroker):
            asyncio.run(_promote(slave, site.name))
        else:
            _restart_as_master(slave)
        accepted_s = seconds_until(lambda: asyncio.run(_accepts(slave.address)), began_s)
        shown_s = seconds_until(lambda: _shows(site, slave.address), began_s)
        has = stored(slave.address, TOPIC)
        if has < had:
            raise LoadError(f"{site.name} has lost messages: {has} of {had}")
        return {"accepted_ms": accepted_s * 1000, "shown_ms": shown_s * 1000}


def _restart_as_master(slave: Server) -> None:
    slave.process.stop()
    settings = slave.process.folder / "broker.conf"
    kept = [one for one in settings.read_text().splitlines() if one.split("=")[0] not in SLAVE]
    settings.write_text("\n".join([*kept, "brokerRole=ASYNC_MASTER", "brokerId=0"]) + "\n")
    slave.process.start()


async def _promote(slave: Server, name: str) -> None:
    async with RpcClient() as rpc:
        await rpc.call(
            slave.address,
            PromoteBroker(broker_name=name, epoch=Long(1), role="ASYNC_MASTER"),
            timeout_ms=REPLY_TIMEOUT_S * 1000,
        )


async def _accepts(address: str) -> bool:
    async with RpcClient() as rpc:
        try:
            reply = await rpc.invoke(address, send_request(TOPIC, 0, BODY_BYTES))
        except TransportError:
            return False
        return reply.code == ResponseCode.SUCCESS


def _shows(site: Site, address: str) -> bool:
    return wire.broker_addresses(site.name_server, site.name).get("0") == address


QUESTION: Final = Question(
    name="promotion",
    description="Compare promotions.",
    measure=promoted_after,
    columns={
        "accepted_ms": ("first send accepted ms", 0),
        "shown_ms": ("shown by the name server ms", 0),
    },
    messages=200_000,
)

if __name__ == "__main__":
    ask(QUESTION)
