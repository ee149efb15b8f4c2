"""`orbitmq cluster health`: masters, slaves that follow, archives that advance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Final, NamedTuple

import typer

from orbitmq.cli.administering import NameServers, administer
from orbitmq.cli.lake import unknown_text
from orbitmq.cli.output import AsJson, counted, escaped, seconds, show_json, show_rows, time_text
from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.admin.archives import BrokerArchives
from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import CommandError, OrbitError, RemoteError, TransportError
from orbitmq.model.routes import MASTER_ID, BrokerGroup, ClusterView, MissingBroker
from orbitmq.protocol.requests.statistics import Replication

# What masters take for too far behind, unless haMaxGapNotInSync says otherwise.
_LAG_BYTES_MAX: Final = 256 * 1024 * 1024
# Compat: RocketMQ's slaves name their master also while they cannot connect; an idle link has a
# heartbeat every 5 s.
_LINK_SILENCE_MS_MAX: Final = 60_000
_ARCHIVE_HOURS_MAX: Final = 24
_HOUR_MS: Final = 3_600_000
_BROKERS_AT_ONCE: Final = 16
_SLAVES_AWAITED: Final = 1


class Health(IntEnum):
    """The state of a group or cluster; its number is the exit code."""

    HEALTHY = 0
    DEGRADED = 1
    DOWN = 2


class Problem(NamedTuple):
    """Something that is wrong, and how bad it is."""

    health: Health
    text: str


class Limits(NamedTuple):
    """What is a problem."""

    lag_bytes: int
    # How long an archive may stand still while messages wait.
    archive_ms: int


class Answer(NamedTuple):
    """What a broker says of its replication."""

    # "up", "unknown" if it does not say, or "unreachable".
    state: str
    replication: Replication | None = None
    # Of a sync master: how many slaves its messages wait for.
    slaves_awaited: int = 0
    # Of a master, unless it is of RocketMQ.
    archives: BrokerArchives | None = None
    # Why it does not list them.
    archives_failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """One broker of a group; None stands for what it does not say."""

    broker_id: int
    address: str
    state: str
    epoch: int | None = None
    log_end: int | None = None
    lag_bytes: int | None = None
    # Since when its master has a message that it lacks, as the master says.
    lag_ms: int | None = None
    # Whether the log of its master arrives.
    follows: bool | None = None
    # Why not, if it says so.
    failure: str = ""

    @property
    def role(self) -> str:
        """Master or slave."""
        return "slave" if self.broker_id else "master"


@dataclass(slots=True, kw_only=True)
class GroupState:
    """The brokers of one name, and what is wrong with them."""

    cluster: str
    name: str
    brokers: list[BrokerState] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def health(self) -> Health:
        """The worst of its problems."""
        return _worst(self.problems)


def health(
    *,
    lag_bytes_max: Annotated[
        int, typer.Option("--lag-max", min=0, help="A slave that lags by more bytes is a problem.")
    ] = _LAG_BYTES_MAX,
    archive_hours_max: Annotated[
        int,
        typer.Option(
            "--archive-hours-max",
            min=0,
            help="An archive that retention waits for is a problem if it has not advanced for so many "
            "hours, though messages wait.",
        ),
    ] = _ARCHIVE_HOURS_MAX,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show who is master and who follows; exits with 1 if a slave does not, 2 without a master.

    It also exits with 1 if an archive stalls that retention waits for.
    """
    clock = SystemClock()

    async def examine(admin: Admin) -> tuple[list[GroupState], list[Problem]]:
        limits = Limits(lag_bytes=lag_bytes_max, archive_ms=archive_hours_max * _HOUR_MS)
        return await _examine(admin, limits, clock)

    try:
        groups, others = administer(namesrv, examine)
    except TransportError:
        raise
    except OrbitError as error:
        # Its code would be 1, which stands for a degraded cluster.
        raise CommandError(str(error.args[0]), hint=error.hint) from error
    found = _worst([*others, *(problem for group in groups for problem in group.problems)])
    if as_json:
        show_json(
            {
                "health": found.name.lower(),
                "problems": [one.text for one in others],
                "groups": [_as_object(group) for group in groups],
            }
        )
    else:
        _show(groups, others, found)
    raise typer.Exit(int(found))


def _worst(problems: Sequence[Problem]) -> Health:
    return max((one.health for one in problems), default=Health.HEALTHY)


# --- asking -------------------------------------------------------------------------------------


