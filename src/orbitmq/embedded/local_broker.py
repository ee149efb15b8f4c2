"""One broker of an embedded cluster: started, stopped, killed, restarted.

Crash: a kill keeps the files as they are at that moment, like the death of a process.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from orbitmq.broker.app import Broker, load_settings
from orbitmq.broker.replicated import ReplicatedBroker
from orbitmq.broker.replication.config import BrokerRole
from orbitmq.disk import off_loop
from orbitmq.errors import SettingsError, StateError
from orbitmq.protocol.requests.topics import UpdateTopic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orbitmq.clock import Clock
    from orbitmq.embedded.relay import Relay
    from orbitmq.transport.rpc_client import RpcClient


class LocalBroker:
    """A broker that keeps its name, port and folder across restarts, whatever its role is."""

    def __init__(
        self,
        group: str,
        *,
        slave: int = 0,
        folder: Path,
        options: Mapping[str, str],
        clock: Clock,
        relay: Relay | None,
    ) -> None:
        """Prepare a broker: the first master of a group, or the slave with this number."""
        self.group = group
        self.name = f"{group}-slave-{slave}" if slave else group
        self.relay = relay
        self._folder = folder / self.name
        self._options = {
            **options,
            "brokerName": group,
            "storePathRootDir": str(self._folder),
        }
        if slave:
            self._options |= {"brokerId": str(slave), "brokerRole": BrokerRole.SLAVE}
        self._clock = clock
        self._port = 0
        self._running: ReplicatedBroker | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self._running is not None

    @property
    def is_master(self) -> bool:
        """Whether it is running, and is the master of its group."""
        return self._serves_as(BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER)

    @property
    def is_slave(self) -> bool:
        """Whether it is running, and is a slave."""
        return self._serves_as(BrokerRole.SLAVE)

    def _serves_as(self, *roles: BrokerRole) -> bool:
        return self._running is not None and any(map(self._broker.is_serving_as, roles))

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return self._broker.advertised

    @property
    def _broker(self) -> Broker:
        if self._running is None:
            raise StateError(f"broker {self.name} is not running", hint="restart it first")
        return self._running.broker

    async def start(self) -> None:
        """Start with the messages in its folder, on its earlier port."""
        if self._running is not None:
            raise StateError(f"broker {self.name} is already running")
        settings = load_settings(flags={**self._options, "listenPort": str(self._port)})
        running = ReplicatedBroker(
            settings,
            clock=self._clock,
            advertised_port=self.relay.port if self.relay else None,
        )
        if self.relay is not None:
            self.relay.set_target(running.broker.address, running.broker.port)
        await running.start()
        self._port = running.broker.port
        self._running = running

    async def stop(self) -> None:
        """Stop cleanly."""
        running, self._running = self._running, None
        if running is not None:
            await running.stop()

    async def kill(self) -> None:
        """Stop as if the process were killed."""
        running = self._running
        if running is None:
            raise StateError(f"broker {self.name} is not running", hint="restart it first")
        self._running = None
        image = self._folder.with_name(f"{self.name}.killed")
        try:
            await running.abort()
            await off_loop(copy_running_store, self._folder, image)
        finally:
            await running.stop()
        await off_loop(lambda: shutil.rmtree(self._folder))
        image.rename(self._folder)

    def message_count(self, topic: str) -> int:
        """How many messages of a topic consumers can see."""
        queues = self._broker.store.queues()
        return sum(queue.end - queue.start for queue in queues if queue.topic == topic)

    async def copies(self, master: LocalBroker) -> bool:
        """Whether this slave shows all that its master has; copies its tables then."""
        mine, its = self._broker, master._broker
        following = mine.replication.following
        if (
            following is None
            or not following.is_linked
            or mine.reign.epochs.epoch != its.reign.epochs.epoch
        ):
            return False
        if not mine.store.visible == mine.store.log_end == its.store.log_end == its.store.visible:
            return False
        await following.copy_tables()
        return True

    def fail_disk(self) -> None:
        """Make its disk fail: it acknowledges nothing until it is restarted."""
        self._broker.store.fence("the disk failed (injected)")

    async def create_topic(
        self, rpc: RpcClient, name: str, *, queues: int, attributes: str
    ) -> None:
        """Create or change a topic."""
        await rpc.call(
            f"{self._broker.address}:{self._broker.port}",
            UpdateTopic(
                topic=name,
                template_topic="TBW102",
                read_queues=queues,
                write_queues=queues,
                permission=6,
                filter_type="SINGLE_TAG",
                attributes=attributes or None,
            ),
        )


def copy_running_store(store: Path, image: Path) -> None:
    """Copy the store of a broker that may still be writing, as a kill would leave it."""
    log = "commitlog"
    shutil.copytree(store, image, copy_function=_copy, ignore=shutil.ignore_patterns(log))
    # Last: the other files must not refer to what it does not have.
    if (store / log).exists():
        shutil.copytree(store / log, image / log, copy_function=_copy)


def _copy(source: str, target: str) -> None:
    # The broker is still running, and may replace a file meanwhile.
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def find_broker(brokers: Mapping[str, LocalBroker], name: str) -> LocalBroker:
    """Find a broker by its name."""
    if not brokers:
        raise StateError("the cluster is not started", hint="use it in a with block")
    if name not in brokers:
        raise SettingsError(f"there is no broker {name!r}", hint=f"brokers: {', '.join(brokers)}")
    return brokers[name]
