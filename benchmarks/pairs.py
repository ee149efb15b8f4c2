"""Pairs of a master and a slave, ours and official, and what benchmarks ask of them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks import brokers
from benchmarks.broker_requests import send_request
from benchmarks.broker_rounds import facts_of
from benchmarks.broker_start import summary
from benchmarks.brokers import ASYNC, FILE_SIZES, JVM_FLAGS, QUEUES, BrokerUnderLoad
from benchmarks.load import LoadError, Workload, load, write_frames
from benchmarks.official_servers import with_flags
from benchmarks.plans import keep, markdown_table, plan_options
from benchmarks.rounds import RESULTS
from tests.interop import wire
from tests.interop.official import OfficialBroker
from tests.interop.ours import OrbitBroker
from tests.waiting import wait_until

BODY_BYTES: Final = 1024
SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1"}
TIMEOUT_S: Final = 120
_POLL_S: Final = 0.005
_RUNTIME: Final = 28
_REPLICATION: Final = 907

Server = OrbitBroker | OfficialBroker


@dataclass(frozen=True, slots=True)
class Site:
    """Where one measurement runs: of which release line (None: ours), and in which folder."""

    line: str | None
    name: str
    folder: Path
    name_server: str
    # Messages to send before.
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a benchmark measures once per round and server; least, middle and greatest are kept."""

    name: str
    description: str
    measure: Callable[[Site], dict[str, float]]
    # The title and the decimals of each figure's column.
    columns: Mapping[str, tuple[str, int]]
    messages: int
    smoke_messages: int = 200
    rounds: int = 5

    def table(self, rows: Sequence[dict[str, Any]]) -> str:
        """The summary as a Markdown table."""
        cells = [
            [
                row["server"],
                *(
                    " / ".join(f"{value:,.{decimals}f}" for value in row["figures"][name])
                    for name, (_, decimals) in self.columns.items()
                ),
            ]
            for row in rows
        ]
        return markdown_table(["server", *(title for title, _ in self.columns.values())], cells)


def ask(question: Question) -> None:
    """Measure ours and the official one in turn, print the table and keep the results."""
    parser = plan_options(
        question.description,
        rounds=question.rounds,
        seconds=0,
        java_warm_up_seconds=0,
        output=RESULTS / f"{question.name}.json",
    )
    parser.add_argument("--messages", type=int, default=question.messages, help="of 1 KiB")
    chosen = parser.parse_args()
    line = brokers.newest_line(without=chosen.no_java or chosen.smoke)
    messages = question.smoke_messages if chosen.smoke else chosen.messages
    facts = facts_of(line)
    steps: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix=f"{question.name}-") as name,
        brokers.running_name_server(Path(name) / "name-server") as name_server,
    ):
        for number in range(1 if chosen.smoke else chosen.rounds):
            for server in (None, *([line] if line else [])):
                pair = f"pair-{server or 'ours'}-{number}"
                site = Site(server, pair, Path(name) / pair, name_server, messages)
                steps.append(
                    {
                        "server": brokers.official_name(server) if server else brokers.OURS,
                        "step": f"{messages:,} messages",
                        "figures": question.measure(site),
                    }
                )
    rows = summary(steps)
    print(question.table(rows))
    if not chosen.smoke:
        facts["load_average_after"] = [round(value, 2) for value in os.getloadavg()]
        keep(chosen.output, {"environment": facts, "summary": rows, "steps": steps})


def start_broker(  # by position, as read from left to right
    running: contextlib.ExitStack,
    line: str | None,
    name: str,
    folder: Path,
    name_server: str,
    settings: Mapping[str, str],
) -> Server:
    """Start a broker of ours, or an official one of a release line, and wait until it serves."""
    broker = prepare_broker(line, name, folder, name_server, settings)
    broker.process.start()
    running.callback(broker.process.kill)
    broker.wait_ready()
    return broker


def prepare_broker(
    line: str | None, name: str, folder: Path, name_server: str, settings: Mapping[str, str]
) -> Server:
    """Make a broker that is not started yet."""
    chosen = {**FILE_SIZES, "flushDiskType": ASYNC, **settings}
    broker: Server
    if line is None:
        broker = OrbitBroker(name, folder, [name_server], chosen)
    else:
        broker = OfficialBroker(line, name, folder, [name_server], chosen)
        broker.process.command = with_flags(broker.process.command, JVM_FLAGS)
    return broker


def start_slave(
    running: contextlib.ExitStack,
    site: Site,
    name: str,
    master: Server,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Server:
    """Start an empty slave of a master, and wait until it follows."""
    folder = site.folder / f"{name}-slave"
    slave = start_broker(running, site.line, name, folder, site.name_server, {**SLAVE, **settings})
    wait_until(
        lambda: slaves_in_sync(master.address) == 1,
        timeout_s=TIMEOUT_S,
        what=f"the slave of {name} follows",
    )
    return slave


async def fill(master: Server, topic: str, site: Site) -> None:
    """Send so many messages as the site wants."""
    filled = BrokerUnderLoad(topic, ASYNC, master)
    await load(
        port=filled.port,
        server_pid=filled.pid,
        workload=Workload(name="filling", connections=1, in_flight=64),
        frames=write_frames(
            [send_request(topic, queue_id, BODY_BYTES) for queue_id in range(QUEUES)],
            site.folder / "filling",
        ),
        seconds=TIMEOUT_S,
        calls_max=site.messages,
    )


def stored(address: str, topic: str) -> int:
    """How many messages of a topic readers of a broker see."""
    return sum(wire.max_offset(address, topic, queue_id) for queue_id in range(QUEUES))


def log_end(address: str) -> int:
    """Where the log of a broker ends."""
    table: dict[str, Any] = wire.ask(address, _RUNTIME).body["table"]
    return int(table["commitLogMaxOffset"])


def slaves_in_sync(address: str) -> int:
    """How many slaves of a master have nearly all of its log."""
    links: list[dict[str, Any]] = wire.ask(address, _REPLICATION).body["haConnectionInfo"]
    return sum(link["inSync"] for link in links)


def wait_copied(master: str, slave: str) -> None:
    """Wait until a slave has the whole log of its master."""
    wait_until(
        lambda: log_end(slave) == log_end(master),
        timeout_s=TIMEOUT_S,
        what=f"{slave} has the log",
    )


def seconds_until(is_so: Callable[[], bool], began_s: float) -> float:
    """Wait until something is so, and tell how long that took since `began_s`."""
    pause = threading.Event()
    while not is_so():
        if time.perf_counter() - began_s > TIMEOUT_S:
            raise LoadError(f"not within {TIMEOUT_S} s")
        pause.wait(_POLL_S)
    return time.perf_counter() - began_s