async def _examine(
    admin: Admin, limits: Limits, clock: Clock
) -> tuple[list[GroupState], list[Problem]]:
    """Ask all brokers; returns the state of each group, and the problems of no group."""
    view = await admin.brokers.clusters()
    missing, others = await _missing(admin, view)
    at_once = asyncio.Semaphore(_BROKERS_AT_ONCE)
    groups = [group for group in view.brokers.values() if group.addresses]
    addresses = sorted({one for group in groups for one in group.addresses.values()})
    replies = await asyncio.gather(*(_ask(admin, address, at_once) for address in addresses))
    answers = dict(zip(addresses, replies, strict=True))
    judge = Judge(answers=answers, limits=limits, now_ms=clock.now_ms())
    gone = {one.name: one for one in missing}
    states = [judge.group(group, gone.pop(group.name, None)) for group in groups]
    states += [_gone_group(one) for one in gone.values()]
    if not states:
        others.append(Problem(Health.DOWN, "no broker is registered"))
    return sorted(states, key=lambda state: (state.cluster, state.name)), others


async def _missing(admin: Admin, view: ClusterView) -> tuple[list[MissingBroker], list[Problem]]:
    try:
        return await admin.brokers.missing(), []
    except TransportError as error:
        # One of several: another one has answered before.
        problem = Problem(Health.DEGRADED, f"a name server does not answer: {error.args[0]}")
        return view.missing_brokers or [], [problem]


async def _ask(admin: Admin, address: str, at_once: asyncio.Semaphore) -> Answer:
    async with at_once:
        try:
            replication = await admin.brokers.replication(address)
            is_master = replication.is_master
            awaited = await _slaves_awaited(admin, address) if is_master else 0
        except TransportError:
            return Answer("unreachable")
        except OrbitError:
            # Compat: RocketMQ 4.9 does not know the request.
            return Answer("unknown")
        answer = Answer("up", replication, awaited)
        if not is_master:
            return answer
        try:
            return answer._replace(archives=await admin.archives.at(address))
        except OrbitError as error:
            return answer._replace(archives_failure=str(error))


async def _slaves_awaited(admin: Admin, master: str) -> int:
    try:
        options = await admin.brokers.options(master)
    except RemoteError:
        return 0
    if options.get("brokerRole") != "SYNC_MASTER":
        return 0
    copies = options.get("inSyncReplicas", "")
    return max(int(copies) - 1, 0) if copies.isdecimal() and int(copies) else _SLAVES_AWAITED


# --- judging ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Finds what is wrong in the answers of brokers."""

    answers: dict[str, Answer]
    limits: Limits
    now_ms: int

    def group(self, group: BrokerGroup, missing: MissingBroker | None) -> GroupState:
        """The state of a group, some brokers of which may be missing."""
        state = GroupState(cluster=group.cluster, name=group.name)
        address = group.addresses.get(MASTER_ID, "")
        master = self.answers.get(address)
        at_master = master.replication if master is not None else None
        for number, one in sorted(group.addresses.items()):
            state.brokers.append(self._broker(number, one, at_master))
        if missing is not None:
            state.brokers += _gone(missing)
        state.problems += self._of_master(group.name, address, master, state.brokers)
        if master is not None and master.archives is not None:
            state.problems += self._of_archives(group.name, master.archives)
        if master is not None and master.archives_failure:
            text = f"the master does not list its archives: {master.archives_failure}"
            state.problems.append(Problem(Health.DEGRADED, text))
        is_there = master is not None and master.state != "unreachable"
        for slave in state.brokers:
            if slave.broker_id:
                state.problems += self._of_slave(slave, has_master=is_there)
        return state

    def _broker(self, number: int, address: str, at_master: Replication | None) -> BrokerState:
        state, replication, *_ = self.answers[address]
        if replication is None:
            return BrokerState(broker_id=number, address=address, state=state)
        if not number:
            return BrokerState(
                broker_id=number,
                address=address,
                state=state,
                epoch=replication.epoch,
                log_end=replication.log_end,
            )
        link = replication.master_link
        seen = (
            [one for one in at_master.slaves if one.broker_address == address] if at_master else []
        )
        silence_ms = self.now_ms - link.last_read_ms if link.last_read_ms else 0
        return BrokerState(
            broker_id=number,
            address=address,
            state=state,
            epoch=replication.epoch,
            log_end=link.end_offset,
            lag_bytes=max(at_master.log_end - link.end_offset, 0) if at_master else None,
            lag_ms=seen[0].lag_ms if seen else None,
            follows=bool(link.address) and silence_ms <= _LINK_SILENCE_MS_MAX,
            failure=link.failure or "",
        )

    def _of_master(
        self, name: str, address: str, master: Answer | None, brokers: Sequence[BrokerState]
    ) -> Iterator[Problem]:
        slaves = [one for one in brokers if one.broker_id]
        served = any(slave.state in {"up", "unknown"} for slave in slaves)
        rest = "; slaves serve its readers" if served else "; nobody serves its queues"
        if master is None:
            yield Problem(Health.DOWN, f"there is no master{rest}{_advice(name, slaves)}")
        elif master.state == "unreachable":
            yield Problem(
                Health.DOWN,
                f"the master {address} cannot be reached{rest}{_advice(name, slaves)}",
            )
        elif master.replication is not None:
            if not master.replication.is_master:
                yield Problem(Health.DOWN, f"{address} is registered as master, but is a slave")
                return
            links = master.replication.slaves
            following = sum(one.follows is not False and one.state == "up" for one in slaves)
            if len(links) < following:
                yield Problem(
                    Health.DEGRADED,
                    f"of {counted(following, 'slave')}, {_are(len(links))} connected to the master",
                )
            in_sync = sum(link.in_sync for link in links)
            if in_sync < master.slaves_awaited:
                yield Problem(
                    Health.DEGRADED,
                    f"sends wait for {counted(master.slaves_awaited, 'slave')}, and "
                    f"{_are(in_sync)} in sync",
                )

    def _of_archives(self, broker: str, at: BrokerArchives) -> Iterator[Problem]:
        if at.unknown:
            yield Problem(Health.DEGRADED, unknown_text(at, broker))
        for name, figures in sorted(at.figures.items()):
            archive = at.archives.get(name)
            if archive is None or not archive.gates or not figures.unarchived_messages:
                continue
            waiting = (
                f"{counted(figures.unarchived_messages, 'message')} of topic {archive.topic} are not "
                f"archived, the oldest of {time_text(figures.oldest_ms)}"
            )
            stood_ms = self.now_ms - max(archive.advanced_ms, archive.opened_ms, figures.oldest_ms)
            if figures.held_files:
                files = counted(figures.held_files, "log file")
                yield Problem(
                    Health.DEGRADED,
                    f"archive {name} keeps {files} of all topics beyond their time: {waiting}",
                )
            elif stood_ms > self.limits.archive_ms:
                yield Problem(
                    Health.DEGRADED,
                    f"archive {name} has not advanced for {stood_ms // _HOUR_MS} hours: {waiting}",
                )

    def _of_slave(self, slave: BrokerState, *, has_master: bool) -> Iterator[Problem]:
        name = f"slave {slave.broker_id} at {slave.address}"
        if slave.state == "unreachable":
            yield Problem(Health.DEGRADED, f"{name} cannot be reached")
        elif slave.state.startswith("missing"):
            yield Problem(Health.DEGRADED, f"{name} is {slave.state}")
        elif slave.follows is False and has_master:
            why = slave.failure or "its log says why"
            yield Problem(Health.DEGRADED, f"{name} is not connected to its master: {why}")
        elif slave.lag_bytes is not None and slave.lag_bytes > self.limits.lag_bytes:
            yield Problem(Health.DEGRADED, f"{name} lags by {slave.lag_bytes} bytes")


