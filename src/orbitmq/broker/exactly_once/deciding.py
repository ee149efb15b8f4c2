"""Deciding: the coordinator stores one decision per batch, and completes it.

The first decision that arrives for a batch is final; later callers get that one. It is sent to every
broker that has rows of the batch, and retried across restarts of both, until all have confirmed.

Threads: the event loop's.
Crash: a decision is on disk before any broker hears of it; incomplete ones resume at the next start.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.exactly_once.query_states import QueryState, check_name
from orbitmq.clock import time_limit
from orbitmq.errors import OrbitError, RequestRefusedError
from orbitmq.lifecycle import OwnedTasks
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.staged_writes import BatchDecision, BatchStatus, Part

if TYPE_CHECKING:
    from orbitmq.broker.exactly_once.query_states import QueryStates
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 1_000
_DIGEST_LENGTH: Final = 32
# Asks a broker to move its part of a batch; returns once it has confirmed.
RequestMove = Callable[[str, str, int, Part], Awaitable[None]]


class Deciding:
    """Decides for the queries that this broker coordinates."""

    def __init__(
        self,
        name: Callable[[], str],
        states: QueryStates,
        request_move: RequestMove,
        *,
        clock: Clock,
    ) -> None:
        self._name = name
        self._states = states
        self._request_move = request_move
        self._clock = clock
        self._tasks = OwnedTasks()
        self._completed: dict[str, asyncio.Event] = {}
        # By query and broker name: why the broker has not confirmed yet.
        self._problems: dict[str, dict[str, str]] = {}

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

    async def decide(self, decision: BatchDecision, *, wait_ms: float) -> BatchStatus:
        """Store a decision unless there is one; waits for completion, returns the outcome."""
        query, batch = decision.query, decision.batch
        state = await self._states.change(query, lambda state: self._decided(state, decision))
        assert state is not None
        counts = state.digest == _digest(decision) if batch == state.decided else None
        if batch < state.decided or state.decision is None:
            return BatchStatus(counts=counts, complete=True)
        self._complete_soon(query)
        with suppress(TimeoutError):
            async with time_limit(self._clock, wait_ms):
                await self._completed[query].wait()
        current = self._state_of(query)
        return BatchStatus(
            counts=counts,
            complete=current.decided > batch or current.decision is None,
            problems=dict(self._problems.get(query, {})),
        )

    def _decided(self, state: QueryState | None, decision: BatchDecision) -> QueryState | None:
        if state is None or state.coordinator != self._name():
            coordinator = state.coordinator if state is not None else None
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"broker {self._name()!r} does not decide for query {decision.query!r}; "
                f"{coordinator!r} does",
                hint="ask for the coordinator first",
            )
        if decision.batch <= state.decided:
            return None
        if state.decision is not None:
            self._complete_soon(decision.query)
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"batch {state.decided} of query {decision.query!r} is not complete yet",
                hint=f"batch {decision.batch} has to wait for it; retry",
            )
        decided = msgspec.structs.replace(
            state, decided=decision.batch, decision=decision.parts, digest=_digest(decision)
        )
        # The state while this broker moves its own part must fit in a record, too.
        part = decision.parts.get(self._name())
        self._states.check_room(msgspec.structs.replace(decided, part=part, moved=0))
        return decided

    def _state_of(self, query: str) -> QueryState:
        kept = self._states.find(query)
        assert kept is not None
        return kept.state

    def _complete_soon(self, query: str) -> None:
        """Start completing a decision, unless that is under way."""
        completed = self._completed.get(query)
        if completed is None or completed.is_set():
            self._completed[query] = asyncio.Event()
            self._tasks.start(self._complete(query), name=f"complete {query}")

    async def _complete(self, query: str) -> None:
        state = self._state_of(query)
        assert state.decision is not None
        left = dict(state.decision)
        problems = self._problems[query] = {}
        try:
            while True:
                outcomes = await asyncio.gather(
                    *(
                        self._is_confirmed(query, state.decided, *one, problems)
                        for one in left.items()
                    )
                )
                left = {
                    name: part
                    for (name, part), is_confirmed in zip(left.items(), outcomes, strict=True)
                    if not is_confirmed
                }
                if not left and await self._mark_complete(query):
                    return
                await self._clock.sleep_ms(RETRY_INTERVAL_MS)
        finally:
            del self._problems[query]
            self._completed[query].set()

    async def _mark_complete(self, query: str) -> bool:
        try:
            await self._states.change(
                query,
                lambda state: (
                    msgspec.structs.replace(state, decision=None) if state is not None else None
                ),
            )
        except OrbitError as error:
            log.warning("decision not marked complete query=%s reason=%s", query, error)
            return False
        return True

    async def _is_confirmed(
        self, query: str, batch: int, name: str, part: Part, problems: dict[str, str]
    ) -> bool:
        try:
            await self._request_move(name, query, batch, part)
        except Exception as error:  # noqa: BLE001  # the border: it is retried, whatever it was
            # Retried every second: each reason is logged once.
            if problems.get(name) != str(error):
                log.warning(
                    "rows not moved yet query=%s batch=%d broker=%s reason=%s",
                    query, batch, name, error,
                )  # fmt: skip
            problems[name] = str(error)
            return False
        problems.pop(name, None)
        return True


def _digest(decision: BatchDecision) -> str:
    """Identifies a decision among those of its batch; the ids of its writes are random."""
    return hashlib.sha256(msgspec.json.encode(decision)).hexdigest()[:_DIGEST_LENGTH]
