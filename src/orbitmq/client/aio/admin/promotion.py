"""Promotion: makes a slave the master of its group, and says first what is lost.

A plan compares the log of the slave with that of everybody who may have more: the old master, if it
answers, or what slaves heard of it last, and the other slaves. What a log has beyond the end of the
promoted one is cut when its broker joins the new master; the broker saves it first.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq import java_json
from orbitmq.client.aio.admin.undone_batches import UndoneBatches, undone_batches
from orbitmq.errors import (
    ClusterMissingError,
    NotSupportedError,
    OrbitError,
    PromotionError,
    ProtocolError,
    RemoteError,
    TransportError,
)
from orbitmq.model.routes import MASTER_ID, ClusterView
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.replication import (
    ListQueueEnds,
    PromoteBroker,
    PromoteReply,
    QueueEnds,
    ReadStanding,
    Standing,
)
from orbitmq.protocol.requests.routing import GetClusterView
from orbitmq.protocol.requests.statistics import GetRuntime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.client.aio.admin.brokers import Brokers
    from orbitmq.client.aio.admin.queries import Queries
    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.protocol.requests.staged_writes import QueryPage, QuerySummary

SLAVE: Final = "SLAVE"
_ASK_TIMEOUT_MS: Final = 3_000
# The slave syncs its log first.
_PROMOTE_TIMEOUT_MS: Final = 60_000
_SERVING_TIMEOUT_MS: Final = 60_000
_LOOK_MS: Final = 200
_ENDS_PER_PAGE: Final = 10_000
_RESTARTS_MAX: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A broker of the group."""

    broker_id: int
    address: str
    # None if it does not answer, or is one of RocketMQ's.
    standing: Standing | None = None
    # Why there is no standing.
    problem: str = ""
    # Whether it answers at all.
    is_up: bool = False

    @property
    def is_master(self) -> bool:
        """Whether it answers as the master."""
        if self.standing is None:
            return self.is_up and self.broker_id == MASTER_ID
        return self.standing.is_master

    @property
    def is_slave(self) -> bool:
        """Whether it is a slave that can be promoted."""
        return self.standing is not None and self.standing.role == SLAVE

    def __str__(self) -> str:
        return f"broker {self.broker_id} at {self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRange:
    """A part of a log that the promoted slave does not have."""

    # Who has it, and whether it answers.
    holder: str
    is_up: bool
    start: int
    end: int
    # When the holder's end was heard of last; 0 for now.
    heard_ms: float = 0.0

    @property
    def bytes(self) -> int:
        """How many bytes are lost."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class LostMessages:
    """Messages of a queue that the promoted slave does not have: from `kept` to below `end`."""

    topic: str
    queue_id: int
    kept: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionPlan:
    """What a promotion would do."""

    broker_name: str
    slave: Standing
    # The other brokers of the group.
    others: tuple[Member, ...]
    epoch: int
    # The role of the new master.
    role: str
    # What others are known to have beyond the end of the slave's log.
    lost: tuple[LostRange, ...]
    # The same by queue, as far as a holder answers.
    lost_messages: tuple[LostMessages, ...]
    # Where every queue of the slave ends: from there on messages are lost, by topic and queue id.
    kept: Mapping[str, Mapping[int, int]]
    # Exactly-once batches that the slave's log lacks, as far as others know of them.
    undone: tuple[UndoneBatches, ...]
    # Why it should not be done; only `force` does it all the same.
    obstacles: tuple[str, ...]

    @property
    def is_known(self) -> bool:
        """Whether anything is known of what the old master had."""
        return self.slave.master is not None or any(one.is_master for one in self.others)

    @property
    def slaves_awaited(self) -> int:
        """How many slaves had what the old master acknowledged as safe; 0 if it did not wait."""
        seen = self.slave.master
        return seen.slaves_awaited if seen is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """A promotion that was done."""

    address: str
    epoch: int
    # Up to where its log is kept.
    log_end: int
    # Name servers that do not name it as master yet.
    unaware: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Promotion:
    """Makes slaves masters."""

    _reach: Reach
    _brokers: Brokers
    _queries: Queries

    async def plan(self, broker: str, *, slave: str | None = None, role: str = "") -> PromotionPlan:
        """Find the best slave of a group, and what its promotion would lose.

        Args:
            broker: the name of the group, or the address of the slave.
            slave: the address of the slave, or its broker id; the one with the longest log if None.
            role: ASYNC_MASTER or SYNC_MASTER; that of the last master if empty.
        """
        if ":" in broker:
            slave = slave or broker
            broker = await self._name_at(broker)
        members, remembered = await self._members(broker)
        chosen = _choose(broker, members, slave)
        standing = chosen.standing
        assert standing is not None
        others = tuple(one for one in members if one is not chosen)
        epochs = [one.standing.epoch for one in members if one.standing is not None]
        kept = await self._ends(standing.address)
        lost = tuple(_lost_ranges(standing, others))
        batches = await self._queries.at(standing.address)
        seen = standing.master
        return PromotionPlan(
            broker_name=broker,
            slave=standing,
            others=others,
            epoch=max([remembered, *epochs]) + 1,
            role=role or (seen.role if seen is not None else "") or "ASYNC_MASTER",
            lost=lost,
            lost_messages=tuple(await self._lost_messages(kept, lost)),
            kept=kept,
            undone=tuple(await self._undone(broker, batches, lost)),
            obstacles=(*_obstacles(standing, others), *_unreadable(batches)),
        )

    async def promote(self, plan: PromotionPlan, *, force: bool = False) -> Promoted:
        """Make the slave the master; returns once it serves, and name servers had time to learn.

        Args:
            plan: what `plan` returned.
            force: do it in spite of obstacles.
        """
        if plan.obstacles and not force:
            raise PromotionError(
                f"{plan.slave.address} is not promoted: {'; '.join(plan.obstacles)}",
                hint="--force does it all the same",
            )
        asked = PromoteBroker(
            broker_name=plan.broker_name, epoch=Long(plan.epoch), role=plan.role, force=force
        )
        reply = await self._reach.ask(plan.slave.address, asked, timeout_ms=_PROMOTE_TIMEOUT_MS)
        log_end = PromoteReply.decode(reply.fields).log_end
        await self._until_master(plan)
        return Promoted(
            address=plan.slave.address,
            epoch=plan.epoch,
            log_end=log_end,
            unaware=tuple(await self._until_known(plan)),
        )

    # --- the group ------------------------------------------------------------------------------

    async def _name_at(self, address: str) -> str:
        found = await self._member(MASTER_ID, address)
        if found.standing is None:
            raise PromotionError(f"{address} cannot be promoted: {found.problem}")
        return found.standing.broker_name

    async def _members(self, broker: str) -> tuple[list[Member], int]:
        """All brokers of a group, and the largest epoch that a name server remembers of it."""
        addresses: dict[str, int] = {}
        remembered = 0
        known: set[str] = set()
        for view in await self._views():
            known |= view.brokers.keys()
            if (group := view.brokers.get(broker)) is not None:
                addresses |= {address: number for number, address in group.addresses.items()}
            for epochs in (view.epochs or {}).values():
                remembered = max(remembered, epochs.get(broker, 0))
        for missing in await self._brokers.missing():
            if missing.name == broker:
                for number, address in missing.addresses.items():
                    addresses.setdefault(address, number)
        if not addresses:
            raise ClusterMissingError("broker", broker, there=known)
        members = await self._all(addresses)
        # Compat: name servers of RocketMQ forget brokers that died.
        seen = {
            one.standing.master.address: MASTER_ID
            for one in members
            if one.standing is not None and one.standing.master is not None
        }
        members += await self._all({a: n for a, n in seen.items() if a not in addresses})
        return [one for one in members if one.standing is None or _is_of(one, broker)], remembered

    async def _views(self) -> list[ClusterView]:
        """The cluster as each name server knows it; raises if none answers."""
        views, failure = [], None
        for address in self._reach.name_servers.addresses:
            try:
                reply = await self._reach.ask(address, GetClusterView(with_epochs=True))
                views.append(java_json.decode(reply.body, ClusterView))
            except OrbitError as error:
                failure = error
        if not views and failure is not None:
            raise failure
        return views

    async def _all(self, addresses: Mapping[str, int]) -> list[Member]:
        return await asyncio.gather(
            *(self._member(number, address) for address, number in sorted(addresses.items()))
        )

    async def _member(self, number: int, address: str) -> Member:
        try:
            reply = await self._reach.ask(address, ReadStanding(), timeout_ms=_ASK_TIMEOUT_MS)
            standing = msgspec.json.decode(reply.body, type=Standing)
            return Member(broker_id=number, address=address, standing=standing, is_up=True)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"the broker {address} does not say what it is: {error}") from error
        except NotSupportedError:
            problem = "it is no broker of OrbitMQ, or an older one"
            is_up = await self._answers(address)
            return Member(broker_id=number, address=address, problem=problem, is_up=is_up)
        except (TransportError, RemoteError) as error:
            return Member(broker_id=number, address=address, problem=str(error.args[0]))

    async def _answers(self, address: str) -> bool:
        try:
            await self._reach.ask(address, GetRuntime(), timeout_ms=_ASK_TIMEOUT_MS)
        except OrbitError:
            return False
        return True

    # --- queues ---------------------------------------------------------------------------------

    async def _ends(self, address: str) -> dict[str, dict[int, int]]:
        """Where the queues of a broker end, all in the same log, or nearly if it grows fast."""
        ends: dict[str, dict[int, int]] = {}
        for _ in range(_RESTARTS_MAX):
            ends = {}
            log_ends: set[int] = set()
            after, has_more = "", True
            while has_more:
                asked = ListQueueEnds(after=after, limit=_ENDS_PER_PAGE)
                page = msgspec.json.decode(
                    (await self._reach.ask(address, asked)).body, type=QueueEnds
                )
                ends |= page.ends
                log_ends.add(page.log_end)
                has_more = page.has_more and bool(page.ends)
                after = max(page.ends, default=after)
            if len(log_ends) == 1:
                break
        return ends

    async def _lost_messages(
        self, kept: Mapping[str, Mapping[int, int]], lost: Iterable[LostRange]
    ) -> list[LostMessages]:
        """The lost messages by queue, from holders that answer."""
        ends: dict[tuple[str, int], int] = {}
        for one in lost:
            if not one.is_up:
                continue
            for topic, queues in (await self._ends(one.holder)).items():
                for queue_id, end in queues.items():
                    ends[topic, queue_id] = max(end, ends.get((topic, queue_id), 0))
        return [
            LostMessages(topic=topic, queue_id=queue_id, kept=have, end=end)
            for (topic, queue_id), end in sorted(ends.items())
            if (have := kept.get(topic, {}).get(queue_id, 0)) < end
        ]

    async def _undone(
        self, broker: str, here: QueryPage, lost: Iterable[LostRange]
    ) -> list[UndoneBatches]:
        masters = await self._reach.masters()
        elsewhere = {name: at for name, at in masters.items() if name != broker}
        beyond = {one.holder: one.holder for one in lost if one.is_up}
        return undone_batches(
            broker, here.queries, await self._batches(elsewhere), await self._batches(beyond)
        )

    async def _batches(self, brokers: Mapping[str, str]) -> dict[str, list[QuerySummary]]:
        """What brokers know of exactly-once batches; those that do not answer are left out."""
        found: dict[str, list[QuerySummary]] = {}
        for name, address in brokers.items():
            with suppress(TransportError, RemoteError):
                found[name] = (await self._queries.at(address)).queries
        return found

    # --- the new master -------------------------------------------------------------------------

    async def _until_master(self, plan: PromotionPlan) -> None:
        """Wait until the broker serves as master; it starts again in its new role."""
        clock = self._reach.clock
        end_ms = clock.monotonic_ms() + _SERVING_TIMEOUT_MS
        while True:
            found = await self._member(MASTER_ID, plan.slave.address)
            standing = found.standing
            if standing is not None and standing.is_master and standing.epoch >= plan.epoch:
                return
            if clock.monotonic_ms() >= end_ms:
                raise PromotionError(
                    f"{plan.slave.address} took epoch {plan.epoch}, and does not serve as master "
                    f"after {_SERVING_TIMEOUT_MS // 1000} s: {found.problem or 'it is a slave'}",
                    hint="its log says why; it is the master when it is started again",
                )
            await clock.sleep_ms(_LOOK_MS)

    async def _until_known(self, plan: PromotionPlan) -> list[str]:
        """Wait until name servers name the new master; returns those that do not in time."""
        clock = self._reach.clock
        end_ms = clock.monotonic_ms() + _ASK_TIMEOUT_MS
        unaware = list(self._reach.name_servers.addresses)
        while unaware:
            unaware = [one for one in unaware if not await self._names_master(one, plan)]
            if not unaware or clock.monotonic_ms() >= end_ms:
                break
            await clock.sleep_ms(_LOOK_MS)
        return unaware

    async def _names_master(self, name_server: str, plan: PromotionPlan) -> bool:
        try:
            reply = await self._reach.ask(name_server, GetClusterView(), timeout_ms=_ASK_TIMEOUT_MS)
        except OrbitError:
            return False
        group = java_json.decode(reply.body, ClusterView).brokers.get(plan.broker_name)
        return group is not None and group.addresses.get(MASTER_ID) == plan.slave.address


def _is_of(member: Member, broker: str) -> bool:
    """Whether a broker belongs to the group: an address may be another broker's by now."""
    return member.standing is not None and member.standing.broker_name == broker