def _advice(name: str, slaves: Sequence[BrokerState]) -> str:
    """What to do about a lost master."""
    if not any(slave.state == "up" for slave in slaves):
        return ""
    return f": start it, or make a slave the master: orbitmq broker promote {name}"


def _are(number: int) -> str:
    return f"{number} is" if number == 1 else f"{number} are"


def _gone(missing: MissingBroker) -> list[BrokerState]:
    return [
        BrokerState(
            broker_id=number,
            address=address,
            state=f"missing since {time_text(missing.missing_since_ms(number))}",
        )
        for number, address in sorted(missing.addresses.items())
    ]


def _gone_group(missing: MissingBroker) -> GroupState:
    since = time_text(missing.since_ms)
    return GroupState(
        cluster=missing.cluster,
        name=missing.name,
        brokers=_gone(missing),
        problems=[Problem(Health.DOWN, f"all its brokers are missing since {since}")],
    )


# --- showing ------------------------------------------------------------------------------------


def _as_object(group: GroupState) -> dict[str, object]:
    return {
        "cluster": group.cluster,
        "broker": group.name,
        "health": group.health.name.lower(),
        "problems": [problem.text for problem in group.problems],
        "brokers": [_as_row(one) for one in group.brokers],
    }


def _as_row(broker: BrokerState) -> dict[str, object]:
    return {
        "id": broker.broker_id,
        "role": broker.role,
        "address": broker.address,
        "epoch": broker.epoch,
        "log_end": broker.log_end,
        "lag_bytes": broker.lag_bytes,
        "lag_seconds": seconds(broker.lag_ms),
        "follows": broker.follows,
        "failure": broker.failure,
        "state": broker.state,
    }


def _show(groups: Sequence[GroupState], others: Sequence[Problem], found: Health) -> None:
    rows = [{"broker": group.name, **_as_row(one)} for group in groups for one in group.brokers]
    if rows:
        show_rows(rows, as_json=False)
    problems = [("", problem) for problem in others]
    problems += [(f"{group.name}: ", problem) for group in groups for problem in group.problems]
    for name, problem in problems:
        colour = typer.colors.RED if problem.health is Health.DOWN else typer.colors.YELLOW
        typer.secho(f"{problem.health.name.lower()}: {escaped(name + problem.text)}", fg=colour)
    if found is Health.HEALTHY:
        typer.echo(f"healthy: {counted(len(groups), 'group')}, {counted(len(rows), 'broker')}")
