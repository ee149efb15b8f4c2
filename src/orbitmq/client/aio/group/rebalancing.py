"""Rebalancing: takes and gives up queues as members of the group come and go.

A round fetches the queues and the members of each topic, plans, drops, locks, and adds. Rounds run
every 20 s, at once after `run_soon()` (a broker reports that members changed, or that a lock was
released), and at growing distances while something is left to do: a queue is still locked by its
last owner, or a listener still runs. `round_pace.py` has the pauses.

An ordered consumer holds the lock of a queue from before it fetches the committed offset until its
last listener has ended, so that two members never consume a queue concurrently.

Threads: belongs to the event loop of its consumer; one round runs at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, Protocol

from orbitmq.client.aio.group.group_views import GroupViews, MemberCalls, ReadingRoutes
from orbitmq.client.aio.group.member_locks import LockCalls, MemberLocks
from orbitmq.client.core.consuming.allocation import allocation_name
from orbitmq.client.core.consuming.assignment import (
    NOTHING,
    GroupView,
    Holding,
    Membership,
    Plan,
    plan,
)
from orbitmq.client.core.consuming.round_pace import RETRY_MS_MAX, RoundPace
from orbitmq.errors import OrbitError
from orbitmq.lifecycle import Periodic, RunOnce, cancel_and_wait
from orbitmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from orbitmq.client.aio.group.offset_stores import OffsetStore
    from orbitmq.client.aio.group.start_offsets import StartOffsets
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

INTERVAL_MS: Final = 20_000
# How often locks are renewed while they are trusted: two renewals may fail.
RENEWALS_PER_TRUST: Final = 3
STOP_TIMEOUT_MS: Final = 30_000
# Queues that are added concurrently: each asks its broker for an offset or two.
CONCURRENT_ADDS_MAX: Final = 32


class QueueOwner(Protocol):
    """A consumer, as rebalancing sees it."""

    async def add_queue(self, queue: MessageQueue, start_offset: int) -> None:
        """Start to consume a queue."""

    async def drop_queue(self, queue: MessageQueue) -> bool:
        """Stop consuming a queue; False while it must not go to another member yet.

        Called again until it returns True, at least once a second and after `run_soon()`. After
        True, no offset of the queue is recorded. True for a queue that is already gone.
        """

    async def queues_changed(
        self, topic: str, queues: Sequence[MessageQueue], own: AbstractSet[MessageQueue]
    ) -> None:
        """Called when this consumer's queues change: it now has `own` of all `queues`."""


class GroupCalls(MemberCalls, LockCalls, Protocol):
    """Calls to brokers about a group."""


class RebalancingInstance(Protocol):
    """What rebalancing needs of a client instance."""

    @property
    def routes(self) -> ReadingRoutes:
        """Routes of topics."""

    @property
    def brokers(self) -> GroupCalls:
        """Calls to brokers."""

    @property
    def clock(self) -> Clock:
        """The source of time."""


