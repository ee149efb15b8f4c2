"""A broker whose role may change: one `Broker` after the other over a store.

A promotion makes a slave a master, and the master that it replaces a slave; a log that differs from
the new master's is cut while the store is closed. Each time the broker stops and starts again in
its new role, in this process and on the same port. A master that starts asks first whether another
one has replaced it.

Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq.broker.app import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.replication.config import BrokerRole, ReplicationConfig
from orbitmq.broker.replication.epoch import EpochFile, Role
from orbitmq.broker.replication.group_view import look_around
from orbitmq.clock import SystemClock
from orbitmq.errors import StateError
from orbitmq.lifecycle import cancel_and_wait
from orbitmq.store.config import StoreConfig
from orbitmq.transport.addresses import parse_addresses
from orbitmq.transport.rpc_client import RpcClient

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.broker.replication.group_view import GroupView
    from orbitmq.clock import Clock
    from orbitmq.settings import Settings

log = logging.getLogger(__name__)


class ReplicatedBroker:
    """Runs a broker in the role that it has in its group at the time."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        config_file: Path | None = None,
        advertised_port: int | None = None,
        on_failure: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        """Prepare a broker; `on_failure` is called if it cannot start in a new role."""
        self._clock = clock or SystemClock()
        self._config_file = config_file
        self._advertised_port = advertised_port
        self._on_failure = on_failure
        self._settings = settings
        self._configured = Role(
            settings.of(BrokerConfig).broker_id, settings.of(ReplicationConfig).role
        )
        self._changes: asyncio.Task[None] | None = None
        self._is_changing = self._is_stopping = False
        # Fails on a mistake in the settings before anything is opened.
        self.broker = self._make(self._configured)

    async def start(self) -> None:
        """Start in the role that this broker has."""
        await self._start()
        self._changes = asyncio.create_task(self._change_roles(), name="changes of the role")

    async def stop(self) -> None:
        """Stop it, whatever its role."""
        await self._end_changes()
        await self.broker.stop()

    async def abort(self) -> None:
        """Drop all connections at once, as a crash would; `stop` is still needed."""
        await self._end_changes()
        await self.broker.abort()

    async def _end_changes(self) -> None:
        self._is_stopping = True
        if self._changes is not None:
            if self._is_changing:
                await asyncio.wait({self._changes})
            else:
                await cancel_and_wait(self._changes)

    def _make(self, role: Role) -> Broker:
        settings = self._settings.with_values(
            {"brokerId": str(role.broker_id), "brokerRole": role.role}, "its role"
        )
        broker = Broker(
            settings,
            clock=self._clock,
            config_file=self._config_file,
            advertised_port=self._advertised_port,
            configured=self._configured,
        )
        # Live changes, and a port that was found, last beyond a change of the role.
        self._settings = settings.with_values({"listenPort": str(broker.port)}, "its last role")
        return broker

    async def _start(self) -> None:
        role = await self._find_role()
        self.broker = self._make(role)
        await self.broker.start()

    async def _change_roles(self) -> None:
        while not self._is_stopping:
            await self.broker.reign.restart_wanted.wait()
            self._is_changing = True
            try:
                # It registers again under the same address.
                self.broker.parts.registration.abandon()
                await self.broker.stop()
                await self._start()
            except Exception as error:
                log.exception("broker cannot start in its new role")
                self._on_failure(error)
                return
            finally:
                self._is_changing = False

    async def _find_role(self) -> Role:
        """The role that this broker has now, by what its store and its group say."""
        config = self._settings.of(StoreConfig)
        epochs = EpochFile(config.root.expanduser(), config.modes)
        await epochs.load()
        role = epochs.role(self._configured)
        if role.is_slave:
            # Said when the process starts, not again when the role or the log changes.
            if not self._configured.is_slave and self._changes is None:
                log.warning(
                    "configured as a master, and replaced by a promotion: starting as a slave "
                    "epoch=%d id=%d hint=orbitmq broker promote makes it the master again",
                    epochs.epoch,
                    role.broker_id,
                )
            return role
        view = await self._look_around(epochs)
        if rival := view.rival(epochs.epoch):
            raise StateError(
                f"the broker at {rival} is master of the same group at the same epoch, "
                f"{epochs.epoch}",
                hint="stop it, or start this one with brokerRole=SLAVE, a brokerId that no broker of "
                "the group had, and an empty store",
            )
        successor = view.successor(epochs.epoch)
        if successor is None:
            return role
        log.warning(
            "another master replaced this one, which starts as its slave epoch=%d address=%s "
            "own_epoch=%d id=%d%s",
            successor.epoch,
            successor.address or "unknown",
            epochs.epoch,
            successor.broker_id,
            ""
            if successor.address
            else " hint=start the master of that epoch, or promote a slave; if there is none, and "
            "this group begins anew: orbitmq namesrv forget-epoch, and start this one again with "
            "an empty store",
        )
        return Role(successor.broker_id, BrokerRole.SLAVE)

    async def _look_around(self, epochs: EpochFile) -> GroupView:
        rpc = RpcClient(clock=self._clock)
        await rpc.start()
        try:
            name_servers = parse_addresses(self._settings.of(BrokerConfig).name_servers)
            return await look_around(rpc, name_servers, self.broker.identity, epochs, self._clock)
        finally:
            await rpc.stop()
