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
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import brokers
from benchmarks.broker_requests import send_request
from benchmarks.broker_rounds import facts_of
from benchmarks.broker_start import REPLY_TIMEOUT_S, summary
from benchmarks.brokers import ASYNC, QUEUES, BrokerUnderLoad
from benchmarks.load import LoadError, Workload, load, write_frames
from benchmarks.plans import keep, plan_options
from benchmarks.replication import slaves_in_sync, start_broker, wait_copied
from benchmarks.rounds import RESULTS
from orbitmq.errors import TransportError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.replication import PromoteBroker
from orbitmq.transport.rpc_client import RpcClient
from tests.interop import wire
from tests.interop.official import OfficialBroker
from tests.interop.ours import OrbitBroker
from tests.waiting import wait_until

TOPIC: Final = "benchmark_promotion"
BODY_BYTES: Final = 1024
SMOKE_MESSAGES: Final = 200
_POLL_S: Final = 0.005
_TIMEOUT_S: Final = 120
_SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1"}

Server = OrbitBroker | OfficialBroker


def promoted_after(
    line: str | None, name: str, folder: Path, name_server: str, messages: int
) -> dict[str, float]:
    """Kill a master, make its slave the master, and tell how long that took."""
    with contextlib.ExitStack() as running:
        master = start_broker(running, line, name, folder / "master", name_server, {})
        wire.create_topic(master.address, TOPIC, queues=QUEUES)
        slave = start_broker(running, line, name, folder / "slave", name_server, _SLAVE)
        wait_until(
            lambda: slaves_in_sync(master.address) == 1, timeout_s=_TIMEOUT_S, what="the slave"
        )
        asyncio.run(_fill(master, messages, folder))
        wait_copied(master.address, slave.address)
        wait_until(
            lambda: _stored(slave.address) == _stored(master.address),
            timeout_s=_TIMEOUT_S,
            what="the slave's queues",
        )
        stored = _stored(master.address)
        master.process.kill()
        began_s = time.perf_counter()
        if isinstance(slave, OrbitBroker):
            asyncio.run(_ask(slave, name))
        else:
            _restart_as_master(slave)
        accepted_s = _until(lambda: asyncio.run(_accepts(slave.address)), began_s)
        shown_s = _until(lambda: _shows(name_server, name, slave.address), began_s)
        if _stored(slave.address) < stored:
            raise LoadError(f"{name} has lost messages: {_stored(slave.address)} of {stored}")
        return {"accepted_ms": accepted_s * 1000, "shown_ms": shown_s * 1000}


def _restart_as_master(slave: OfficialBroker) -> None:
    slave.process.stop()
    settings = slave.process.folder / "broker.conf"
    kept = [one for one in settings.read_text().splitlines() if one.split("=")[0] not in _SLAVE]
    settings.write_text("\n".join([*kept, "brokerRole=ASYNC_MASTER", "brokerId=0"]) + "\n")
    slave.process.start()


async def _ask(slave: Server, name: str) -> None:
    async with RpcClient() as rpc:
        await rpc.call(
            slave.address,
            PromoteBroker(broker_name=name, epoch=Long(1), role="ASYNC_MASTER"),
            timeout_ms=REPLY_TIMEOUT_S * 1000,
        )


async def _fill(master: Server, messages: int, folder: Path) -> None:
    filled = BrokerUnderLoad(TOPIC, ASYNC, master)
    await load(
        port=filled.port,
        server_pid=filled.pid,
        workload=Workload(name="filling", connections=1, in_flight=64),
        frames=write_frames(
            [send_request(TOPIC, queue_id, BODY_BYTES) for queue_id in range(QUEUES)],
            folder / "filling",
        ),
        seconds=_TIMEOUT_S,
        calls_max=messages,
    )


def _stored(address: str) -> int:
    return sum(wire.max_offset(address, TOPIC, queue_id) for queue_id in range(QUEUES))


async def _accepts(address: str) -> bool:
    async with RpcClient() as rpc:
        try:
            reply = await rpc.invoke(address, send_request(TOPIC, 0, BODY_BYTES))
        except TransportError:
            return False
        return reply.code == ResponseCode.SUCCESS


def _shows(name_server: str, name: str, address: str) -> bool:
    return wire.broker_addresses(name_server, name).get("0") == address


def _until(is_so: Callable[[], bool], began_s: float) -> float:
    pause = threading.Event()
    while not is_so():
        if time.perf_counter() - began_s > _TIMEOUT_S:
            raise LoadError(f"not within {_TIMEOUT_S} s")
        pause.wait(_POLL_S)
    return time.perf_counter() - began_s


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The summary as a Markdown table: least, middle and greatest time."""
    lines = [["server", "first send accepted ms", "shown by the name server ms"], ["---"] * 3]
    for row in rows:
        cells = [
            " / ".join(f"{value:,.0f}" for value in row["figures"][name])
            for name in ("accepted_ms", "shown_ms")
        ]
        lines.append([row["server"], *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Measure, print the table and keep the results."""
    parser = plan_options(
        "Compare promotions.",
        rounds=5,
        seconds=0,
        java_warm_up_seconds=0,
        output=RESULTS / "promotion.json",
    )
    parser.add_argument("--messages", type=int, default=200_000, help="of 1 KiB, in the log")
    chosen = parser.parse_args()
    line = brokers.newest_line(without=chosen.no_java or chosen.smoke)
    messages = SMOKE_MESSAGES if chosen.smoke else chosen.messages
    facts = facts_of(line)
    steps: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="promotion-") as name,
        brokers.running_name_server(Path(name) / "name-server") as name_server,
    ):
        for number in range(1 if chosen.smoke else chosen.rounds):
            for server in (None, *([line] if line else [])):
                title = brokers.official_name(server) if server else brokers.OURS
                pair = f"pair-{server or 'ours'}-{number}"
                figures = promoted_after(server, pair, Path(name) / pair, name_server, messages)
                steps.append(
                    {"server": title, "step": f"{messages:,} messages", "figures": figures}
                )
    rows = summary(steps)
    print(table(rows))
    if not chosen.smoke:
        facts["load_average_after"] = [round(value, 2) for value in os.getloadavg()]
        keep(chosen.output, {"environment": facts, "summary": rows, "steps": steps})


if __name__ == "__main__":
    main()
