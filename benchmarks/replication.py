"""What does a slave cost its master, ours and the official one, and how far is it behind?

    python -m benchmarks.replication [--rounds N] [--seconds S] [--no-java] [--smoke]

A broker alone, one whose slave follows, and one that waits for its slave, all with ASYNC_FLUSH, so
that the disk does not hide the rest. Every slice ends once readers see what was sent; how long the
slave takes from there on to have it is the column `slave late`.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import broker_send, brokers
from benchmarks.broker_rounds import (
    SMOKE,
    Column,
    Figures,
    facts_of,
    measure,
    options,
    summary,
    table,
)
from benchmarks.broker_send import SendCost
from benchmarks.brokers import OURS, BrokerUnderLoad
from benchmarks.pairs import SLAVE, slaves_in_sync, start_broker, wait_copied
from benchmarks.plans import keep_slices, plan_of
from tests.interop import wire
from tests.waiting import wait_until

ALONE: Final = "alone"
ASYNC_PAIR: Final = "async pair"
SYNC_PAIR: Final = "sync pair"
WORKLOADS: Final = ("64 sync producers, 128 B", "pipelined 8x64, 1 KiB")
COLUMNS: Final = (
    *broker_send.COLUMNS,
    Column(figure="slave_late_ms", title="slave late ms"),
)
# A machine that stands still for seconds must not turn into replies that are not OK.
_SYNC_ROLE: Final = {
    "brokerRole": "SYNC_MASTER",
    "inSyncReplicas": "2",
    "slaveTimeout": "60000",
}
_COPIED_TIMEOUT_S: Final = 120


class ReplicationCost(SendCost):
    """Loads masters with sends, and waits for their slaves."""

    workloads = WORKLOADS

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # The slaves' addresses by their masters'.
        self.slaves: dict[str, str] = {}

    async def load(self, broker: BrokerUnderLoad, workload: str, seconds: float) -> Figures:
        """Send for so long, and wait until the slave has everything."""
        figures = dict(await super().load(broker, workload, seconds))
        slave = self.slaves.get(broker.address)
        if slave is not None:
            began_s = time.perf_counter()
            await asyncio.to_thread(wait_copied, broker.address, slave)
            figures["slave_late_ms"] = (time.perf_counter() - began_s) * 1000
        return figures


@contextlib.contextmanager
def _running(
    line: str | None, folder: Path, question: ReplicationCost
) -> Iterator[list[BrokerUnderLoad]]:
    with (
        brokers.running_name_server(folder / "name-server") as name_server,
        contextlib.ExitStack() as running,
    ):
        yield [
            _group(running, server, kind, folder, name_server, question)
            for kind in (ALONE, ASYNC_PAIR, SYNC_PAIR)
            for server in (None, *([line] if line else []))
        ]


def _group(
    running: contextlib.ExitStack,
    line: str | None,
    kind: str,
    folder: Path,
    name_server: str,
    question: ReplicationCost,
) -> BrokerUnderLoad:
    """Start a master, and a slave unless it is alone."""
    name = f"{line or 'ours'}-{kind.replace(' ', '-')}"
    role = _SYNC_ROLE if kind == SYNC_PAIR else {}
    master = start_broker(running, line, name, folder / name, name_server, role)
    for topic in question.topics:
        wire.create_topic(master.address, topic, queues=brokers.QUEUES)
    if kind != ALONE:
        slave = start_broker(
            running,
            line,
            name,
            folder / f"{name}-slave",
            name_server,
            SLAVE,
        )
        question.slaves[master.address] = slave.address
        wait_until(
            lambda: slaves_in_sync(master.address) == 1,
            timeout_s=_COPIED_TIMEOUT_S,
            what=f"{slave.address} is connected",
        )
    return BrokerUnderLoad(brokers.official_name(line) if line else OURS, kind, master)


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the cost of slaves.", "replication", rounds=5, seconds=1.5)
    line = brokers.newest_line(without=chosen.no_java or chosen.smoke)
    plan = plan_of(chosen, SMOKE, warm_up_seconds=5.0)
    facts = facts_of(line)
    with tempfile.TemporaryDirectory(prefix="replication-") as folder:
        question = ReplicationCost(Path(folder))
        with _running(line, Path(folder), question) as masters:
            measured = asyncio.run(measure(masters, question, plan))
    rows = summary(measured)
    print("\nIt works; slices this short say nothing.\n" if chosen.smoke else "")
    print(table(rows, COLUMNS))
    if not chosen.smoke:
        keep_slices(chosen.output, facts, plan, rows, measured)


if __name__ == "__main__":
    main()
