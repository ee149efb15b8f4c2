"""Fault injection for an embedded cluster; random choices come from a seed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from orbitmq.clock import settle
from orbitmq.embedded.local_broker import find_broker
from orbitmq.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.client.sync.background_loop import BackgroundLoop
    from orbitmq.embedded.local_broker import LocalBroker
    from orbitmq.embedded.relay import Relay

# Far above what a name server takes to notice a closed connection.
_NOTICED_SECONDS_MAX: Final = 60


class Faults:
    """Injects faults; without a name, picks a running broker at random, by the seed."""

    def __init__(
        self,
        brokers: Mapping[str, LocalBroker],
        loop: BackgroundLoop,
        *,
        is_registered: Callable[[str, str], bool],
        seed: int,
    ) -> None:
        self._brokers = brokers
        self._is_registered = is_registered
        self._loop = loop
        self.chance = random.Random(seed)  # noqa: S311  # the same faults for the same seed

    def kill_broker(self, name: str | None = None) -> str:
        """Stop a broker as if its process were killed; returns its name.

        The name server knows then that it is missing.
        """
        broker = self._pick(name)

        async def kill() -> None:
            address = broker.address
            await broker.kill()
            async with asyncio.timeout(_NOTICED_SECONDS_MAX):
                while self._is_registered(broker.group, address):
                    await settle()

        self._loop.call(kill())
        return broker.name

    def stop_broker(self, name: str | None = None) -> str:
        """Stop a broker cleanly; returns its name."""
        broker = self._pick(name)
        self._loop.call(broker.stop())
        return broker.name

    def restart_broker(self, name: str) -> None:
        """Start a broker again; stops it first if it is running."""
        broker = find_broker(self._brokers, name)

        async def restart() -> None:
            await broker.stop()
            await broker.start()

        self._loop.call(restart())

    def fail_disk(self, name: str | None = None) -> str:
        """Make a broker's disk fail; it accepts no messages until it is restarted."""
        broker = self._pick(name)

        async def fail() -> None:
            broker.fail_disk()

        self._loop.call(fail())
        return broker.name

    def drop_connections(self, name: str | None = None, *, share: float = 1.0) -> int:
        """Cut connections to a broker, each with this probability; returns how many."""
        relay = self._relay(self._pick(name))

        async def drop() -> int:
            return relay.drop(share)

        return self._loop.call(drop())

    def refuse_connections(self, name: str, *, refuse: bool = True) -> None:
        """Refuse new connections to a broker, or accept them again."""
        self._relay(find_broker(self._brokers, name)).refuses = refuse

    def delay_connections(self, name: str, *, delay_ms: float, jitter_ms: float = 0) -> None:
        """Delay everything sent to and by a broker; 0 ends the delay."""
        relay = self._relay(find_broker(self._brokers, name))
        relay.delay_ms, relay.jitter_ms = delay_ms, jitter_ms

    def hold_requests(self, name: str, code: int) -> None:
        """Hold requests with this code on their way to a broker; has no effect on TLS."""
        self._change_relay(name, lambda relay: relay.hold(code))

    def let_requests_go(self, name: str, code: int) -> None:
        """Release held requests, and stop holding new ones."""
        self._change_relay(name, lambda relay: relay.release(code))

    def _change_relay(self, name: str, change: Callable[[Relay], None]) -> None:
        relay = self._relay(find_broker(self._brokers, name))

        async def on_loop() -> None:
            change(relay)

        self._loop.call(on_loop())

    def _pick(self, name: str | None) -> LocalBroker:
        if name is not None:
            return find_broker(self._brokers, name)
        running = [broker for broker in self._brokers.values() if broker.is_running]
        if not running:
            raise StateError("no broker is running", hint="start the cluster, or restart a broker")
        return self.chance.choice(running)

    def _relay(self, broker: LocalBroker) -> Relay:
        if broker.relay is None:
            raise StateError(
                f"{broker.name} has no relay to inject network faults",
                hint="create the cluster with network_faults=True",
            )
        return broker.relay
