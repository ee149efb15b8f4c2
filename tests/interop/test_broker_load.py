"""Load on our broker while it is killed again and again: nothing acknowledged is lost.

Environment:
    ORBITMQ_LOAD_KILLS  how often the broker is killed; 3 without it
    ORBITMQ_LOAD_PAGE   where to write what came of it; nowhere without it
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import SystemClock
from orbitmq.version import __version__
from tests.interop.drivers import JavaDriver
from tests.interop.load import Load
from tests.interop.peers import StartOurCluster

KILLS = int(os.environ.get("ORBITMQ_LOAD_KILLS", "3"))
TIMEOUT_S = 900 + 120 * KILLS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(TIMEOUT_S)]

PRODUCERS = 64
CONSUMERS = 16
QUEUES = 32
ACKED_BETWEEN_KILLS = 500
# A lock whose client is gone ends 35 s after a restart; only then its queue goes on.
DRAIN_TIMEOUT_MS = 240_000


@pytest.mark.scenario("loader", f"our broker: {PRODUCERS} producers, {CONSUMERS} consumers, kills")
def test_every_acknowledged_message_is_received_in_order_though_the_broker_is_killed(
    loader: JavaDriver, start_our_cluster: StartOurCluster, new_topic: str
) -> None:
    cluster = start_our_cluster()
    broker = cluster.broker
    broker.create_topic(new_topic, queues=QUEUES)
    load = Load(loader, new_topic)
    load.start(
        cluster.name_server.address,
        broker.name,
        queues=QUEUES,
        producers=PRODUCERS,
        consumers=CONSUMERS,
    )

    load.wait_for_more("acked", ACKED_BETWEEN_KILLS)
    for _ in range(KILLS):
        broker.process.kill()
        # So that producers meet the kill.
        load.wait_for_more("failed", 1)
        broker.restart()
        load.wait_for_more("acked", ACKED_BETWEEN_KILLS)
    verdict = load.stop(timeout_ms=DRAIN_TIMEOUT_MS)

    if page := os.environ.get("ORBITMQ_LOAD_PAGE"):
        Path(page).write_text(_page(verdict))
    assert verdict["faults"] == [], verdict
    assert verdict["missing"] == 0, verdict
    assert verdict["acked"] > (KILLS + 1) * ACKED_BETWEEN_KILLS
    assert verdict["failed"] >= KILLS


def _page(verdict: dict[str, Any]) -> str:
    now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
    is_fine = not verdict["faults"] and not verdict["missing"]
    return (
        "# A broker killed under load\n\n"
        f"{'Passed' if is_fine else 'FAILED'}: {KILLS} kills. {now.date().isoformat()}, "
        f"OrbitMQ {__version__}. Written by `tests/interop/test_broker_load.py` (`make soak`).\n\n"
        f"{PRODUCERS} producers and {CONSUMERS} ordered consumers of RocketMQ's Java client 5.5.0, "
        f"{QUEUES} queues, SYNC_FLUSH; the broker's process gets SIGKILL after every "
        f"{ACKED_BETWEEN_KILLS} acknowledged messages and is started again.\n\n"
        "| | messages |\n|---|---|\n"
        f"| acknowledged | {verdict['acked']:,} |\n"
        f"| sends that failed, because of a kill | {verdict['failed']:,} |\n"
        f"| received, repeats included | {verdict['received']:,} |\n"
        f"| acknowledged and never received | {verdict['missing']:,} |\n"
        f"| faults in order or content | {len(verdict['faults'])} |\n"
    )
