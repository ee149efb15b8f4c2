"""The exactly-once batches that a log has, for a broker that loads no states.

A slave says so what would be known after its promotion. Records that are in its log and not visible
yet count too: the promoted broker shows them.

Threads: any that may wait for the disk, one at a time inside.
Crash: nothing is written, except that reading repairs queue entries from the log.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.broker.exactly_once.query_states import QUERIES_MAX, QueryState, decode_state
from orbitmq.broker.exactly_once.queue_walk import messages_from
from orbitmq.errors import QueueDamagedError, StoreDamagedError, StoreFormatError
from orbitmq.model.names import QUERIES_TOPIC
from orbitmq.protocol.requests.staged_writes import QuerySummary
from orbitmq.record.decode import decode_record

if TYPE_CHECKING:
    from orbitmq.store.message_store import MessageStore

# Damage that is described; there may be more.
_DAMAGE_MAX: Final = 10


@dataclass(slots=True)
class Known:
    """The newest state of each query that a log has, and what of it cannot be read.

    What is damaged may be a newer state of any query.
    """

    queries: dict[str, QuerySummary] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)

    def take(self, body: bytes, physical_offset: int) -> None:
        """Take in the next record."""
        try:
            state = decode_state(body, physical_offset)
        except StoreFormatError as error:
            self.note_damage(error)
            return
        # The newest come last.
        self.queries.pop(state.query, None)
        if state.forgotten:
            return
        if len(self.queries) < QUERIES_MAX:
            self.queries[state.query] = summary_of(state)
        else:
            self.note_damage(f"there are over {QUERIES_MAX} queries, and some are left out")

    def note_damage(self, damage: object) -> None:
        """Note what cannot be read."""
        text = str(damage)
        if len(self.damage) < _DAMAGE_MAX and text not in self.damage:
            self.damage.append(text)


class KnownBatches:
    """Reads what the log of an open store knows of queries that write exactly once."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        # What is visible, up to that offset of its queue: read once only.
        self._visible = Known()
        self._next = 0

    def read(self) -> Known:
        """Read what was added since the last time; blocks."""
        with self._lock:
            hidden_from = self._store.visible
            self._read_visible()
            known = Known(dict(self._visible.queries), list(self._visible.damage))
        self._read_hidden(known, hidden_from)
        return known

    def _read_visible(self) -> None:
        end = self._store.end_of(QUERIES_TOPIC, 0)
        self._next = max(self._next, self._store.start_of(QUERIES_TOPIC, 0))
        while self._next < end:
            try:
                for message in messages_from(self._store, QUERIES_TOPIC, 0, self._next, end=end):
                    self._visible.take(message.body, message.physical_offset)
                    self._next = message.queue_offset + 1
                # Lost messages are skipped.
                self._next = end
            except QueueDamagedError as damage:
                self._visible.note_damage(damage)
                self._next = max(self._next, damage.queue_offset) + 1

    def _read_hidden(self, known: Known, start: int) -> None:
        try:
            for place, record in self._store.hidden_records(QUERIES_TOPIC, 0, start):
                if record is None:
                    known.note_damage(f"the state of a query at {place} cannot be read")
                else:
                    known.take(decode_record(record).body, place)
        except StoreDamagedError as damage:
            known.note_damage(damage)


def summary_of(state: QueryState) -> QuerySummary:
    """What a broker tells of the state of a query."""
    return QuerySummary(
        query=state.query,
        coordinator=state.coordinator,
        batch=state.batch,
        rows=sum(state.part.writes.values()) if state.part is not None else 0,
        staged_bytes=state.part_bytes,
        decided=state.decided,
        decided_ms=state.decided_ms,
        target=state.target,
        complete=state.is_complete,
        moved=not state.is_moving,
        part_digest=state.part_digest,
        digest=state.digest,
        confirmed=state.confirmed,
    )
