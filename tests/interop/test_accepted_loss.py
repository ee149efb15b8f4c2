"""A store with an accepted loss, opened by official brokers after a clean stop and a crash."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.store.tools.accepting_loss import accept_loss
from tests.interop.drivers import JavaDriver
from tests.interop.official import OfficialBroker
from tests.interop.peers import BROKERS, NameServer, Peer
from tests.interop.stores import SMALL_FILES, draft, open_store

pytestmark = pytest.mark.interop

MESSAGES = 200
LOST = range(40, 60)


@pytest.fixture(params=BROKERS, ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line of official brokers that opens the directory."""
    value: Peer = request.param
    return value


@pytest.mark.parametrize("ending", ["stopped", "crashed without queues"])
@pytest.mark.scenario("peer", "opens a store with an accepted loss")
def test_an_official_broker_opens_a_store_with_an_accepted_loss(
    peer: Peer,
    ending: str,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    drivers: Callable[[str], JavaDriver],
    new_topic: str,
) -> None:
    folder = new_folder(f"lossy-store-{peer.line}-{ending.split(maxsplit=1)[0]}")
    root = folder / "store"
    with open_store(folder) as store:
        receipts = [store.append(draft(new_topic, number)) for number in range(MESSAGES)]
        store.confirm(receipts)
    start, end = receipts[LOST[0]].physical_offset, receipts[LOST[-1]].end
    with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(start)
        log.write(b"\xff" * (end - start))
    loss = accept_loss(root, start, confirmed=True)
    if ending != "stopped":
        # The broker must make queues again from the log, with the numbers they had.
        shutil.rmtree(root / "consumequeue")
        (root / "abort").write_text("1")
        (root / "checkpoint").unlink()
    name_server = name_servers["ours"].address
    broker = OfficialBroker(
        peer.line,
        f"lossy-{peer.line}-{ending.split(maxsplit=1)[0]}",
        folder,
        [name_server],
        SMALL_FILES,
    )
    broker.process.start()
    try:
        broker.wait_ready()
        broker.create_topic(new_topic)
        driver = drivers(peer.line)
        received = driver.consume(name_server, new_topic, MESSAGES, group=f"group-{new_topic}")
    finally:
        broker.process.kill()

    assert loss.messages == len(LOST)
    bodies = {message.body for message in received}
    assert {f"message {n}" for n in range(MESSAGES) if n not in LOST} <= bodies
    assert {body.strip("\0") for body in bodies} - {f"message {n}" for n in range(MESSAGES)} == {""}
