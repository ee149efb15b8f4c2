"""Forgets batch writes that finished long ago; streams are never forgotten.

Each `writeId` is a query with a state of its own, and programs make new ones for ever. A state is
forgotten some hours after its last change, if no broker has work left for its batch: the coordinator
knows, and forgets it last, since a broker that it asks again would move its rows again.

Threads: the event loop's.
Crash: what is forgotten is on disk; the rest is found again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.errors import OrbitError
from orbitmq.protocol.requests.staged_writes import BATCH_PREFIX

if TYPE_CHECKING:
    from orbitmq.broker.exactly_once.query_states import QueryState, QueryStates
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
# A coordinator remembers a batch for so much longer than the others.
COORDINATOR_EXTRA_MS: Final = _HOUR_MS
# States forgotten in one run: each waits for the disk, and for a reply.
_STATES_MAX: Final = 500


class BatchWriteExpiry:
    """Forgets the batch writes of one broker."""

    def __init__(
        self,
        name: Callable[[], str],
        states: QueryStates,
        *,
        hours: Callable[[], int],
        is_complete_at: Callable[[str, str], Awaitable[bool]],
        forget_coordinator: Callable[[str], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """Make it; `run` forgets.

        Args:
            name: of this broker.
            states: the states to forget.
            hours: how long they are kept.
            is_complete_at: asks a broker whether it has nothing left to do for a query.
            forget_coordinator: makes name servers forget who decides for a query.
            clock: the source of time.
        """
        self._name = name
        self._states = states
        self._hours = hours
        self._is_complete_at = is_complete_at
        self._forget_coordinator = forget_coordinator
        self._clock = clock

    async def run(self) -> None:
        """Forget what has expired; the rest of many at the next runs."""
        now_ms = self._clock.now_ms()
        expired = [state for state in self._states.states.values() if self._expired(state, now_ms)]
        expired.sort(key=_age_order)
        forgotten = 0
        unreachable: set[str] = set()
        for state in expired[:_STATES_MAX]:
            if state.coordinator in unreachable:
                continue
            try:
                forgotten += await self._forget(state)
            except OrbitError as error:
                unreachable.add(state.coordinator)
                log.info("batch write kept query=%s reason=%s", state.query, error)
        if forgotten:
            log.info("batch writes forgotten count=%d of=%d", forgotten, len(expired))

    def _expired(self, state: QueryState, now_ms: float) -> bool:
        if not state.query.startswith(BATCH_PREFIX) or not state.is_complete:
            return False
        kept_ms = self._hours() * _HOUR_MS
        if state.coordinator == self._name():
            kept_ms += COORDINATOR_EXTRA_MS
        return _changed_ms(state) + kept_ms <= now_ms

    async def _forget(self, state: QueryState) -> bool:
        if not _changed_ms(state):
            # From a release that did not note it: its time begins now.
            await self._states.change(
                state.query,
                lambda kept: None if kept is None else msgspec.structs.replace(kept, changed_ms=1),
            )
            return False
        if state.coordinator == self._name():
            await self._states.forget(state.query, force=False)
            await self._forget_coordinator(state.query)
            return True
        if not await self._is_complete_at(state.coordinator, state.query):
            return False
        await self._states.forget(state.query, force=False)
        return True


def _changed_ms(state: QueryState) -> int:
    return state.changed_ms or state.decided_ms


def _age_order(state: QueryState) -> int:
    return _changed_ms(state)
