"""Promotion: makes a slave the master of its group, and says first what is lost.

A plan compares the log of the slave with that of everybody who may have more: the old master, if it
answers, or what slaves heard of it last, and the other slaves. What a log has beyond the end of the
promoted one is cut when its broker joins the new master; the broker saves it first.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq import java_json
from orbitmq.client.aio.admin.undone_batches import UndoneBatches, undone_batches
from orbitmq.errors import (
    ClusterMissingError,
    NameServersUnreachableError,
    NotSupportedError,
    OrbitError,
    PromotionError,
    ProtocolError,
    RemoteError,
    SettingsError,
    TransportError,
)
from orbitmq.model.routes import MASTER_ID, ClusterView
from orbitmq.model.topics import Permission
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
from orbitmq.protocol.requests.topics import ListTopicConfigs, TopicConfigTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.client.aio.admin.brokers import Brokers
    from orbitmq.client.aio.admin.queries import Queries
    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.protocol.requests.staged_writes import QueryPage, QuerySummary

SLAVE: Final = "SLAVE"
PERMISSION_OPTION: Final = "brokerPermission"
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
    # Topics in memory: all their messages are lost, as they are not copied.
    memory_topics: tuple[str, ...]
    # Why it should not be done; only `force` does it all the same.
    obstacles: tuple[str, ...]

    @property
    def is_known(self) -> bool:
        """Whether anything is known of what the old master had."""
        seen = self.slave.master if self.slave.epoch == self.epoch - 1 else None
        return seen is not None or any(one.is_master for one in self.others)

    @property
    def permission(self) -> int | None:
        """What clients might do at the old master, as `brokerPermission`; None if nobody knows."""
        seen = self.slave.master if self.slave.epoch == self.epoch - 1 else None
        return seen.permission if seen is not None else None

    @property
    def is_drained(self) -> bool:
        """Whether the old master took no messages, which the new one then does not either."""
        return self.permission is not None and not self.permission & Permission.WRITE

    @property
    def slaves_awaited(self) -> int:
        """How many slaves had what the old master acknowledged as safe; 0 if it did not wait."""
        seen = self.slave.master if self.slave.epoch == self.epoch - 1 else None
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


@dataclass(slots=True, kw_only=True)
class _Group:
    """The brokers of one name."""

    name: str
    members: list[Member] = field(default_factory=list)
    # The largest epoch that a name server remembers.
    remembered: int = 0
    # The names of all groups.
    known: set[str] = field(default_factory=set)


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
        # An address will do while no name server answers.
        group = await self._group(broker, is_needed=":" not in broker)
        if ":" in broker and not group.members:
            slave = slave or broker
            group = await self._group_at(broker)
        broker, members = group.name, group.members
        if not members:
            raise ClusterMissingError("broker", broker, there=group.known)
        chosen = _choose(broker, members, slave)
        standing = chosen.standing
        assert standing is not None
        others = tuple(one for one in members if one is not chosen)
        epochs = [one.standing.epoch for one in members if one.standing is not None]
        kept = await self._ends(standing.address)
        lost = tuple(_lost_ranges(standing, others))
        batches = await self._queries.at(standing.address)
        newest = max([group.remembered, *epochs])
        role = role or _last_role([standing, *(one.standing for one in others)], newest)
        return PromotionPlan(
            broker_name=broker,
            slave=standing,
            others=others,
            epoch=newest + 1,
            role=role or "ASYNC_MASTER",
            lost=lost,
            lost_messages=tuple(await self._lost_messages(kept, lost)),
            kept=kept,
            undone=tuple(await self._undone(broker, batches, lost)),
            memory_topics=await self._memory_topics(standing.address),
            obstacles=(
                *_obstacles(standing, others),
                *_outdated(standing, newest),
                *_without_role(role),
                *_unreadable(batches),
            ),
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
                hint="look at each; --force, or force=True, promotes it all the same",
            )
        asked = PromoteBroker(
            broker_name=plan.broker_name, epoch=Long(plan.epoch), role=plan.role, force=force
        )
        reply = await self._reach.ask(plan.slave.address, asked, timeout_ms=_PROMOTE_TIMEOUT_MS)
        log_end = PromoteReply.decode(reply.fields).log_end
        await self._until_master(plan)
        await self._keep_permission(plan)
        return Promoted(
            address=plan.slave.address,
            epoch=plan.epoch,
            log_end=log_end,
            unaware=tuple(await self._until_known(plan)),
        )

    async def _keep_permission(self, plan: PromotionPlan) -> None:
        """Let clients do what they might do at the old master: a drain goes on, or stays undone."""
        if plan.permission is None:
            return
        address, wanted = plan.slave.address, str(plan.permission)
        options = await self._brokers.options(address)
        if options.get(PERMISSION_OPTION) != wanted:
            await self._brokers.set_options(address, {PERMISSION_OPTION: wanted})

    # --- the group ------------------------------------------------------------------------------

    async def _group_at(self, address: str) -> _Group:
        found = await self._member(MASTER_ID, address)
        if found.standing is None:
            raise PromotionError(
                f"{address} cannot be promoted: {found.problem}",
                hint="give the name of its group, or the address of a slave that runs",
            )
        known = {address: found.standing.broker_id}
        return await self._group(found.standing.broker_name, known, is_needed=False)

    async def _group(
        self, name: str, known: Mapping[str, int] | None = None, *, is_needed: bool
    ) -> _Group:
        """All brokers of a group that anybody knows, and those known already, by address.

        Raises if no name server answers, and one is needed.
        """
        addresses = dict(known or {})
        missing: dict[str, int] = {}
        found = _Group(name=name)
        for view in await self._views(is_needed=is_needed):
            found.known |= view.brokers.keys()
            if (group := view.brokers.get(name)) is not None:
                addresses |= {one: number for number, one in group.addresses.items()}
            for gone in view.missing_brokers or ():
                if gone.name == name:
                    missing |= {one: number for number, one in gone.addresses.items()}
            for epochs in (view.epochs or {}).values():
                found.remembered = max(found.remembered, epochs.get(name, 0))
        found.members = await self._all(missing | addresses)
        # Compat: name servers of RocketMQ forget brokers that died.
        seen = {
            one.standing.master.address: MASTER_ID
            for one in found.members
            if one.standing is not None and one.standing.master is not None
        }
        asked = {one.address for one in found.members}
        found.members += await self._all({a: n for a, n in seen.items() if a not in asked})
        found.members = [one for one in found.members if one.standing is None or _is_of(one, name)]
        return found

    async def _views(self, *, is_needed: bool) -> list[ClusterView]:
        """The cluster as each name server knows it; raises if none answers, but one must."""
        asked = GetClusterView(with_epochs=True, with_missing_brokers=True)

        async def view_of(address: str) -> ClusterView | OrbitError:
            try:
                reply = await self._reach.ask(address, asked, timeout_ms=_ASK_TIMEOUT_MS)
                return java_json.decode(reply.body, ClusterView)
            except OrbitError as error:
                return error

        answers = await asyncio.gather(*map(view_of, self._reach.name_servers.addresses))
        views = [one for one in answers if isinstance(one, ClusterView)]
        failures = [one for one in answers if isinstance(one, OrbitError)]
        if not views and failures and is_needed:
            unreachable = [one for one in failures if isinstance(one, TransportError)]
            if len(unreachable) == len(failures):
                raise NameServersUnreachableError(unreachable) from failures[-1]
            raise failures[-1]
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
        except (TransportError, RemoteError, SettingsError) as error:
            return Member(broker_id=number, address=address, problem=str(error.args[0]))

    async def _answers(self, address: str) -> bool:
        try:
            await self._reach.ask(address, GetRuntime(), timeout_ms=_ASK_TIMEOUT_MS)
        except OrbitError:
            return False
        return True

    async def _memory_topics(self, address: str) -> tuple[str, ...]:
        table = await self._reach.ask_for(address, ListTopicConfigs(), TopicConfigTable)
        return tuple(sorted(name for name, topic in table.topics.items() if topic.is_in_memory))

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
        elsewhere: dict[str, str] = {}
        with suppress(TransportError):
            masters = await self._reach.masters()
            elsewhere = {name: at for name, at in masters.items() if name != broker}
        beyond = {one.holder: one.holder for one in lost if one.is_up}
        return undone_batches(
            broker, here.queries, await self._batches(elsewhere), await self._batches(beyond)
        )

    async def _batches(self, brokers: Mapping[str, str]) -> dict[str, list[QuerySummary]]:
        """What brokers know of exactly-once batches; those that do not answer are left out."""
        found: dict[str, list[QuerySummary]] = {}

        async def look(name: str, address: str) -> None:
            with suppress(TransportError, RemoteError):
                found[name] = (await self._queries.at(address)).queries

        await asyncio.gather(*(look(name, address) for name, address in brokers.items()))
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
            are_aware = await asyncio.gather(*(self._names_master(one, plan) for one in unaware))
            unaware = [one for one, aware in zip(unaware, are_aware, strict=True) if not aware]
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
    members = list(members)
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
        for one in members:
            if one.standing is not None and one.standing.is_master:
                raise PromotionError(
                    f"{broker} has no slave that answers; its master is {one.address}, at epoch "
                    f"{one.standing.epoch}",
                    hint="if it was promoted just now, there is nothing to do; to replace it, "
                    "start a slave first",
                )
        reasons = "; ".join(f"{one}: {one.problem}" for one in members if one.problem)
        raise PromotionError(
            f"{broker} has no slave that answers{f': {reasons}' if reasons else ''}",
            hint="start a slave that has the log of its master: see docs/replication.md",
        )
    best = max(slaves, key=_length)
    if not _length(best)[1]:
        raise PromotionError(
            f"{best} has copied nothing yet, and all messages would be lost",
            hint="promote a slave that has the log; to begin anew, start an empty master",
        )
    return best


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
                f"the master {one.address} answers: stop it first, so that its slaves get the rest "
                "of its log. If you force the promotion, messages that it takes afterwards are lost"
            )
        elif one.standing is not None and _is_ahead(one.standing, slave):
            found.append(
                f"{one} has more: epoch {one.standing.epoch} and a log up to "
                f"{one.standing.log_end}, this slave epoch {slave.epoch} and up to {slave.log_end}"
            )
    slaves = 1 + sum(one.broker_id != MASTER_ID for one in others)
    seen = slave.master
    awaited = seen.slaves_awaited if seen is not None else 0
    if seen is not None and 0 < awaited < seen.slaves and slaves < seen.slaves:
        found.append(
            f"the master had {seen.slaves} slaves, and {slaves} of them are known: another one may "
            "have acknowledged messages that this slave has not"
        )
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


def _outdated(slave: Standing, newest: int) -> list[str]:
    if slave.epoch >= newest:
        return []
    return [
        f"there was a master of epoch {newest}, and this slave followed one of epoch {slave.epoch}: "
        "it lacks all that was stored since"
    ]


def _last_role(standings: Iterable[Standing | None], newest: int) -> str:
    """The role of the last master; empty if nobody who answers knows it."""
    for one in standings:
        if one is not None and one.epoch == newest:
            if one.is_master:
                return one.role
            if one.master is not None:
                return one.master.role
    return ""


def _without_role(role: str) -> list[str]:
    if role:
        return []
    return ["nobody who answers knows the role of the last master: say with --role which it gets"]


def _unreadable(batches: QueryPage) -> list[str]:
    return [f"states of exactly-once writes cannot be read: {one}" for one in batches.damage]


def _is_ahead(other: Standing, slave: Standing) -> bool:
    return (other.epoch, other.log_end) > (slave.epoch, slave.log_end)
