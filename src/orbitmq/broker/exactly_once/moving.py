"""Moving: appends the staged rows of a decision to their queues, each once.

A part is moved in the order of its writes and their sequences. Every `PROGRESS_ROWS` rows, the
progress is stored with the state of the query. When a move resumes after a failure or a crash, rows
moved after that record are found by searching the queues.

Threads: the event loop's; records are read off it.
Crash: staged rows, states and moved rows share one log, of which a prefix survives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.broker.exactly_once.query_states import QueryLocks, QueryState, check_name
from orbitmq.broker.exactly_once.queue_walk import first_after, messages_from
from orbitmq.broker.exactly_once.staged_rows import RowName, name_of, restored
from orbitmq.clock import settle
from orbitmq.disk import off_loop
from orbitmq.errors import (
    BatchConflictError,
    QueueDamagedError,
    RequestRefusedError,
    StoreDamagedError,
    TopicMissingError,
)
from orbitmq.model.names import STAGING_TOPIC
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.broker.exactly_once.query_states import QueryStates
    from orbitmq.model.queues import PhysicalOffset
    from orbitmq.protocol.requests.staged_writes import MoveRows, Part
    from orbitmq.record.decode import StoredMessage
    from orbitmq.store.log.draft import Draft
    from orbitmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

# Rows read and appended before other tasks get their turn.
CHUNK: Final = 500
# Rows after which the progress of a move is stored.
PROGRESS_ROWS: Final = 5_000


class _Row(NamedTuple):
    """A staged row: its position in the order of its part, and in the log, and its size there."""

    write_index: int
    sequence: int
    physical_offset: int
    record_bytes: int


class Moving:
    """Moves the rows of decisions."""

    def __init__(
        self,
        store: MessageStore,
        states: QueryStates,
        *,
        has_queue: Callable[[str, int], bool],
        on_moved: Callable[[Draft], None],
    ) -> None:
        self._store = store
        self._states = states
        self._has_queue = has_queue
        self._on_moved = on_moved
        self._locks = QueryLocks()
        # By query: the end of the log when a move failed, below which rows of it may be.
        self._unsure: dict[str, PhysicalOffset] = {}

    async def move(self, asked: MoveRows, part: Part) -> None:
        """Move the rows of a part that are not moved yet; returns once all are on disk."""
        check_name("query", asked.query)
        check_name("coordinator", asked.coordinator)
        async with self._locks.of(asked.query):
            await self._move(asked, part)

    async def _move(self, asked: MoveRows, part: Part) -> None:
        kept = self._states.find(asked.query)
        state = kept.state if kept is not None else None
        if state is not None and state.is_moving and _confirmed_before(state, asked):
            # The coordinator knows it as moved, from a broker whose end of the log was lost.
            assert state.part is not None
            await self._finish(state, await off_loop(self._staged, asked.query, state.part))
            kept = self._states.find(asked.query)
            state = kept.state if kept is not None else None
        moving = _start_part(state, asked, part)
        if moving is None:
            moving = state
        assert moving is not None
        if not moving.is_moving:
            return
        assert moving.part is not None
        # Finds damage before anything is stored.
        rows = await off_loop(self._staged, asked.query, moving.part)
        if moving is not state:
            staged_bytes = sum(row.record_bytes for row in rows)
            await self._states.change(
                asked.query, lambda state: _start_part(state, asked, part, staged_bytes)
            )
        await self._finish(moving, rows)

    async def _finish(self, state: QueryState, rows: Sequence[_Row]) -> None:
        """Move the remaining rows of the part that is being moved."""
        part, moved = state.part, state.moved
        assert part is not None
        assert moved is not None
        # Rows appended earlier can be found only once they are visible.
        await off_loop(self._store.flush)
        self._check_visible(state)
        try:
            await self._append_rest(state, part, moved, rows)
        except BaseException:
            self._unsure[state.query] = self._store.log_end
            raise
        self._unsure.pop(state.query, None)

    def _check_visible(self, state: QueryState) -> None:
        """Raise while rows that an earlier attempt appended wait for slaves."""
        if self._store.visible < self._unsure.get(state.query, 0):
            raise RequestRefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"rows of batch {state.batch} of query {state.query!r} that were moved before wait "
                "for slaves",
                hint="retry",
            )

    async def _append_rest(
        self, state: QueryState, part: Part, moved: int, rows: Sequence[_Row]
    ) -> None:
        done = await off_loop(self._moved_since, state.query, part, rows[moved:])
        if done:
            log.info(
                "move of rows resumed query=%s batch=%d rows=%d moved=%d",
                state.query, state.batch, len(rows), moved + len(done),
            )  # fmt: skip
        names = list(part.writes)
        left = [
            row for row in rows[moved:] if RowName(names[row.write_index], row.sequence) not in done
        ]
        for start in range(0, len(left), PROGRESS_ROWS):
            if start:
                await self._store_progress(state, len(rows) - len(left) + start)
            for at in range(start, min(start + PROGRESS_ROWS, len(left)), CHUNK):
                stop = min(at + CHUNK, start + PROGRESS_ROWS)
                await self._append([row.physical_offset for row in left[at:stop]])
        await self._store_progress(state, None)

    async def _store_progress(self, moving: QueryState, moved: int | None) -> None:
        """Store the progress of a move, in the log after the rows it moved."""
        await self._states.change(
            moving.query,
            lambda state: (
                msgspec.structs.replace(state, moved=moved) if state is not None else None
            ),
        )

    async def _append(self, physical_offsets: Sequence[int]) -> None:
        drafts = await off_loop(self._read, physical_offsets)
        by_queue: dict[tuple[str, int], list[Draft]] = {}
        for draft in drafts:
            by_queue.setdefault((draft.topic, draft.queue_id), []).append(draft)
        for topic, queue_id in by_queue:
            # Consumers would never see the rows, and the next topic of that name would not have them.
            if not self._has_queue(topic, queue_id):
                raise TopicMissingError(
                    f"rows are decided for queue {queue_id} of topic {topic!r}, which does not exist",
                    hint=f"create it again (orbitmq topic create {topic} -q {queue_id + 1}): the "
                    "rows are moved then",
                )
        for queued in by_queue.values():
            self._store.append_batch(queued)
            for draft in queued:
                self._on_moved(draft)
        self._store.publish()
        self._store.request_flush()
        await settle(1)

    # --- off the loop -------------------------------------------------------------------------

    def _read(self, physical_offsets: Sequence[int]) -> list[Draft]:
        drafts: list[Draft] = []
        for physical_offset in physical_offsets:
            message = self._store.message_at(physical_offset)
            if message is None:
                raise StoreDamagedError(
                    f"the staged row at {physical_offset} cannot be read",
                    hint="run: orbitmq store verify",
                )
            drafts.append(restored(message))
        return drafts

    def _staged(self, query: str, part: Part) -> list[_Row]:
        """Find the rows of a part, each once, in order; raises if some are missing."""
        indexes = {write_id: index for index, write_id in enumerate(part.writes)}
        found: dict[RowName, _Row] = {}
        for message in self._staged_from(part.start, part.end):
            name = name_of(message.properties_bytes)
            if name is not None and name.write_id in indexes:
                place = message.physical_offset, message.size
                found.setdefault(name, _Row(indexes[name.write_id], name.sequence, *place))
        rows = sorted(found.values())
        _check_complete(query, part, rows)
        return rows

    def _staged_from(self, start: int, end: int) -> Iterator[StoredMessage]:
        """Read staged rows; one that cannot be read may belong to another query."""
        while start < end:
            try:
                yield from messages_from(self._store, STAGING_TOPIC, 0, start, end=end)
            except QueueDamagedError as damage:
                start = damage.queue_offset + 1
            else:
                return

    def _moved_since(self, query: str, part: Part, rows: Sequence[_Row]) -> set[RowName]:
        """Find the rows that were moved after the newest state of the query was stored."""
        kept = self._states.find(query)
        assert kept is not None
        targets = {
            (draft.topic, draft.queue_id)
            for start in range(0, len(rows), CHUNK)
            for draft in self._read([row.physical_offset for row in rows[start : start + CHUNK]])
        }
        names: set[RowName] = set()
        for topic, queue_id in targets:
            try:
                first = first_after(self._store, topic, queue_id, kept.physical_offset)
                for message in messages_from(self._store, topic, queue_id, first):
                    name = name_of(message.properties_bytes)
                    if name is not None and name.write_id in part.writes:
                        names.add(name)
            except QueueDamagedError as damage:
                raise StoreDamagedError(
                    f"which rows of batch {kept.state.batch} of query {query!r} were moved is not "
                    f"known, and none is moved twice: {damage.args[0]}",
                    hint="restore the log from a copy; without one, stop the broker and run: orbitmq "
                    "store accept-loss. The other rows are moved then",
                ) from damage
        return names


def _start_part(
    state: QueryState | None, asked: MoveRows, part: Part, staged_bytes: int = 0
) -> QueryState | None:
    """The state with a part being moved; None if that decision is known already."""
    query, batch, digest = asked.query, asked.batch, asked.digest or ""
    if state is None:
        state = QueryState(query=query, coordinator=asked.coordinator)
    if state.coordinator != asked.coordinator:
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"query {query!r} is coordinated by broker {state.coordinator!r}, "
            f"not {asked.coordinator!r}",
            hint="use one checkpoint per query",
        )
    if batch < state.batch or (
        batch == state.batch and digest and state.part_digest and digest != state.part_digest
    ):
        what = (
            f"query {query!r} cannot go on after batch {batch}"
            if batch == asked.previous_batch
            else f"batch {batch} of query {query!r} is not moved"
        )
        raise BatchConflictError(
            f"{what}: this broker has moved other rows for batch {state.batch}",
            hint=f"the coordinator {asked.coordinator!r} does not know that: the query was forgotten "
            "there only, or a slave that did not have the decision was promoted. Those rows stay. "
            "To write this batch all the same, though some of its rows may be in the topic already, "
            f"forget the query everywhere: orbitmq query forget {query} --force",
        )
    if batch == state.batch:
        return None
    _check_previous(state, asked)
    if state.is_moving:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_BUSY,
            f"batch {state.batch} of query {query!r} is not moved yet; {batch} has to wait",
        )
    return msgspec.structs.replace(
        state, batch=batch, part=part, moved=0, part_digest=digest, part_bytes=staged_bytes
    )


def _confirmed_before(state: QueryState, asked: MoveRows) -> bool:
    """Whether the part of a state is the one that the coordinator knows as moved before."""
    return (
        state.coordinator == asked.coordinator
        and state.batch == asked.previous_batch
        and state.part_digest == (asked.previous_digest or "")
    )


def _check_previous(state: QueryState, asked: MoveRows) -> None:
    """Raise if this broker has not moved what the coordinator knows as moved before."""
    if asked.previous_batch is None or _confirmed_before(state, asked):
        return
    known = f"batch {state.batch}" if state.batch >= 0 else "none"
    hint = (
        "rows may be missing: compare source and topic, and write what is missing with a batch "
        f"write. Then, to go on: orbitmq query forget {asked.query} --force"
    )
    lost = (
        f"the rows of batch {asked.previous_batch} were moved here, and the newest that is known "
        f"here is {known}"
        f"{' of another decision' if state.batch == asked.previous_batch else ''}. A slave that did "
        "not have them was promoted, or the broker lost its store"
    )
    if asked.batch == asked.previous_batch:
        raise BatchConflictError(f"query {asked.query!r} cannot go on: {lost}", hint=hint)
    raise BatchConflictError(
        f"batch {asked.batch} of query {asked.query!r} is not moved: {lost}",
        hint=f"{hint}; rows of batch {asked.batch} that other brokers have moved are written twice "
        "then",
    )


def _check_complete(query: str, part: Part, rows: Sequence[_Row]) -> None:
    counts = [0] * len(part.writes)
    for row in rows:
        counts[row.write_index] += 1
    for (write_id, expected), count in zip(part.writes.items(), counts, strict=True):
        if count != expected:
            raise StoreDamagedError(
                f"write {write_id} of query {query!r} staged {expected} rows, but {count} were found "
                f"between {part.start} and {part.end} of the staging queue; none was moved",
                hint="a slave that did not have them was promoted, or the store is damaged: run "
                "orbitmq store verify. To write the batch again, though rows that other brokers have "
                f"moved stay: orbitmq query forget {query} --force, and restart the query",
            )
