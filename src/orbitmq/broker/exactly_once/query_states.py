"""States of the queries that write exactly once: one record per change.

Record: topic `rmq_sys_orbitmq_queries`, queue 0; the body is a `QueryState` as JSON. The newest
record of a query is valid; a forgotten query has a last record that says so. Records in older files
of the log are stored again in the newest, so that retention never has to wait for them.

Threads: the event loop's; records are read off it.
Crash: a change is visible only after it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from orbitmq.broker.exactly_once.queue_walk import messages_from, place_of
from orbitmq.errors import (
    QueryMissingError,
    QueueDamagedError,
    RequestRefusedError,
    StoreDamagedError,
    StoreFormatError,
)
from orbitmq.model.names import QUERIES_TOPIC, STAGING_TOPIC
from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.staged_writes import Confirmed, Part
from orbitmq.store.log.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.storing import Storing
    from orbitmq.clock import Clock
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

VERSION: Final = 2
# Version 1 lacks the fields with defaults that version 2 added.
_VERSIONS_READ: Final = frozenset({1, VERSION})
QUERIES_MAX: Final = 100_000
# All states as stored; in memory they take about four times as many bytes.
STATES_BYTES_MAX: Final = 128 * 1024 * 1024
# Brokers of decisions that are not complete: each is asked every second until it has confirmed.
PENDING_MOVES_MAX: Final = 10_000
NAME_LENGTH_MAX: Final = 255
# How long undecided rows are kept; and how long all rows are kept after a start, since the broker
# may have missed their decision.
UNDECIDED_MS: Final = 24 * 3_600_000
ALL_AFTER_START_MS: Final = 3_600_000


class QueryState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one query on one broker."""

    version: int = msgspec.field(default=VERSION, name="v")
    query: str
    # The broker that decides for the query.
    coordinator: str
    # The newest batch that this broker has a part in, and that part. At least the first `moved` of
    # its rows are in their queues; all of them if it is None.
    batch: int = -1
    part: Part | None = None
    moved: int | None = None
    # The digest of the decision that the part belongs to, and the bytes of its rows as staged.
    part_digest: str = ""
    part_bytes: int = 0
    # At the coordinator: the newest decided batch, its decision until that is complete, and the
    # decision's digest.
    decided: int = -1
    decision: dict[str, Part] | None = None
    digest: str = ""
    # Of the newest decision: the digest of where its batch ends in the source, the topic of its
    # rows, and when it was made; empty or 0 if that is not known.
    source: str = ""
    target: str = ""
    decided_ms: int = 0
    # The newest batch that each broker has confirmed, by name, as far as that is known.
    confirmed: dict[str, Confirmed] = {}
    # When it last changed; 0 if that is not known.
    changed_ms: int = 0
    # The last record of a query that was forgotten.
    forgotten: bool = False

    @property
    def is_moving(self) -> bool:
        """Whether rows of the part remain to be moved."""
        return self.part is not None and self.moved is not None

    @property
    def is_complete(self) -> bool:
        """Whether the broker has nothing left to do for the query."""
        return self.decision is None and not self.is_moving


class StoredState(NamedTuple):
    """A state, the position of its record in the log, and the bytes of its body."""

    state: QueryState
    physical_offset: PhysicalOffset
    body_bytes: int

    @property
    def pending_moves(self) -> int:
        """How many brokers have to confirm its decision."""
        return len(self.state.decision or ())


