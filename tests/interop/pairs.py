"""An official master with a slave, started for tests that end the master and start it again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.interop import wire
from tests.interop.official import OfficialBroker
from tests.interop.timeouts import CLIENT_TIMEOUT_S, REGISTER_TIMEOUT_S, START_TIMEOUT_S
from tests.waiting import wait_until

_READ_FROM_SLAVES = {"slaveReadEnable": "true"}
# The interval is that of reports, too, before the first of which a master sends nothing.
_SLAVE = {
    "brokerId": "1",
    "brokerRole": "SLAVE",
    "haSendHeartbeatInterval": "500",
    **_READ_FROM_SLAVES,
}


class OfficialPair:
    """A master and its slave, both of one line."""

    def __init__(
        self, line: str, name: str, new_folder: Callable[[str], Path], name_server: str
    ) -> None:
        self.name = name
        self.name_server = name_server
        servers = [name_server]
        self.master = OfficialBroker(
            line, name, new_folder(f"{name}-master"), servers, _READ_FROM_SLAVES
        )
        self.slave = OfficialBroker(line, name, new_folder(f"{name}-slave"), servers, _SLAVE)

    def start(self, *topics: str) -> None:
        """Start both, with these topics; returns once the slave can follow its master."""
        self.master.process.start()
        self.master.wait_ready()
        for topic in topics:
            self.master.create_topic(topic)
        # A slave of RocketMQ 5 asks for topics after a minute, and none can be created there.
        config = Path("store", "config")
        copied = self.slave.process.folder / config
        copied.mkdir(parents=True)
        shutil.copy(self.master.process.folder / config / "topics.json", copied)
        # It learns the address of its master when it registers.
        self.slave.process.start()
        self.slave.process.wait_printed("boot success", timeout_s=START_TIMEOUT_S)
        self.wait_registered({"0", "1"})

    def wait_copied(self, topic: str, count: int) -> None:
        """Return once the slave shows so many messages of a topic of four queues."""
        wire.wait_shown(self.slave.address, topic, count)

    def kill_master(self) -> None:
        """End the master; returns once the name server knows."""
        self.master.process.kill()
        self.wait_registered({"1"})

    def restart_master(self) -> None:
        """Start the master again; returns once the name server knows."""
        self.master.process.start()
        wait_until(
            self._master_is_registered, timeout_s=REGISTER_TIMEOUT_S, what=f"{self.name} registered"
        )

    def stop(self) -> None:
        """End both."""
        self.master.process.kill()
        self.slave.process.kill()

    def wait_registered(self, ids: set[str]) -> None:
        """Return once the name server lists these brokers of the pair."""
        wait_until(
            lambda: set(wire.broker_addresses(self.name_server, self.name)) == ids,
            timeout_s=CLIENT_TIMEOUT_S,
            what=f"brokers {ids} of {self.name} registered",
        )

    def _master_is_registered(self) -> bool:
        if "0" in wire.broker_addresses(self.name_server, self.name):
            return True
        try:
            wire.force_registration(self.master.address)
        except OSError:
            # It does not listen yet.
            return False
        return False
