"""Whether this broker is the master of its group, and what becomes of it if not.

The role is fixed while a broker runs. A master that another one replaced acknowledges nothing from
then on, and starts again as a slave; a slave whose log is to be cut starts again too. Which role
that is, `broker/replicated.py` finds out.

Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from orbitmq.broker.replication.config import BrokerRole
from orbitmq.broker.replication.epoch import ChangedRole, EpochFile, Role
from orbitmq.broker.replication.succession import Succession
from orbitmq.disk import off_loop
from orbitmq.lifecycle import OwnedTasks
from orbitmq.store.opening.cut_intent import ask_for_cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.registration import Registration
    from orbitmq.broker.replication.assembly import Replication
    from orbitmq.broker.replication.group_view import Successor
    from orbitmq.clock import Clock
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.model.versions import DataVersion
    from orbitmq.protocol.requests.registration import RegisterBroker
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.rpc_client import RpcClient


class Reign:
    """The role of one broker for as long as it runs, and its epoch."""

    def __init__(
        self, role: Role, *, configured: Role, store_config: StoreConfig, clock: Clock
    ) -> None:
        """Prepare it; `configured` is the role in the configuration, if a promotion changed it."""
        self.role = role
        self.configured = configured
        self._root = store_config.root.expanduser()
        self._modes = store_config.modes
        self._clock = clock
        self.epochs = EpochFile(self._root, self._modes)
        # Set once this broker shall stop, and another one start over the same store: its role
        # changes, or its log is cut.
        self.restart_wanted = asyncio.Event()
        self._changes = OwnedTasks()

    async def load(self) -> None:
        """Read the epoch, and keep the role unless it is the configured one."""
        await self.epochs.load()
        if self.epochs.role(self.configured) != self.role:
            await self._save(self.role)
        elif self.role == self.configured:
            await self.epochs.take_role(None)

    def begin(
        self,
        *,
        replication: Replication,
        registration: Registration,
        rpc: RpcClient,
        name_servers: Callable[[], list[str]],
        identity: Callable[[], RegisterBroker],
    ) -> None:
        """Be ready to notice that another master counts."""
        self._replication = replication
        self._registration = registration
        self.succession = Succession(
            rpc=rpc,
            name_servers=name_servers,
            identity=identity,
            epochs=self.epochs,
            clock=self._clock,
            on_replaced=self._replaced,
            on_rival=self._rival_found,
        )

    async def stop(self) -> None:
        """Stop asking who is master; a change of the role that began is ended."""
        await self._changes.all_done()
        await self.succession.stop()

    def is_newly_promoted(self, store: MessageStore) -> bool:
        """Whether this master was promoted, and has stored nothing since."""
        return not self.role.is_slave and (
            self.epochs.began_at.get(self.epochs.epoch) == store.log_end
        )

    @property
    def copied_until(self) -> int:
        """Where the log ends that this master copied as a slave; 0 if it never was one."""
        return self.epochs.began_at.get(self.epochs.epoch, 0)

    def with_epoch(self, version: DataVersion) -> DataVersion:
        """A version of tables, with the epoch: name servers prefer the larger one."""
        return msgspec.structs.replace(version, state_version=self.epochs.epoch)

    async def check(self) -> None:
        """Ask whether another master counts."""
        if not self.role.is_slave:
            await self.succession.check()

    def heard_of_epoch(self, address: str, epoch: int) -> None:
        """Note that a broker claims a larger epoch of this group."""
        if not self.role.is_slave:
            self.succession.heard(address, epoch)

    async def cut(self, at: PhysicalOffset, epoch: int) -> None:
        """Have the log cut when the store is opened again, which is soon."""
        await off_loop(ask_for_cut, self._root, at, epoch, self._modes)
        self.restart_wanted.set()

    async def _save(self, role: Role) -> None:
        await self.epochs.take_role(ChangedRole(role, self.configured, self._clock.now_ms()))

    def _replaced(self, successor: Successor) -> None:
        """Acknowledge nothing more, and start again as a slave of the new master."""
        where = f" at {successor.address}" if successor.address else ""
        self._replication.end_reign(
            f"this master was replaced: the one{where} has epoch {successor.epoch}, this one "
            f"{self.epochs.epoch}"
        )
        # Compat: a name server of RocketMQ 4 would forget the new master, which has the same id.
        self._registration.abandon()
        self._changes.start(self._step_down(successor.broker_id), name="stepping down")

    async def _step_down(self, broker_id: int) -> None:
        await self._save(Role(broker_id, BrokerRole.SLAVE))
        self.restart_wanted.set()

    def _rival_found(self, address: str) -> None:
        self._replication.end_reign(
            f"this master and the one at {address} both have epoch {self.epochs.epoch}; stop one "
            "of them, and promote the other's slave or start it as a slave",
            has_rival=True,
        )
        # Name servers show the last one that reports: the one that does not know of this one yet.
        self._registration.abandon()
