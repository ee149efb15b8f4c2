"""The log between masters and slaves: ours under official masters, theirs under ours."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import Message, Producer, SendStatus
from tests.interop import wire
from tests.interop.official import OfficialBroker
from tests.interop.ours import OrbitBroker
from tests.interop.peers import BROKERS, NameServer, Peer
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

_FILE_BYTES = 1 << 20
_BODY_BYTES = 100_000
# A slave of RocketMQ 4.9 makes its first report five seconds after it connected.
_COPIED_TIMEOUT_S = 60
_RUNTIME = 28
_SIZES = {"mappedFileSizeCommitLog": str(_FILE_BYTES)}
# Brokers of RocketMQ 5 wait for nobody unless this is set.
_SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
_SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


@pytest.fixture(params=BROKERS, ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line of the official broker."""
    value: Peer = request.param
    return value


class Stored:
    """A broker and the folder of its log."""

    def __init__(self, broker: OfficialBroker | OrbitBroker, folder: Path) -> None:
        self.broker = broker
        self._log = folder / "store" / "commitlog"

    def bounds(self) -> tuple[int, int]:
        """Where the log begins and ends; an official slave that starts does not say it yet."""
        table: dict[str, Any] = wire.ask(self.broker.address, _RUNTIME).body["table"]
        return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])

    def log(self, start: int, end: int) -> bytes:
        """The bytes of the log as its files have them."""
        content = b"".join(
            path.read_bytes() for path in sorted(self._log.iterdir()) if int(path.name) >= start
        )
        return content[: end - start]


@contextmanager
def _running(*brokers: Stored) -> Iterator[None]:
    try:
        for each in brokers:
            each.broker.process.start()
            each.broker.wait_ready()
        yield
    finally:
        for each in brokers:
            each.broker.process.kill()


def _wait_copied(master: Stored, slave: Stored) -> None:
    wait_until(
        lambda: master.bounds()[1] == slave.bounds()[1],
        timeout_s=_COPIED_TIMEOUT_S,
        what="the slave has the log",
    )


def _wait_linked(producer: Producer, topic: str) -> None:
    """Return once a send is acknowledged with a copy on the slave."""
    wait_until(
        lambda: producer.send(Message(topic, b"ready?")).status is SendStatus.OK,
        timeout_s=_COPIED_TIMEOUT_S,
        what="a send that the slave has",
    )


def _send(producer: Producer, topic: str, count: int) -> list[SendStatus]:
    return [
        # Random bytes are not compressed.
        producer.send(Message(topic, random.randbytes(_BODY_BYTES))).status
        for _ in range(count)
    ]


@pytest.mark.scenario("peer", "is the sync master of a slave of ours, whose log is byte-equal")
def test_our_slave_copies_the_log_of_an_official_master(
    peer: Peer,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    new_topic: str,
) -> None:
    name_server = name_servers["ours"].address
    name = f"log-master-{peer.line}"
    master_folder, slave_folder = new_folder(name), new_folder(f"slave of {name}")
    official = OfficialBroker(peer.line, name, master_folder, [name_server], _SIZES | _SYNC)
    ours = OrbitBroker(name, slave_folder, [name_server], _SIZES | _SLAVE)
    master, slave = Stored(official, master_folder), Stored(ours, slave_folder)

    with (
        _running(master, slave),
        Producer("p", namesrv=name_server, send_timeout_ms=20_000) as producer,
    ):
        official.create_topic(new_topic)
        _wait_linked(producer, new_topic)
        statuses = _send(producer, new_topic, 25)
        ours.process.kill()
        statuses += _send(producer, new_topic, 2)
        ours.restart()
        _wait_linked(producer, new_topic)
        statuses += _send(producer, new_topic, 10)
        _wait_copied(master, slave)
        start, end = slave.bounds()

        assert statuses.count(SendStatus.OK) >= 35
        assert end > 3 * _FILE_BYTES
        assert slave.log(start, end) == master.log(start, end)
        shown = sum(wire.max_offset(official.address, new_topic, each) for each in range(4))
        wire.wait_shown(ours.address, new_topic, shown)


@pytest.mark.scenario("peer", "is the slave of a sync master of ours, with a byte-equal log")
def test_an_official_slave_copies_our_log_from_its_start(
    peer: Peer,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    new_topic: str,
) -> None:
    name_server = name_servers["ours"].address
    name = f"our-log-master-{peer.line}"
    master_folder, slave_folder = new_folder(name), new_folder(f"slave of {name}")
    ours = OrbitBroker(name, master_folder, [name_server], _SIZES | _SYNC)
    official = OfficialBroker(peer.line, name, slave_folder, [name_server], _SIZES | _SLAVE)
    master, slave = Stored(ours, master_folder), Stored(official, slave_folder)

    with _running(master), Producer("p", namesrv=name_server, send_timeout_ms=20_000) as producer:
        ours.create_topic(new_topic)
        alone = _send(producer, new_topic, 25)
        with _running(slave):
            _wait_linked(producer, new_topic)
            together = _send(producer, new_topic, 10)
            official.process.kill()
            _send(producer, new_topic, 2)
            official.process.start()
            official.wait_ready()
            _wait_linked(producer, new_topic)
            _wait_copied(master, slave)
            start, end = slave.bounds()

            assert set(alone) == {SendStatus.SLAVE_NOT_AVAILABLE}
            assert set(together) == {SendStatus.OK}
            assert start == 0
            assert slave.log(start, end) == master.log(start, end)