class QueryLocks:
    """One lock per query, for as long as it is held or waited for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, query: str) -> asyncio.Lock:
        """The lock of a query."""
        lock = self._locks.get(query)
        if lock is None:
            lock = self._locks[query] = asyncio.Lock()
        return lock


class QueryStates:
    """The state of every query."""

    def __init__(
        self,
        store: MessageStore,
        storing: Storing,
        *,
        clock: Clock,
        bytes_max: int = STATES_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        # Of all states, those that are being stored among them.
        self._bytes = 0
        self._pending_moves = 0
        self._store = store
        self._storing = storing
        self._clock = clock
        self._kept: dict[str, StoredState] = {}
        # Why no state is known: one of them could not be read, nobody knows of which query.
        self._damage: StoreDamagedError | None = None
        self._locks = QueryLocks()
        self._started_ms = clock.now_ms()
        self._is_loaded = False

    @property
    def is_loaded(self) -> bool:
        """Whether the states are known, or their damage; never at a slave."""
        return self._is_loaded

    def load(self) -> None:
        """Read all records; blocks.

        If one of them cannot be read, exactly-once writes are refused until that is repaired, and
        the log is kept; everything else is served.
        """
        self._read_all()
        self._is_loaded = True

    def _read_all(self) -> None:
        start, end = self._store.start_of(QUERIES_TOPIC, 0), self._store.end_of(QUERIES_TOPIC, 0)
        lost = end - start
        try:
            for message in messages_from(self._store, QUERIES_TOPIC, 0, start):
                lost -= 1
                state = decode_state(message.body, message.physical_offset)
                stored = StoredState(
                    state, PhysicalOffset(message.physical_offset), len(message.body)
                )
                self._count(stored)
                self._keep(stored)
        except QueueDamagedError as damage:
            self._refuse(damage)
            return
        if lost:
            log.warning(
                "states of queries are lost count=%d hint=rows of batches that were being moved may "
                "be written twice",
                lost,
            )

    def _refuse(self, damage: QueueDamagedError) -> None:
        self._damage = StoreDamagedError(
            f"the state of a query that writes exactly once cannot be read: {damage.args[0]}",
            hint="stop the broker and restore the log from a copy; without one, run: orbitmq store "
            "accept-loss. Rows of a batch that was being moved may then be written twice",
        )
        self._kept.clear()
        self._bytes = self._pending_moves = 0
        log.error("exactly-once writes are refused reason=%s", self._damage)

    def check_readable(self) -> None:
        """Raise StoreDamagedError if a state could not be read."""
        if self._damage is not None:
            raise StoreDamagedError(self._damage.args[0], hint=self._damage.hint)

    @property
    def states(self) -> Mapping[str, QueryState]:
        """All states by query; none if one of them could not be read."""
        return {query: kept.state for query, kept in self._kept.items()}

    def find(self, query: str) -> StoredState | None:
        """The state of a query; None if it is unknown."""
        self.check_readable()
        return self._kept.get(query)

    async def change(
        self, query: str, change: Callable[[QueryState | None], QueryState | None]
    ) -> QueryState | None:
        """Change a state; returns it once it is on disk. If `change` returns None, it stays."""
        self.check_readable()
        if query not in self._kept:
            self._check_new(query)
        async with self._locks.of(query):
            kept = self._kept.get(query)
            changed = change(kept.state if kept is not None else None)
            if changed is None:
                return kept.state if kept is not None else None
            if kept is None or changed != kept.state:
                now_ms = int(self._clock.now_ms())
                changed = msgspec.structs.replace(changed, changed_ms=now_ms)
            await self._put(changed)
            return changed

    async def forget(self, query: str, *, force: bool) -> None:
        """Forget a query; raises if it has work left, unless `force` gives that up."""
        self.check_readable()
        async with self._locks.of(query):
            kept = self._kept.get(query)
            if kept is None:
                raise QueryMissingError(f"there is no query {query[:NAME_LENGTH_MAX]!r}")
            state = kept.state
            if not state.is_complete and not force:
                batch = state.batch if state.is_moving else state.decided
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_BUSY,
                    f"batch {batch} of query {query!r} is not complete: its rows are being moved",
                    hint="wait until it is; --force gives up rows that are not moved yet",
                )
            await self._put(QueryState(query=query, coordinator=state.coordinator, forgotten=True))

    async def carry_forward(self) -> None:
        """Store states again whose records are not in the newest file of the log."""
        for query, kept in list(self._kept.items()):
            if kept.physical_offset < self._store.newest_file_start:
                # One that is being moved stays: its position tells which rows were moved after it.
                await self.change(
                    query, lambda state: None if state is None or state.is_moving else state
                )

    def needed_from(self) -> PhysicalOffset:
        """The oldest log offset that is still needed; blocks."""
        if self._damage is not None:
            return self._store.log_start
        now_ms = self._clock.now_ms()
        kept = list(self._kept.values())
        offsets = [state.physical_offset for state in kept]
        staged = [
            kept.state.part.start
            for kept in kept
            if kept.state.part is not None and kept.state.is_moving
        ]
        if now_ms - self._started_ms < ALL_AFTER_START_MS:
            staged.append(self._store.start_of(STAGING_TOPIC, 0))
        else:
            staged.append(self._store.offset_at(STAGING_TOPIC, 0, now_ms - UNDECIDED_MS))
        oldest = max(min(staged), self._store.start_of(STAGING_TOPIC, 0))
        try:
            place = place_of(self._store, STAGING_TOPIC, 0, oldest)
        except QueueDamagedError:
            # Everything stays until it is known where the rows are.
            return self._store.log_start
        if place is not None:
            offsets.append(PhysicalOffset(place))
        return min(offsets, default=self._store.log_end)

    def check_room(self, state: QueryState) -> None:
        """Raise if a state is too large to store."""
        size = len(msgspec.json.encode(state))
        if size > self._storing.body_bytes_max:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the decision takes {size} bytes; the limit is {self._storing.body_bytes_max}",
                hint="write with fewer partitions, or raise maxMessageSize",
            )

    def _check_new(self, query: str) -> None:
        check_name("query", query)
        if len(self._kept) >= QUERIES_MAX:
            raise RequestRefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the broker has {len(self._kept)} queries that write exactly once, its limit",
                hint="batch writes are forgotten after batchWriteHoursMax; forget queries that no "
                "longer run: orbitmq query list, orbitmq query forget",
            )

    async def _put(self, state: QueryState) -> None:
        body = msgspec.json.encode(state)
        stored = StoredState(state, PhysicalOffset(0), len(body))
        self._check_growth(stored)
        self._count(stored)
        try:
            (receipt,) = await self._storing.put_durably([Draft(topic=QUERIES_TOPIC, body=body)])
        except BaseException:
            self._count(stored, sign=-1)
            raise
        self._keep(stored._replace(physical_offset=receipt.physical_offset))

    def _check_growth(self, stored: StoredState) -> None:
        """Raise if a state is larger than before, and all together would be too large."""
        before = self._kept.get(stored.state.query)
        more_bytes = stored.body_bytes - (before.body_bytes if before is not None else 0)
        more_moves = stored.pending_moves - (before.pending_moves if before is not None else 0)
        for what, more, count, most in (
            ("bytes of states of queries", more_bytes, self._bytes, self._bytes_max),
            ("brokers to confirm decisions", more_moves, self._pending_moves, PENDING_MOVES_MAX),
        ):
            if more > 0 and count + more > most:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_BUSY,
                    f"the broker has {count} {what}, of at most {most}, and query "
                    f"{stored.state.query!r} needs {more} more",
                    hint="wait until other batches are complete; forget queries that no longer "
                    "run: orbitmq query list, orbitmq query forget",
                )

    def _keep(self, stored: StoredState) -> None:
        """Replace a state by one that is counted already."""
        query = stored.state.query
        before = self._kept.pop(query, None)
        if before is not None:
            self._count(before, sign=-1)
        if stored.state.forgotten:
            self._count(stored, sign=-1)
        else:
            self._kept[query] = stored

    def _count(self, stored: StoredState, *, sign: int = 1) -> None:
        self._bytes += sign * stored.body_bytes
        self._pending_moves += sign * stored.pending_moves


def check_name(what: str, name: str) -> None:
    """Raise unless a name is valid."""
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{name[:60]!r} is not a valid {what} id",
            hint=f"use 1 to {NAME_LENGTH_MAX} printable characters",
        )


def decode_state(body: bytes, physical_offset: int) -> QueryState:
    """The state in the body of a record; raises StoreFormatError if it is none."""
    try:
        state = msgspec.json.decode(body, type=QueryState)
    except msgspec.MsgspecError as error:
        raise StoreFormatError(
            f"the state of a query at {physical_offset} cannot be read: {error}",
            hint="run: orbitmq store verify",
        ) from error
    if state.version not in _VERSIONS_READ:
        raise StoreFormatError(
            f"the state of query {state.query!r} has version {state.version}; this broker reads "
            f"versions up to {VERSION}",
            hint="run the version of OrbitMQ that wrote it, or a newer one",
        )
    return msgspec.structs.replace(state, version=VERSION)
