"""The other brokers of a group: who they are, and what they say of themselves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq import java_json
from orbitmq.errors import OrbitError, ProtocolError
from orbitmq.model.routes import MASTER_ID, ClusterView
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.replication import EpochStart, ReadStanding, Standing
from orbitmq.protocol.requests.routing import GetClusterView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.replication.epoch import EpochFile
    from orbitmq.clock import Clock
    from orbitmq.protocol.requests.registration import RegisterBroker
    from orbitmq.transport.rpc_client import RpcClient

_TIMEOUT_MS: Final = 3000
# For the others of a group whose master was promoted just now: they were asked right before, and
# whoever hangs, as the old master may, would only keep producers waiting.
_TIMEOUT_AFTER_PROMOTION_MS: Final = 500
_JUST_PROMOTED_MS: Final = 60_000
# A group has a handful of brokers; a name server that names more is not believed.
_BROKERS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """A master of the same group that counts instead of this one."""

    epoch: int
    # Empty if it does not answer.
    address: str
    # The id that this broker has as its slave.
    broker_id: int


@dataclass(slots=True, kw_only=True)
class GroupView:
    """What is known of the other brokers of a group."""

    # By address.
    ids: dict[str, int] = field(default_factory=dict)
    # Of brokers that are down, as far as name servers remember.
    ids_missing: set[int] = field(default_factory=set)
    standings: list[Standing] = field(default_factory=list)
    # The largest epoch that a name server remembers.
    remembered: int = 0
    # Whether a name server that answered is one of RocketMQ's, which know no epochs.
    has_official_names: bool = False

    @property
    def epoch(self) -> int:
        """The largest epoch that anybody knows."""
        return max([self.remembered, *(one.epoch for one in self.standings)])

    def successor(self, epoch: int) -> Successor | None:
        """Who replaced a master of this epoch; None if nobody did."""
        if self.epoch <= epoch:
            return None
        newest = max(self.standings, key=lambda one: one.epoch, default=None)
        history = newest.epochs if newest is not None and newest.epoch > epoch else []
        masters = [one.address for one in self.standings if one.is_master and one.epoch > epoch]
        return Successor(
            epoch=self.epoch,
            address=masters[0] if masters else "",
            broker_id=_id_after(history, epoch) or self._free_id(),
        )

    def rival(self, epoch: int) -> str:
        """Another master of the same epoch above 0; empty if there is none."""
        rivals = [one.address for one in self.standings if one.is_master and one.epoch == epoch]
        return rivals[0] if rivals and epoch else ""

    def _free_id(self) -> int:
        taken = {MASTER_ID, *self.ids.values(), *self.ids_missing}
        return next(number for number in range(_BROKERS_MAX + 1) if number not in taken)


def _id_after(history: Iterable[EpochStart], epoch: int) -> int:
    """The id that the master of this epoch has as a slave: its successor's, as they change places."""
    return next((one.former_id for one in history if one.epoch > epoch), 0)


async def look_around(
    rpc: RpcClient,
    name_servers: Iterable[str],
    identity: RegisterBroker,
    epochs: EpochFile,
    clock: Clock,
) -> GroupView:
    """Ask the name servers for the group, and its other brokers what they are.

    Those learn of this broker's epoch. Who does not answer within 3 s is left out; of brokers after
    0.5 s, if this one was promoted within the last minute.
    """
    epoch, promoted_ms = epochs.epoch, epochs.promoted_ms
    is_new = promoted_ms is not None and clock.now_ms() - promoted_ms < _JUST_PROMOTED_MS
    timeout_ms = _TIMEOUT_AFTER_PROMOTION_MS if is_new else _TIMEOUT_MS
    view = GroupView()
    for seen in await asyncio.gather(*(_cluster(rpc, address) for address in name_servers)):
        if seen is None:
            continue
        view.has_official_names |= seen.epochs is None
        group = seen.brokers.get(identity.broker_name)
        if group is not None and group.cluster == identity.cluster_name:
            view.ids |= {address: number for number, address in group.addresses.items()}
        for missing in seen.missing_brokers or ():
            if (missing.cluster, missing.name) == (identity.cluster_name, identity.broker_name):
                view.ids_missing |= missing.addresses.keys()
        known = (seen.epochs or {}).get(identity.cluster_name, {})
        view.remembered = max(view.remembered, known.get(identity.broker_name, 0))
    view.ids.pop(identity.broker_address, None)
    asked = ReadStanding(
        broker_name=identity.broker_name,
        epoch=Long(epoch),
        broker_address=identity.broker_address,
    )
    others = sorted(view.ids)[:_BROKERS_MAX]
    answers = await asyncio.gather(
        *(_standing(rpc, address, asked, timeout_ms) for address in others)
    )
    view.standings = [
        one for one in answers if one is not None and one.broker_name == identity.broker_name
    ]
    return view


async def read_standing(
    rpc: RpcClient, address: str, asked: ReadStanding, *, timeout_ms: float = _TIMEOUT_MS
) -> Standing:
    """Ask one broker what it is."""
    reply = await rpc.call(address, asked, timeout_ms=timeout_ms)
    try:
        return msgspec.json.decode(reply.body, type=Standing)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"the broker {address} does not say what it is: {error}") from error


async def _standing(
    rpc: RpcClient, address: str, asked: ReadStanding, timeout_ms: float
) -> Standing | None:
    try:
        return await read_standing(rpc, address, asked, timeout_ms=timeout_ms)
    except OrbitError:
        # Down, or one of RocketMQ's, which has no epoch.
        return None


async def _cluster(rpc: RpcClient, name_server: str) -> ClusterView | None:
    try:
        reply = await rpc.call(
            name_server,
            GetClusterView(with_epochs=True, with_missing_brokers=True),
            timeout_ms=_TIMEOUT_MS,
        )
        return java_json.decode(reply.body, ClusterView)
    except OrbitError:
        return None