class Rebalancing:
    """Keeps the queues of one consumer equal to its share."""

    def __init__(
        self,
        member: Membership,
        owner: QueueOwner,
        instance: RebalancingInstance,
        *,
        topics: Callable[[], Collection[str]],
        offsets: OffsetStore,
        starts: StartOffsets,
        interval_ms: float = INTERVAL_MS,
        on_lock: Callable[[MessageQueue], None] = lambda _queue: None,
    ) -> None:
        """Make the rebalancing of a consumer; `start` begins with a round.

        `topics` returns the subscribed topics; `on_lock` is called for each renewed lock.
        """
        self._member = member
        self._owner = owner
        self._views = GroupViews(member, instance.routes, instance.brokers, instance.clock)
        self._locks = MemberLocks(member, instance.brokers)
        self._topics = topics
        self._offsets = offsets
        self._starts = starts
        self._clock = instance.clock
        self._pace = RoundPace(interval_ms)
        self._on_lock = on_lock
        self._state = RunOnce(f"rebalancing of group {member.group!r}")
        self._held: set[MessageQueue] = set()
        self._leaving: set[MessageQueue] = set()
        self._wake = asyncio.Event()
        self._was_asked_for = False
        self._round_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._renewals = Periodic(
            "renew queue locks",
            member.lock_trust_ms / RENEWALS_PER_TRUST,
            self.renew_locks,
            self._clock,
        )

    @property
    def queues(self) -> AbstractSet[MessageQueue]:
        """The queues that this consumer has and is not giving up."""
        return self._held - self._leaving

    @property
    def has_locks(self) -> bool:
        """Whether it holds locks; after `stop`, those of listeners that are still at work."""
        return bool(self._locks.held)

    def start(self) -> None:
        """Start, with a round at once."""
        self._state.begin()
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"rebalance {self._member.group}"
        )
        if self._member.needs_locks:
            self._renewals.start()

    def run_soon(self) -> None:
        """Run the next round now, or right after the current one."""
        self._was_asked_for = True
        self._wake.set()

    def retake(self, queue: MessageQueue) -> None:
        """Give a queue up and take it again, from the offset that the store has then."""
        if queue in self._held:
            self._leaving.add(queue)
            self.run_soon()

    async def stop(self, *, timeout_ms: float = STOP_TIMEOUT_MS) -> None:
        """Give up all queues and persist their offsets; waits for queues that cannot go yet."""
        if not await self._state.begin_stop():
            return
        try:
            if self._task is not None:
                await cancel_and_wait(self._task)
            await self._give_up_all(timeout_ms)
        finally:
            await self._renewals.stop()
            self._state.end_stop()

    async def rebalance(self) -> bool:
        """Run one round now; False if something is left to do."""
        async with self._round_lock:
            view, is_complete = await self._views.fetch(list(self._topics()))
            before = self.queues
            await self._drop(self._plan(view).drop)
            if self._member.needs_locks:
                await self._lock(self._plan(view))
            final = self._plan(view, self._locks.held)
            all_added = await self._add(final.add)
            await self._report_changes(view, self.queues ^ before)
            all_unlocked = self._locks.held <= self._held
            return is_complete and final.balanced and all_added and all_unlocked

    async def renew_locks(self) -> None:
        """Renew all locks; gives up queues whose lock another client now holds."""
        renewed, lost = await self._locks.renew()
        for queue in renewed:
            self._on_lock(queue)
        for queue in lost & self._held:
            log.warning("queue lock lost group=%s queue=%s", self._member.group, queue)
            # The other client resumes at the last commit: commit nothing after it.
            self._offsets.disown(queue)
            self.retake(queue)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            was_asked_for, self._was_asked_for = self._was_asked_for, False
            try:
                is_balanced = await self.rebalance()
            except Exception:
                log.exception("rebalancing failed group=%s", self._member.group)
                is_balanced = False
            pause = self._pace.after_round(
                self._clock.monotonic_ms(), is_balanced=is_balanced, was_asked_for=was_asked_for
            )
            await self._clock.sleep_ms(pause.gap_ms)
            await self._wait_for_wake(pause.wait_ms)

    async def _wait_for_wake(self, delay_ms: float) -> None:
        timer = self._clock.call_later(delay_ms, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _plan(self, view: GroupView, locked: AbstractSet[MessageQueue] = NOTHING) -> Plan:
        return plan(
            self._member, view, Holding(held=self._held, leaving=self._leaving), locked=locked
        )

    async def _lock(self, planned: Plan) -> None:
        """Lock the queues to add; unlock those that were locked, never added, and not wanted."""
        await self._locks.unlock(self._locks.held - self._held - set(planned.lock))
        await self._locks.lock(planned.lock)

    async def _add(self, queues: Sequence[MessageQueue]) -> bool:
        """Start to consume queues at their start offsets; False if one has to wait."""
        limit = asyncio.Semaphore(CONCURRENT_ADDS_MAX)

        async def add(queue: MessageQueue) -> bool:
            async with limit:
                return await self._add_one(queue)

        return all(await _wait_for_all(map(add, queues)))

    async def _add_one(self, queue: MessageQueue) -> bool:
        # Another member may have committed a newer offset since.
        self._offsets.remove(queue)
        try:
            start_offset = await self._starts.of(queue)
        except OrbitError as error:
            log.warning(
                "queue has to wait: its start offset is unknown group=%s queue=%s reason=%s",
                self._member.group,
                queue,
                error,
            )
            return False
        # Held before it is added, so that a concurrent stop drops it.
        self._held.add(queue)
        try:
            await self._owner.add_queue(queue, start_offset)
        except Exception:
            self._held.discard(queue)
            raise
        return True

    async def _drop(self, queues: Collection[MessageQueue]) -> None:
        """Give up queues, except those that their owner cannot release yet."""
        self._leaving.update(queues)
        answers = await _wait_for_all(map(self._owner.drop_queue, queues))
        gone = {queue for queue, is_gone in zip(queues, answers, strict=True) if is_gone}
        await self._offsets.persist(queues)
        for queue in gone:
            self._offsets.remove(queue)
        await self._locks.unlock(gone)
        self._held -= gone
        self._leaving -= gone

    async def _give_up_all(self, timeout_ms: float) -> None:
        async with self._round_lock:
            end_ms = self._clock.monotonic_ms() + timeout_ms
            while self._held:
                self._wake.clear()
                # Without the time limit: finished work is committed in any case.
                await self._drop(set(self._held))
                left_ms = end_ms - self._clock.monotonic_ms()
                if not self._held or left_ms <= 0:
                    break
                await self._wait_for_wake(min(left_ms, RETRY_MS_MAX))
            if self._held:
                log.warning(
                    "stopped before listeners ended group=%s queues=%d timeout_ms=%d",
                    self._member.group,
                    len(self._held),
                    timeout_ms,
                )
            # Locks of queues whose listeners still run are left to expire.
            await self._locks.unlock(self._locks.held - self._held)

    async def _report_changes(self, view: GroupView, changed: AbstractSet[MessageQueue]) -> None:
        for topic in sorted({queue.topic for queue in changed}):
            queues = view.queues.get(topic, ())
            own = {queue for queue in self.queues if queue.topic == topic}
            log.info(
                "queues changed group=%s topic=%s own=%d all=%d members=%d allocation=%s",
                self._member.group,
                topic,
                len(own),
                len(queues),
                len(view.client_ids.get(topic, ())),
                allocation_name(self._member.allocation),
            )
            await self._owner.queues_changed(topic, queues, own)


async def _wait_for_all(work: Iterable[Coroutine[Any, Any, bool]]) -> list[bool]:
    """Wait for all, even if one fails, so that none runs into the next round."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome is True for outcome in outcomes]
