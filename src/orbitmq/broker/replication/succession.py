"""Notices that another master of the group counts instead of this one.

A promoted slave has a larger epoch than the master it replaces. This master learns of it from name
servers, before each of its reports, or from a broker of its group, which it asks back. From then on
it acknowledges nothing. Only brokers that name servers name are asked: anybody may claim an epoch.

Threads: the event loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbitmq.broker.replication.group_view import (
    GroupView,
    Successor,
    look_around,
    read_standing,
)
from orbitmq.errors import OrbitError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.replication import ReadStanding

if TYPE_CHECKING:
    from orbitmq.broker.replication.epoch import EpochFile
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.registration import RegisterBroker
    from orbitmq.transport.rpc_client import RpcClient

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class Succession:
    """Watches whether this master still counts."""

    rpc: RpcClient
    name_servers: Callable[[], list[str]]
    identity: Callable[[], RegisterBroker]
    epochs: EpochFile
    clock: Clock
    # Called once.
    on_replaced: Callable[[Successor], None]
    # Another master of the same epoch: neither counts until an operator decides.
    on_rival: Callable[[str], None]
    replaced_by: Successor | None = field(default=None, init=False)
    # Whether a report could hide a new master: the group has, or had, other brokers, and a name
    # server is one of RocketMQ's. Ours refuse smaller epochs.
    may_hide_successor: bool = field(default=True, init=False)
    # Brokers of the group, as name servers named them last.
    _known: frozenset[str] = field(default=frozenset(), init=False)
    _asking_back: OwnedTasks = field(default_factory=OwnedTasks, init=False)

    async def check(self) -> None:
        """Ask name servers and brokers of the group for a larger epoch."""
        if self.replaced_by is None:
            epoch = self.epochs.epoch
            view = await look_around(
                self.rpc, self.name_servers(), self.identity(), self.epochs, self.clock
            )
            self.may_hide_successor = view.has_official_names and bool(
                view.ids or view.ids_missing or epoch
            )
            if view.ids:
                self._known = frozenset(view.ids)
            self._judge(view)

    def heard(self, address: str, epoch: int) -> None:
        """Note that a broker claims a larger epoch of this group; it is asked whether so."""
        if epoch > self.epochs.epoch and self.replaced_by is None and not len(self._asking_back):
            self._asking_back.start(self._ask_back(address), name=f"epoch of {address}")

    async def stop(self) -> None:
        """Stop asking."""
        await self._asking_back.cancel()

    async def _ask_back(self, address: str) -> None:
        if address not in self._known:
            await self.check()
            return
        name = self.identity().broker_name
        asked = ReadStanding(broker_name=name, epoch=Long(self.epochs.epoch))
        try:
            standing = await read_standing(self.rpc, address, asked)
        except OrbitError as error:
            log.warning("no answer about a larger epoch address=%s reason=%s", address, error)
            return
        if standing.broker_name == name:
            self._judge(GroupView(ids={address: standing.broker_id}, standings=[standing]))

    def _judge(self, view: GroupView) -> None:
        epoch = self.epochs.epoch
        successor = view.successor(epoch)
        if successor is not None and self.replaced_by is None:
            self.replaced_by = successor
            log.error(
                "another master counts epoch=%d address=%s own_epoch=%d",
                successor.epoch,
                successor.address or "unknown",
                epoch,
            )
            self.on_replaced(successor)
        elif rival := view.rival(epoch):
            self.on_rival(rival)
