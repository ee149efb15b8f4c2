"""Faults of an embedded cluster, chosen by seed where they are a matter of chance."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from orbitmq.embedded.local_broker import find_broker
from orbitmq.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.client.sync.background_loop import BackgroundLoop
    from orbitmq.embedded.local_broker import LocalBroker
    from orbitmq.embedded.relay import Relay


class Faults:
    """What can be made to go wrong; a broker that is not named is drawn by the seed."""

    def __init__(
        self, brokers: Mapping[str, LocalBroker], loop: BackgroundLoop, *, seed: int
    ) -> None:
        self._brokers = brokers
        self._loop = loop
        self.chance = random.Random(seed)  # noqa: S311  # the same faults for the same seed

    def kill_broker(self, name: str | None = None) -> str:
        """End a broker as if its process were killed; returns its name."""
        broker = self._drawn(name)
        self._loop.call(broker.kill())
        return broker.name

    def stop_broker(self, name: str | None = None) -> str:
        """End a broker in good order; returns its name."""
        broker = self._drawn(name)
        self._loop.call(broker.stop())
        return broker.name

    def restart_broker(self, name: str) -> None:
        """Start a broker again, after ending it if it runs."""
        broker = find_broker(self._brokers, name)

        async def restart() -> None:
            await broker.stop()
            await broker.start()

        self._loop.call(restart())

    def fail_disk(self, name: str | None = None) -> str:
        """Let a broker find that its disk failed; it takes nothing until it is restarted."""
        broker = self._drawn(name)

        async def fail() -> None:
            broker.fail_disk()

        self._loop.call(fail())
        return broker.name

    def drop_connections(self, name: str | None = None, *, share: float = 1.0) -> int:
        """Cut connections to a broker, each with this chance; how many were cut."""
        relay = self._relay(self._drawn(name))

        async def drop() -> int:
            return relay.drop(share)

        return self._loop.call(drop())

    def refuse_connections(self, name: str, *, refuse: bool = True) -> None:
        """Take no new connections to a broker, or take them again."""
        self._relay(find_broker(self._brokers, name)).refuses = refuse

    def delay_connections(self, name: str, *, delay_ms: float, jitter_ms: float = 0) -> None:
        """Let everything sent to and by a broker arrive late; 0 ends it."""
        relay = self._relay(find_broker(self._brokers, name))
        relay.delay_ms, relay.jitter_ms = delay_ms, jitter_ms

    def hold_requests(self, name: str, code: int) -> None:
        """Let requests of one kind to a broker wait on their way, as long as nothing is encrypted."""
        self._change_relay(name, lambda relay: relay.hold(code))

    def let_requests_go(self, name: str, code: int) -> None:
        """Let requests arrive that were held, and those that come from now on."""
        self._change_relay(name, lambda relay: relay.let_go(code))

    def _change_relay(self, name: str, change: Callable[[Relay], None]) -> None:
        relay = self._relay(find_broker(self._brokers, name))

        async def on_loop() -> None:
            change(relay)

        self._loop.call(on_loop())

    def _drawn(self, name: str | None) -> LocalBroker:
        if name is not None:
            return find_broker(self._brokers, name)
        running = [broker for broker in self._brokers.values() if broker.is_running]
        if not running:
            raise StateError("no broker runs", hint="start the cluster, or restart a broker")
        return self.chance.choice(running)

    def _relay(self, broker: LocalBroker) -> Relay:
        if broker.relay is None:
            raise StateError(
                f"nothing stands between clients and {broker.name}",
                hint="make the cluster with network_faults=True",
            )
        return broker.relay
