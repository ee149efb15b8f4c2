"""Deciding: the coordinator stores one decision per batch, and completes it.

The first decision that arrives for a batch is final; later callers get that one, if theirs is about
the same rows of the source (`conflicts.py`). It is sent to every broker that has rows of the batch,
and retried across restarts of both, until all have confirmed.

Threads: the event loop's.
Crash: a decision is on disk before any broker hears of it; incomplete ones resume at the next start.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.broker.exactly_once.conflicts import check_decision, is_same_source
from orbitmq.broker.exactly_once.query_states import QueryState, check_name
from orbitmq.clock import time_limit
from orbitmq.errors import BatchConflictError, OrbitError, RemoteError, RequestRefusedError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.staged_writes import (
    BatchDecision,
    BatchStatus,
    Confirmed,
    Part,
)

if TYPE_CHECKING:
    from orbitmq.broker.exactly_once.query_states import QueryStates
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 1_000
_DIGEST_LENGTH: Final = 32
# Brokers of one decision whose problems are logged.
_LOGGED_MAX: Final = 10
# Brokers of one query whose last batch is known; a decision has at most as many.
_CONFIRMED_MAX: Final = 1_000

# Asks a broker to move its part of a batch; returns once it has confirmed.
RequestMove = Callable[[str, QueryState, Part], Awaitable[None]]

# Raises BatchConflictError if a broker lost rows of an earlier batch that it has confirmed.
CheckConfirmed = Callable[[QueryState], Awaitable[None]]


class _Problem(NamedTuple):
    """Why a broker has not confirmed, and whether it never will."""

    text: str
    is_final: bool


@dataclass(slots=True, eq=False)
class _Completion:
    """The work on the decision with this digest."""

    digest: str
    # By broker name: why the broker has not confirmed yet.
    problems: dict[str, _Problem] = field(default_factory=dict)
    is_over: bool = False
    # Set when it is over, or a broker refuses for good.
    has_news: asyncio.Event = field(default_factory=asyncio.Event)


class Deciding:
    """Decides for the queries that this broker coordinates."""

    def __init__(
        self,
        name: Callable[[], str],
        states: QueryStates,
        request_move: RequestMove,
        check_confirmed: CheckConfirmed,
        *,
        clock: Clock,
    ) -> None:
        self._name = name
        self._states = states
        self._request_move = request_move
        self._check_confirmed = check_confirmed
        self._clock = clock
        self._tasks = OwnedTasks()
        # The newest of each query, while it is worked on.
        self._completions: dict[str, _Completion] = {}

    def start(self) -> None:
        """Resume incomplete decisions."""
        for query, state in self._states.states.items():
            if state.decision is not None:
                self._complete_soon(query)

    async def stop(self) -> None:
        """Stop; incomplete decisions resume at the next start."""
        await self._tasks.cancel()

    async def appoint(self, query: str, candidate: str | None) -> str | None:
        """Set the coordinator of a query unless it has one; returns the one it has."""
        check_name("query", query)
        kept = self._states.find(query)
        if kept is not None or candidate is None:
            return kept.state.coordinator if kept is not None else None
        check_name("coordinator", candidate)
        state = await self._states.change(
            query,
            lambda state: QueryState(query=query, coordinator=candidate) if state is None else None,
        )
        assert state is not None
        return state.coordinator

    async def decide(
        self, decision: BatchDecision, *, wait_ms: float, first_batch: int | None = None
    ) -> BatchStatus:
        """Store a decision unless there is one; waits for completion, returns the outcome.

        Args:
            decision: what to decide.
            wait_ms: how long to wait.
            first_batch: the first batch ever decided for the query; None if it is not known.
        """
        query = decision.query
        kept = self._states.find(query)
        if kept is not None and kept.state.decision is None and kept.state.decided < decision.batch:
            check_decision(kept.state, decision, first_batch)
            # Before anything is moved that would be there twice after the query is forgotten.
            await self._check_confirmed(kept.state)
        state = await self._states.change(
            query, lambda state: self._decided(state, decision, first_batch)
        )
        assert state is not None
        status = BatchStatus(
            counts=state.digest == _digest(decision),
            complete=state.decision is None,
            same_source=is_same_source(state, decision),
        )
        if status.complete:
            return status
        completion = self._complete_soon(query)
        with suppress(TimeoutError):
            async with time_limit(self._clock, wait_ms):
                await completion.has_news.wait()
        problems = completion.problems
        return msgspec.structs.replace(
            status,
            complete=self._is_complete(state),
            problems={name: problem.text for name, problem in problems.items()},
            refused=any(problem.is_final for problem in problems.values()),
        )

    def _is_complete(self, decided: QueryState) -> bool:
        """Whether the rows of a decision are all moved; not if the query was forgotten before."""
        kept = self._states.find(decided.query)
        if kept is None or kept.state.decided < decided.decided:
            return False
        if kept.state.decided > decided.decided:
            return True
        return kept.state.digest == decided.digest and kept.state.decision is None

    def _decided(
        self, state: QueryState | None, decision: BatchDecision, first_batch: int | None
    ) -> QueryState | None:
        if state is None or state.coordinator != self._name():
            coordinator = state.coordinator if state is not None else None
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"broker {self._name()!r} does not decide for query {decision.query!r}; "
                f"{coordinator!r} does",
                hint="ask for the coordinator first",
            )
        check_decision(state, decision, first_batch)
        if decision.batch == state.decided:
            return None
        if state.decision is not None:
            self._complete_soon(decision.query)
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"batch {state.decided} of query {decision.query!r} is not complete yet",
                hint=f"batch {decision.batch} has to wait for it; retry",
            )
        decided = msgspec.structs.replace(
            state,
            decided=decision.batch,
            decision=decision.parts,
            digest=_digest(decision),
            source=decision.source.end if decision.source is not None else "",
            target=decision.target,
            decided_ms=int(self._clock.now_ms()),
        )
        # The state while this broker moves its own part must fit in a record, too.
        part = decision.parts.get(self._name())
        self._states.check_room(msgspec.structs.replace(decided, part=part, moved=0))
        return decided

    def _complete_soon(self, query: str) -> _Completion:
        """Start completing the decision of a query, unless that is under way."""
        kept = self._states.find(query)
        assert kept is not None
        completion = self._completions.get(query)
        if completion is None or completion.is_over or completion.digest != kept.state.digest:
            completion = self._completions[query] = _Completion(kept.state.digest)
            self._tasks.start(self._complete(kept.state, completion), name=f"complete {query}")
        return completion

    async def _complete(self, state: QueryState, completion: _Completion) -> None:
        query = state.query
        assert state.decision is not None
        left = dict(state.decision)
        try:
            # Until it is complete, or the query is forgotten.
            while (kept := self._states.find(query)) and kept.state.digest == state.digest:
                outcomes = await asyncio.gather(
                    *(self._is_confirmed(state, *one, completion) for one in left.items())
                )
                left = {
                    name: part
                    for (name, part), is_confirmed in zip(left.items(), outcomes, strict=True)
                    if not is_confirmed
                }
                if not left and await self._mark_complete(state):
                    return
                await self._clock.sleep_ms(RETRY_INTERVAL_MS)
        finally:
            completion.is_over = True
            completion.has_news.set()
            if self._completions.get(query) is completion:
                del self._completions[query]

    async def _mark_complete(self, done: QueryState) -> bool:
        def completed(state: QueryState | None) -> QueryState | None:
            # The query may have been forgotten meanwhile.
            if state is None or state.digest != done.digest:
                return None
            return msgspec.structs.replace(state, decision=None, confirmed=_confirmed(done))

        try:
            await self._states.change(done.query, completed)
        except OrbitError as error:
            log.warning("decision not marked complete query=%s reason=%s", done.query, error)
            return False
        return True

    async def _is_confirmed(
        self, state: QueryState, name: str, part: Part, completion: _Completion
    ) -> bool:
        try:
            await self._request_move(name, state, part)
        except Exception as error:  # noqa: BLE001  # the border: it is retried, whatever it was
            # Retried every second: each reason is logged once, and of a limited number of brokers.
            problem = _problem(error)
            if completion.problems.get(name) != problem and len(completion.problems) < _LOGGED_MAX:
                log.warning(
                    "rows not moved yet query=%s batch=%d broker=%s reason=%s",
                    state.query, state.decided, name, problem.text,
                )  # fmt: skip
            completion.problems[name] = problem
            if problem.is_final:
                completion.has_news.set()
            return False
        completion.problems.pop(name, None)
        return True


def _problem(error: Exception) -> _Problem:
    if isinstance(error, RemoteError):
        return _Problem(error.remark, error.code == ResponseCode.ILLEGAL_OPERATION)
    return _Problem(str(error), isinstance(error, BatchConflictError))


def _confirmed(done: QueryState) -> dict[str, Confirmed]:
    """What brokers have confirmed once a decision is complete; those silent longest are dropped."""
    latest = Confirmed(done.decided, done.digest)
    confirmed = {**done.confirmed, **dict.fromkeys(done.decision or (), latest)}
    newest = sorted(confirmed.items(), key=lambda item: item[1].batch, reverse=True)
    return dict(newest[:_CONFIRMED_MAX])


def _digest(decision: BatchDecision) -> str:
    """Identifies a decision among those of its batch; the ids of its writes are random."""
    return hashlib.sha256(msgspec.json.encode(decision)).hexdigest()[:_DIGEST_LENGTH]