def _choose(broker: str, members: Iterable[Member], wanted: str | None) -> Member:
    """The slave to promote: the one that is wanted, or the one with the longest log."""
    slaves = [one for one in members if one.is_slave]
    if wanted is not None:
        for one in members:
            if wanted in {one.address, str(one.broker_id)}:
                if one.is_slave:
                    return one
                why = one.problem or "it is the master"
                raise PromotionError(f"{one} cannot be promoted: {why}", hint=_slaves(slaves))
        raise ClusterMissingError("slave", wanted, there=(one.address for one in slaves))
    if not slaves:
        reasons = "; ".join(f"{one}: {one.problem}" for one in members if one.problem)
        raise PromotionError(
            f"{broker} has no slave that answers{f': {reasons}' if reasons else ''}",
            hint="start a slave that has the log of its master: see docs/replication.md",
        )
    return max(slaves, key=_length)


def _slaves(slaves: Iterable[Member]) -> str:
    names = ", ".join(map(str, slaves))
    return f"slaves that answer: {names}" if names else "no slave answers"


def _length(member: Member) -> tuple[int, int]:
    assert member.standing is not None
    return member.standing.epoch, member.standing.log_end


def _lost_ranges(slave: Standing, others: Iterable[Member]) -> list[LostRange]:
    """What others are known to have beyond the end of the slave's log."""
    found: dict[str, LostRange] = {}

    def note(holder: str, end: int, *, is_up: bool, heard_ms: float = 0.0) -> None:
        before = found.get(holder)
        if end > slave.log_end and (before is None or end > before.end):
            found[holder] = LostRange(
                holder=holder, is_up=is_up, start=slave.log_end, end=end, heard_ms=heard_ms
            )

    standings = [one.standing for one in others if one.standing is not None]
    answering = {standing.address for standing in standings}
    for standing in standings:
        note(standing.address, standing.log_end, is_up=True)
    for standing in (slave, *standings):
        seen = standing.master
        # A master of an older epoch was replaced long ago.
        if seen is not None and seen.address not in answering and standing.epoch == slave.epoch:
            note(seen.address, seen.log_end, is_up=False, heard_ms=seen.heard_ms)
    return sorted(found.values(), key=lambda one: one.end)


