"""Official clients at a damaged queue of our broker: they wait at the damage, and skip nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.exchanges import MakeExchange, bodies, texts
from tests.interop.ours import OrbitBroker
from tests.interop.peers import StartOurCluster
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

MESSAGES = 4300
# More in a row than a broker repairs by itself.
DAMAGED = range(10, 4200)
ENTRY_BYTES = 20
REFUSED = "refused call=PULL_MESSAGE"


@pytest.mark.scenario("client", "our broker: a damaged queue holds a consumer up, skips nothing")
def test_client_waits_at_a_damaged_queue_and_goes_on_once_it_is_rebuilt(
    exchange_at: MakeExchange, start_our_cluster: StartOurCluster
) -> None:
    cluster = start_our_cluster()
    broker = cluster.broker
    exchange = exchange_at(cluster)
    exchange.create_topic(queues=1)
    exchange.post(*bodies(MESSAGES), mode="batch")
    store = broker.process.folder / "store"
    _damage(store / f"consumequeue/{exchange.topic}/0" / f"{0:020d}")

    exchange.subscribe()
    wait_until(
        lambda: _refusals(broker) >= 3, timeout_s=CLIENT_TIMEOUT_S, what="the client asks again"
    )
    before = exchange.received(0)
    refusals = [line for line in _console(broker) if REFUSED in line]
    broker.process.stop()
    _rebuild(store)
    broker.restart()
    after = exchange.received(MESSAGES)

    assert texts(before) == sorted(f"message {number}" for number in range(DAMAGED.start))
    assert {message.body for message in after} == {f"message {n}" for n in range(MESSAGES)}
    # Each time at the same message.
    assert all(f"entry {DAMAGED.start} of topic" in line for line in refusals)


def _damage(queue_file: Path) -> None:
    """Overwrite entries once they are on disk."""
    end = MESSAGES * ENTRY_BYTES
    wait_until(
        lambda: queue_file.exists() and any(queue_file.read_bytes()[end - ENTRY_BYTES : end]),
        timeout_s=CLIENT_TIMEOUT_S,
        what="queue entries on disk",
    )
    with queue_file.open("r+b") as file:
        file.seek(DAMAGED.start * ENTRY_BYTES)
        file.write(b"\xff" * len(DAMAGED) * ENTRY_BYTES)


def _console(broker: OrbitBroker) -> list[str]:
    return broker.process.console.read_text(errors="replace").splitlines()


def _refusals(broker: OrbitBroker) -> int:
    return sum(REFUSED in line for line in _console(broker))


def _rebuild(store: Path) -> None:
    """Rebuild the queues as an operator does."""
    command = [str(Path(sys.executable).with_name("orbitmq")), "store", "rebuild", str(store)]
    subprocess.run(command, check=True, capture_output=True, timeout=CLIENT_TIMEOUT_S)
