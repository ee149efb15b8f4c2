"""Load on our broker while it is killed again and again: nothing acknowledged is lost.

Environment:
    ORBITMQ_LOAD_KILLS  how often the broker is killed; 3 without it
    ORBITMQ_LOAD_PAGE   where to write what came of it; nowhere without it
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.clock import SystemClock
from orbitmq.version import __version__
from tests.interop.drivers import CALL_TIMEOUT_S, JavaDriver
from tests.interop.peers import CLIENTS, StartOurCluster
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

KILLS = int(os.environ.get("ORBITMQ_LOAD_KILLS", "3"))
TIMEOUT_S = 900 + 120 * KILLS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(TIMEOUT_S)]

PRODUCERS = 64
CONSUMERS = 16
QUEUES = 32
ACKED_BETWEEN_KILLS = 500
# A lock whose client is gone ends 35 s after a restart; only then its queue goes on.
DRAIN_TIMEOUT_MS = 240_000


@pytest.fixture(params=CLIENTS[1:2], ids=str)
def loader(
    request: pytest.FixtureRequest, new_folder: Callable[[str], Path]
) -> Iterator[JavaDriver]:
    """A driver of its own: its clients look for their queues every second, not every twenty."""
    made = JavaDriver(
        request.param.line,
        new_folder("driver of load"),
        properties=[
            "rocketmq.client.rebalance.waitInterval=1000",
            "rocketmq.client.rebalance.lockInterval=1000",
        ],
    )
    yield made.start()
    made.stop()


@pytest.mark.scenario("loader", f"our broker: {PRODUCERS} producers, {CONSUMERS} consumers, kills")
def test_every_acknowledged_message_is_received_in_order_though_the_broker_is_killed(
    loader: JavaDriver, start_our_cluster: StartOurCluster, new_topic: str
) -> None:
    cluster = start_our_cluster()
    broker = cluster.broker
    broker.create_topic(new_topic, queues=QUEUES)
    loader.call(
        "load_start",
        load=new_topic,
        namesrv=cluster.name_server.address,
        topic=new_topic,
        group=f"group-{new_topic}",
        broker=broker.name,
        queues=QUEUES,
        producers=PRODUCERS,
        consumers=CONSUMERS,
        pause_ms=20,
    )

    def wait_for_more(what: str, count: int) -> None:
        target = loader.call("load_progress", load=new_topic)[what] + count
        wait_until(
            lambda: loader.call("load_progress", load=new_topic)[what] >= target,
            timeout_s=CLIENT_TIMEOUT_S,
            what=f"{target} messages {what}",
        )

    wait_for_more("acked", ACKED_BETWEEN_KILLS)
    for _ in range(KILLS):
        broker.process.kill()
        # So that producers meet the kill.
        wait_for_more("failed", 1)
        broker.restart()
        wait_for_more("acked", ACKED_BETWEEN_KILLS)
    verdict = loader.call(
        "load_stop",
        call_timeout_s=DRAIN_TIMEOUT_MS / 1000 + CALL_TIMEOUT_S,
        load=new_topic,
        timeout_ms=DRAIN_TIMEOUT_MS,
    )

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