def _obstacles(slave: Standing, others: Iterable[Member]) -> list[str]:
    """Why the slave should not be promoted."""
    found: list[str] = []
    others = list(others)
    for one in others:
        if one.is_master:
            found.append(
                f"the master {one.address} answers: stop it first, and it waits for its slaves; "
                "forced, everything is lost that it takes until it notices"
            )
        elif one.standing is not None and _is_ahead(one.standing, slave):
            found.append(
                f"{one} has more: epoch {one.standing.epoch} and a log up to "
                f"{one.standing.log_end}, this slave epoch {slave.epoch} and up to {slave.log_end}"
            )
    slaves = 1 + sum(one.broker_id != MASTER_ID for one in others)
    awaited = slave.master.slaves_awaited if slave.master is not None else 0
    if 0 < awaited < slaves:
        # A message that was acknowledged as safe may be at one slave and not at another.
        found += [
            f"{one} does not answer, and may have acknowledged messages that this slave has not"
            for one in others
            if one.broker_id != MASTER_ID and not one.is_up
        ]
    if slave.differs_from is not None:
        found.append(
            f"from {slave.differs_from} to {slave.log_end} its log is not that of the master it "
            "would have followed"
        )
    return found


def _unreadable(batches: QueryPage) -> list[str]:
    return [f"states of exactly-once writes cannot be read: {one}" for one in batches.damage]


def _is_ahead(other: Standing, slave: Standing) -> bool:
    return (other.epoch, other.log_end) > (slave.epoch, slave.log_end)
