"""Runs a cluster under a schedule of faults with clients at work, and checks what they saw.

    async with aclosing(run(folder, range(20), Shape(slaves=1, sync=True))) as outcomes:
        async for outcome in outcomes:
            assert outcome.problems == [], str(outcome)

When the schedule is over, everything is healed. The cluster must then serve again by itself:
producers are acknowledged in every queue, the consumer reaches the end, slaves catch up with the
master that their group has now. Then every queue of every server is read once more, logs are
compared, and the checker says what is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, assert_never

from orbitmq.errors import OrbitError
from tests.replication.checker import violations
from tests.replication.clients import CLOCK, Auditing, Consuming, Producing
from tests.replication.cluster import (
    CLIENTS,
    NAME_SERVER,
    PERSIST_INTERVAL_MS,
    Cluster,
    Server,
    Shape,
    running,
)
from tests.replication.findings import Promises
from tests.replication.history import (
    Delivered,
    Followed,
    History,
    Killed,
    LagBegan,
    Paused,
    Promoted,
    Queue,
    Resumed,
    SendAcked,
    SendFailed,
    SendUnknown,
    Started,
    Stopped,
)
from tests.replication.links import Direction, Link, Side
from tests.replication.message_rules import Messages, lost_to
from tests.replication.promotions import Promotions
from tests.replication.schedule import Fate, Fault, Kind, Promotion, promotions, schedule
from tests.waiting import beside

QUEUES: Final = 2
PRODUCERS: Final = 3
SPAN_MS: Final = 3_500
AUDIT_PAUSE_MS: Final = 250
RECOVERY_S: Final = 60
# An old master that does not follow within this time is not promoted again.
_RETURN_S: Final = 15
# Slaves copy the tables of their master every three seconds.
PROMISES: Final = Promises(persist_interval_ms=PERSIST_INTERVAL_MS, sync_interval_ms=3_000)

Sabotage = Callable[[Server], object]


def _unplug(link: Link) -> None:
    link.refuse()
    link.cut(reset=True)


_LINK_FAULTS: Final[dict[Kind, Callable[[Link], object]]] = {
    Kind.CUT: lambda link: link.cut(reset=False),
    Kind.RESET: lambda link: link.cut(reset=True),
    Kind.REFUSE: _unplug,
    Kind.DELAY: lambda link: link.delay(50, 150),
    Kind.SLOW: lambda link: link.slow(20_000),
    Kind.HOLD: lambda link: link.hold(),
    Kind.DROP: lambda link: link.drop(),
    Kind.DROP_THERE: lambda link: link.drop([Direction.THERE]),
    Kind.DROP_BACK: lambda link: link.drop([Direction.BACK]),
    Kind.HALF_OPEN_OPENER: lambda link: link.half_open(Side.OPENER),
    Kind.HALF_OPEN_TARGET: lambda link: link.half_open(Side.TARGET),
}


# What slaves lag by: the link stays so until one of them is promoted.
_LAGS: Final[dict[Kind, Callable[[Link], object]]] = {
    **_LINK_FAULTS,
    Kind.SLOW: lambda link: link.slow(2_000),
}


@dataclass(slots=True)
class Outcome:
    """What a schedule led to."""

    seed: int
    shape: Shape
    faults: list[Fault | Promotion]
    history: History
    # What is wrong, in words.
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def counts(self) -> Counter[str]:
        """How many sends ended how, how many messages the consumer got, what promotions lost."""
        names = {
            SendAcked: "acked",
            SendFailed: "failed",
            SendUnknown: "unknown",
            Delivered: "delivered",
        }
        counts = Counter(name for event in self.history if (name := names.get(type(event))))
        messages = Messages(self.history)
        for cut in messages.lineages.cuts:
            if isinstance(cut.event, Promoted):
                lost = len(lost_to(cut, messages))
                counts.update({"promoted": 1, "lossy": bool(lost), "lost": lost})
        return counts

    def __str__(self) -> str:
        faults = "".join(f"\n  {fault}" for fault in self.faults)
        problems = "".join(f"\n- {problem}" for problem in self.problems)
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts().items()))
        return f"seed {self.seed}, {self.shape}: {counts}{faults}{problems}"


class Operator:
    """Does to servers and links what a schedule says, and writes it down."""

    def __init__(
        self, cluster: Cluster, history: History, promotions: Promotions, sabotage: Sabotage
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._promotions = promotions
        self._sabotage = sabotage
        # How often each server was started; one fault at a time hits it.
        self._starts: Counter[str] = Counter()
        self._busy = {name: asyncio.Lock() for name in cluster.servers}

    async def follow(self, faults: list[Fault | Promotion], span_ms: int) -> None:
        """Let the faults happen; returns once the span is over and every server is up again."""
        async with asyncio.TaskGroup() as happening:
            for fault in faults:
                if isinstance(fault, Promotion):
                    happening.create_task(self._replace_master(fault, happening))
                else:
                    happening.create_task(self._inflict(fault, happening))
            await CLOCK.sleep_ms(span_ms)

    async def _inflict(self, fault: Fault, happening: asyncio.TaskGroup) -> None:
        await CLOCK.sleep_ms(fault.at_ms)
        server = self._cluster.servers.get(fault.subject)
        if server is None:
            await self._disturb(self._cluster.links[fault.subject], fault)
            return
        async with self._busy[server.name]:
            if fault.kind is Kind.PAUSE:
                await self._pause(server, fault)
            else:
                await self._restart(server, fault)
                happening.create_task(self._accept_when_up(server))

    async def _disturb(self, link: Link, fault: Fault) -> None:
        _LINK_FAULTS[fault.kind](link)
        if (slave := self._cluster.slave_of_link(link.name)) is not None:
            self._lags([slave])
        if fault.lasts_ms:
            await CLOCK.sleep_ms(fault.lasts_ms)
            link.heal()

    def _lags(self, slaves: Iterable[Server]) -> None:
        """Note that slaves may lack what their masters know from now on."""
        for slave in slaves:
            self._history.record(LagBegan(server=slave.name, broker=slave.broker))

    async def _pause(self, server: Server, fault: Fault) -> None:
        self._stand_still(server)
        await CLOCK.sleep_ms(fault.lasts_ms)
        self._go_on(server)

    def _stand_still(self, server: Server) -> None:
        server.process.process.pause()
        self._history.record(Paused(server=server.name, broker=server.broker))
        self._lags(self._cluster.group_of(server))

    def _go_on(self, server: Server) -> None:
        server.process.process.resume()
        self._history.record(Resumed(server=server.name, broker=server.broker))

    async def _restart(self, server: Server, fault: Fault) -> None:
        """End a server, one that is still starting too, and start it again after a while."""
        await self._end(server, is_killed=fault.kind is Kind.KILL)
        await CLOCK.sleep_ms(fault.lasts_ms)
        self._start(server)

    async def _end(self, server: Server, *, is_killed: bool) -> None:
        process = server.process.process
        if is_killed:
            await beside(process.kill)
            self._history.record(Killed(server=server.name, broker=server.broker))
        else:
            await beside(process.stop)
            self._history.record(Stopped(server=server.name, broker=server.broker))
        self._lags(self._cluster.group_of(server))
        for link in self._cluster.links_to(server):
            # Nobody listens there now.
            link.refuse()

    def _start(self, server: Server) -> None:
        self._sabotage(server)
        self._starts[server.name] += 1
        server.process.process.start()

    async def _accept_when_up(self, server: Server) -> None:
        """Let others reach a server once it serves, unless it is ended before."""
        start = self._starts[server.name]
        try:
            await self._cluster.is_up(server)
        except ChildProcessError:
            if self._starts[server.name] == start and not self._busy[server.name].locked():
                raise
            return
        for link in self._cluster.links_to(server):
            link.accept()
        self._history.record(Started(server=server.name, broker=server.broker))

    # --- promotions ---------------------------------------------------------------------------

    async def _replace_master(self, plan: Promotion, happening: asyncio.TaskGroup) -> None:
        """Let a slave take the place of its master, which comes back later."""
        await CLOCK.sleep_ms(plan.at_ms)
        old = self._cluster.master_of(plan.broker)
        lagging = await self._begin_lag(plan, old)
        async with self._busy[old.name]:
            await self._let_end(old, plan.fate)
            await CLOCK.sleep_ms(plan.wait_ms)
            is_gone = plan.fate in {Fate.KILLED, Fate.STOPPED}
            await self._promote(plan.broker, force=not is_gone)
            for link in lagging:
                link.heal()
            await CLOCK.sleep_ms(plan.away_ms)
            self._let_return(old, plan.fate)
        if is_gone:
            happening.create_task(self._accept_when_up(old))
        if plan.returns and await self._promotions.follows_soon(old, timeout_s=_RETURN_S):
            await self._promote(plan.broker, force=True)

    async def _promote(self, broker: str, *, force: bool) -> None:
        async with AsyncExitStack() as others_wait:
            for slave in self._cluster.slaves_of(broker):
                await others_wait.enter_async_context(self._busy[slave.name])
            await self._promotions.promote(broker, force=force)

    async def _begin_lag(self, plan: Promotion, master: Server) -> list[Link]:
        """Have all slaves lag for a while; returns the links that are to be healed."""
        if plan.lag is None:
            return []
        slaves = self._cluster.slaves_of(plan.broker)
        links = [self._cluster.log_link(slave, master) for slave in slaves]
        for link in links:
            _LAGS[plan.lag](link)
        self._lags(slaves)
        await CLOCK.sleep_ms(plan.lag_ms)
        return links

    async def _let_end(self, master: Server, fate: Fate) -> None:
        match fate:
            case Fate.KILLED | Fate.STOPPED:
                await self._end(master, is_killed=fate is Fate.KILLED)
            case Fate.PAUSED:
                self._stand_still(master)
            case Fate.CUT_OFF | Fate.CUT_FROM_GROUP:
                for link in self._links_around(master, fate):
                    link.drop()
                self._lags(self._cluster.slaves_of(master.broker))
            case Fate.ALIVE:
                pass
            case _:
                assert_never(fate)

    def _let_return(self, server: Server, fate: Fate) -> None:
        match fate:
            case Fate.KILLED | Fate.STOPPED:
                self._start(server)
            case Fate.PAUSED:
                self._go_on(server)
            case Fate.CUT_OFF | Fate.CUT_FROM_GROUP:
                for link in self._links_around(server, fate):
                    link.heal()
                    link.cut(reset=True)
            case Fate.ALIVE:
                pass
            case _:
                assert_never(fate)

    def _links_around(self, server: Server, fate: Fate) -> list[Link]:
        others = [NAME_SERVER, *(each.name for each in self._cluster.group_of(server))]
        if fate is Fate.CUT_OFF:
            others.append(CLIENTS)
        return self._cluster.links_between(server, others)

    # --- the end ------------------------------------------------------------------------------

    def heal(self) -> None:
        """Heal every link; connections that lost something end."""
        for link in self._cluster.links.values():
            link.heal()
            link.cut(reset=True)


class Trial:
    """One schedule, with all that takes part."""

    def __init__(
        self, cluster: Cluster, outcome: Outcome, queues: list[Queue], sabotage: Sabotage
    ) -> None:
        self._cluster = cluster
        self._outcome = outcome
        self._queues = queues
        history = outcome.history
        self._promotions = Promotions(cluster, history, queues)
        self._operator = Operator(cluster, history, self._promotions, sabotage)
        self._producers = [
            Producing(f"p{number}", cluster, history, queues, outcome.seed)
            for number in range(PRODUCERS)
        ]
        self._consumer = Consuming(cluster, history, queues)
        self._auditor = Auditing(cluster, history, queues)

    async def run(self, span_ms: int) -> None:
        """Run the schedule; problems are added to the outcome."""
        await self._auditor.open()
        await self._promotions.open()
        try:
            async with (
                _background(self._consumer.run()),
                _background(self._auditor.run(AUDIT_PAUSE_MS)),
                asyncio.TaskGroup() as sending,
            ):
                for producer in self._producers:
                    sending.create_task(producer.run())
                await self._operator.follow(self._outcome.faults, span_ms)
                self._operator.heal()
                await self._promotions.all_follow()
                await self._producers_recover()
                for producer in self._producers:
                    producer.stopping.set()
                await self._consumer_catches_up()
            await self._slaves_catch_up()
            await self._auditor.read_all()
            self._outcome.problems += await self._promotions.disagreements()
        except* (TimeoutError, ChildProcessError, OrbitError) as failures:
            self._outcome.problems += [
                f"{type(each).__name__}: {each}" for each in _leaves(failures)
            ]
        finally:
            await self._promotions.close()
            await self._auditor.close()
        self._outcome.problems += map(str, violations(self._outcome.history, PROMISES))

    async def _producers_recover(self) -> None:
        before = [dict(producer.acked) for producer in self._producers]
        await _until(
            lambda: all(
                producer.acked[queue] > acked[queue]
                for producer, acked in zip(self._producers, before, strict=True)
                for queue in self._queues
            ),
            "every producer is acknowledged in every queue again",
        )

    async def _consumer_catches_up(self) -> None:
        async def is_at_the_end() -> bool:
            return all(
                [
                    self._consumer.reached[queue] == await self._auditor.end(master, queue)
                    for master in self._cluster.masters()
                    for queue in self._queues
                    if queue.broker == master.broker
                ]
            )

        await _until_asked(is_at_the_end, "the consumer is at the end of every queue")

    async def _slaves_catch_up(self) -> None:
        masters = {master.broker: master for master in self._cluster.masters()}
        for server in self._cluster.servers.values():
            if server in masters.values():
                continue
            queues = [queue for queue in self._queues if queue.broker == server.broker]

            async def has_all(slave: Server = server, queues: list[Queue] = queues) -> bool:
                master = masters[slave.broker]
                return all(
                    [
                        await self._auditor.end(slave, queue)
                        == await self._auditor.end(master, queue)
                        for queue in queues
                    ]
                )

            await _until_asked(has_all, f"{server.name} has everything")
            self._outcome.history.record(Followed(server=server.name, broker=server.broker))


async def run(
    folder: Path,
    seeds: Iterable[int],
    shape: Shape,
    *,
    span_ms: int = SPAN_MS,
    sabotage: Sabotage = lambda _: None,
) -> AsyncGenerator[Outcome]:
    """Run the schedules of some seeds one after the other; problems are in the outcomes.

    They share a cluster, each with a topic of its own, until one has a problem: then the next gets a
    new cluster, and the files of the old one stay. To see that the checker finds something, servers
    can be sabotaged between their end and their next start.
    """
    left = list(seeds)
    while left:
        home, topics = folder / f"from-{left[0]}", [_topic(seed) for seed in left]
        async with running(home, shape, seed=left[0], topics=topics, queues=QUEUES) as cluster:
            while left:
                began_ms = CLOCK.monotonic_ms()
                seed = left.pop(0)
                queues = _queues(cluster, _topic(seed))
                outcome = _planned(cluster, seed, span_ms, began_ms)
                trial = Trial(cluster, outcome, queues, sabotage)
                await trial.run(span_ms)
                outcome.seconds = (CLOCK.monotonic_ms() - began_ms) / 1000
                yield outcome
                if outcome.problems:
                    break


def _topic(seed: int) -> str:
    return f"T{seed}"


def _queues(cluster: Cluster, topic: str) -> list[Queue]:
    brokers = [master.broker for master in cluster.masters()]
    return [Queue(broker, topic, number) for broker in brokers for number in range(QUEUES)]


def _planned(cluster: Cluster, seed: int, span_ms: int, began_ms: float) -> Outcome:
    """Choose the faults of a schedule."""
    faults: list[Fault | Promotion] = []
    faults += schedule(
        seed, servers=list(cluster.servers), links=list(cluster.links), span_ms=span_ms
    )
    if cluster.shape.promotes:
        brokers = [master.broker for master in cluster.masters()]
        faults += promotions(seed, brokers=brokers, span_ms=span_ms)
    history = History(lambda: CLOCK.monotonic_ms() - began_ms)
    return Outcome(seed, cluster.shape, faults, history)


# --- waiting --------------------------------------------------------------------------------------


async def _until(reached: Callable[[], bool], what: str) -> None:
    async def ask() -> bool:
        return reached()

    await _until_asked(ask, what)


async def _until_asked(reached: Callable[[], Awaitable[bool]], what: str) -> None:
    """Return once servers say so; one that does not answer is asked again."""
    end_ms = CLOCK.monotonic_ms() + RECOVERY_S * 1000
    while True:
        is_last = CLOCK.monotonic_ms() > end_ms
        with contextlib.suppress(OrbitError):
            if await reached():
                return
        if is_last:
            raise TimeoutError(f"not within {RECOVERY_S} s: {what}")
        await CLOCK.sleep_ms(20)


@asynccontextmanager
async def _background(work: Awaitable[None]) -> AsyncIterator[None]:
    """Run something until the block ends; if it fails, so does the block."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The single errors of a group."""
    return [
        leaf
        for each in group.exceptions
        for leaf in (_leaves(each) if isinstance(each, BaseExceptionGroup) else [each])
    ]
